//! Applies a branch's images to the volume in the writer.
//!
//! Its rows and keys are locked, so the images find what the branch saw. What foreign keys do happens again here and is
//! recorded here (RULE 8): the branch left it out of its images. Unique and foreign keys are enforced again, so that
//! nothing depends on the locks only.

use super::connection::{SentFragments, Writer};
use crate::state::prewritten::Prewritten;
use crate::statement::images::image_error;
use holdfast_store::apply::{Applier, ApplyMode};
use holdfast_store::capture::Mark;
use holdfast_types::record::Ops;
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;

impl Writer {
    /// Applies images within the open savepoint or transaction.
    pub(super) fn apply_images(&mut self, ops: &[u8]) -> SqlResult<()> {
        let map = self.conn.capture().map().clone();
        // Not the epoch: a schema change that was undone leaves it to the next one.
        if !Arc::ptr_eq(self.applier.map(), &map) {
            self.applier.forget(&mut self.conn);
            self.applier = Applier::for_images(ApplyMode::Main, map.clone());
        }
        let applied = self.applier.apply(&mut self.conn, Ops::new(ops)).map_err(|e| image_error(&e));
        if !Arc::ptr_eq(self.applier.map(), &map) {
            self.cache.clear(&mut self.conn);
            self.refresh_schema()?;
        }
        applied
    }

    /// Applies images; the caller undoes them when this fails. An immediate foreign key may hold only at the end of the
    /// statement that several of the images come from: a second round lets such checks wait for the end.
    pub(super) fn merge(&mut self, ops: &[u8]) -> SqlResult<()> {
        self.merge_by(Writer::apply_images, ops)
    }

    /// Applies the images of a transaction that is a batch of its own: what it captures goes to the trail meanwhile, unless it is
    /// there already.
    pub(super) fn merge_in_fragments(&mut self, ops: &[u8], sent: Option<Prewritten>) -> SqlResult<()> {
        self.ahead = sent.map(SentFragments::of);
        self.merge_by(Writer::apply_images_ahead, ops)
    }

    fn merge_by(&mut self, apply: fn(&mut Writer, &[u8]) -> SqlResult<()>, ops: &[u8]) -> SqlResult<()> {
        let (mark, schema) = (self.mark(), self.schema.clone());
        match apply(self, ops) {
            Err(e) if e.state() == SqlState::FOREIGN_KEY_VIOLATION && !self.conn.autocommit() => {
                self.run_control(self.control.rollback_to)?;
                self.conn.capture().truncate(mark);
                self.drop_fragments();
                self.schema_back_to(schema);
                let error = |writer: &Writer, e| writer.sql_error(&e);
                self.conn.exec("pragma defer_foreign_keys=1").map_err(|e| error(self, e))?;
                let applied = apply(self, ops).and_then(|()| self.no_key_is_open());
                // The rollback drops the open savepoints, so the check must come before it.
                self.conn.exec("pragma defer_foreign_keys=0").map_err(|e| error(self, e))?;
                applied
            }
            applied => applied,
        }
    }

    /// Applies images in a savepoint, in a batch of their own, with the checks that a commit makes.
    pub(crate) fn merge_in_savepoint(&mut self, ops: &[u8]) -> SqlResult<()> {
        self.run_control(self.control.savepoint)?;
        self.merge(ops)?;
        if self.met_a_lock() {
            return Err(met_a_lock());
        }
        self.no_key_is_open()
    }

    /// Undoes what was merged in the savepoint and captured since the mark.
    pub(crate) fn undo_merge(&mut self, mark: Mark) -> SqlResult<()> {
        self.run_control(self.control.rollback_to)?;
        self.run_control(self.control.release)?;
        self.conn.capture().truncate(mark);
        Ok(())
    }

    /// All images are applied: a foreign key that does not hold now is violated.
    fn no_key_is_open(&mut self) -> SqlResult<()> {
        if self.conn.deferred_foreign_keys() == 0 {
            return Ok(());
        }
        Err(SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, "FOREIGN KEY constraint failed"))
    }
}

/// The error of a merge that met another transaction's lock; its own locks should have kept others away.
pub(super) fn met_a_lock() -> SqlError {
    SqlError::new(SqlState::SERIALIZATION_FAILURE, "could not serialize access due to concurrent update")
        .with_hint("Run the transaction again.")
}
