//! A branch's images put on the volume by MAIN.
//!
//! Its rows and keys are locked, so the images find what the branch saw. What foreign keys do happens again here and is
//! recorded here (RULE 8): the branch left it out of its images. Unique and foreign keys are enforced once more, so that
//! nothing depends on the locks alone.

use super::exec::Main;
use super::large::Ahead;
use crate::branch::image_error;
use crate::sent_ahead::SentAhead;
use holdfast_store::apply::{Applier, Place};
use holdfast_store::capture::Mark;
use holdfast_types::record::Ops;
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;

impl Main {
    /// Applies images within the open savepoint or transaction.
    pub(super) fn apply_images(&mut self, ops: &[u8]) -> SqlResult<()> {
        let map = self.conn.capture().map().clone();
        // Not the epoch: a schema change that was undone leaves it to the next one.
        if !Arc::ptr_eq(self.applier.map(), &map) {
            self.applier.forget(&mut self.conn);
            self.applier = Applier::for_images(Place::Main, map.clone());
        }
        let applied = self.applier.apply(&mut self.conn, Ops::new(ops)).map_err(|e| image_error(&e));
        if !Arc::ptr_eq(self.applier.map(), &map) {
            self.cache.clear(&mut self.conn);
            self.refresh_schema()?;
        }
        applied
    }

    /// The same, undone to `mark` by the caller when it fails. An immediate foreign key may hold only at the end of the
    /// statement that several of the images come from: a second round lets such checks wait for the end.
    pub(super) fn merge(&mut self, ops: &[u8]) -> SqlResult<()> {
        self.merge_by(Main::apply_images, ops)
    }

    /// The same for a transaction that has MAIN to itself: what it captures goes ahead to the trail meanwhile, unless it is
    /// there already.
    pub(super) fn merge_ahead(&mut self, ops: &[u8], sent: Option<SentAhead>) -> SqlResult<()> {
        self.ahead = sent.map(Ahead::of);
        self.merge_by(Main::apply_images_ahead, ops)
    }

    fn merge_by(&mut self, apply: fn(&mut Main, &[u8]) -> SqlResult<()>, ops: &[u8]) -> SqlResult<()> {
        let (mark, schema) = (self.mark(), self.schema.clone());
        match apply(self, ops) {
            Err(e) if e.state() == SqlState::FOREIGN_KEY_VIOLATION && !self.conn.autocommit() => {
                self.run_control(self.control.rollback_to)?;
                self.conn.capture().truncate(mark);
                self.drop_fragments();
                self.schema_back_to(schema);
                let error = |main: &Main, e| main.sql_error(&e);
                self.conn.exec("pragma defer_foreign_keys=1").map_err(|e| error(self, e))?;
                let applied = apply(self, ops).and_then(|()| self.no_key_is_open());
                // This forgets what is open, so the look must come before it.
                self.conn.exec("pragma defer_foreign_keys=0").map_err(|e| error(self, e))?;
                applied
            }
            applied => applied,
        }
    }

    /// The same in a savepoint of its own, for who has MAIN to himself, with the checks that a commit makes.
    pub(crate) fn merge_alone(&mut self, ops: &[u8]) -> SqlResult<()> {
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

    /// All images are there: a foreign key that does not hold now is violated.
    fn no_key_is_open(&mut self) -> SqlResult<()> {
        if self.conn.deferred_foreign_keys() == 0 {
            return Ok(());
        }
        Err(SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, "FOREIGN KEY constraint failed"))
    }
}

/// What a merge says that met a lock of somebody else: its own locks should have kept everybody away.
pub(super) fn met_a_lock() -> SqlError {
    SqlError::new(SqlState::SERIALIZATION_FAILURE, "could not serialize access due to concurrent update")
        .with_hint("Run the transaction again.")
}
