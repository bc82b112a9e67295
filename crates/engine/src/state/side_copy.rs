//! A private copy of the volume on which a large transaction is applied while the writer serves others.
//!
//! To apply 1,000,000 rows in the writer keeps all others waiting for about 3 s. So the committing thread applies them to a copy, a
//! branch of the volume with nothing on it, and then repeats there what the writer has published meanwhile, again and again
//! until little is missing. The writer repeats the rest, and publishes the copy's pages as its next batch
//! ([`crate::writer`], [`holdfast_store::pages::PageStore::adopt`]).
//!
//! | step | thread | the copy has |
//! |---|---|---|
//! | [`SideCopy::begin`] | committing | the newest snapshot B |
//! | [`SideCopy::apply`] | committing | B and the transaction: its images, applied and recorded as the writer would |
//! | [`SideCopy::repeat`] | committing, then the writer | B, the transaction, and the batches after B, applied as in redo |
//! | [`SideCopy::finish`] | the writer | the next batch |
//!
//! In the trail the transaction comes after these batches. The order does not matter to the rows: the transaction holds the
//! locks of what it changes and of what it refers to until it is published, so the batches change nothing of that.
//!
//! Failure: [`NotCopied`]. The copy is dropped, and the writer merges the images as it does with smaller transactions.

use crate::state::fragments::pieces;
use crate::state::ids::Ids;
use crate::state::locks::Target;
use crate::state::side_log::{Following, SideLog};
use holdfast_store::apply::{Applier, ApplyError, ApplyMode};
use holdfast_store::capture::{Capture, CaptureError, Watch, Watched};
use holdfast_store::locking::{Touch, touches};
use holdfast_store::pages::{ChangeWatch, CopiedPages};
use holdfast_store::position::PositionWriter;
use holdfast_store::schema_map::{TableInfo, TableMap};
use holdfast_store::sequences::flush_sequences;
use holdfast_store::sqlite::{Conn, RowChange, SqliteError, ffi};
use holdfast_store::volume::{Volume, VolumeError};
use holdfast_types::record::{DecodeError, Ops, Record, RecordReader};
use holdfast_types::{Epoch, SqlError};
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use std::sync::Arc;

/// Images are compared with what is recorded of them in pieces of about this size.
const PIECE_BYTES: usize = 1 << 20;

/// So little is missing that the writer may repeat it: it takes a few milliseconds.
const LITTLE_BYTES: usize = 128 << 10;

/// The copy does not keep up with a writer that is as quick as this many rounds show.
const ROUNDS_MAX: usize = 12;

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum NotCopied {
    #[error("applied, its images have other effects (foreign keys, AUTOINCREMENT or unchanged rows)")]
    Differs,
    #[error("other transactions write faster than the copy can repeat")]
    Behind,
    #[error("the schema has changed meanwhile")]
    Schema,
    #[error("the batch after {has} was expected, and {found} was found")]
    Gap { has: u64, found: u64 },
    #[error("its COMMIT has kept no pages")]
    NoPages,
    #[error("the database is being closed")]
    Closed,
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error(transparent)]
    Record(#[from] DecodeError),
    #[error(transparent)]
    Sqlite(#[from] SqliteError),
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Images(#[from] SqlError),
}

/// Notes what the transaction changes, for the versions that branches compare with.
struct SideWatch {
    raised: Arc<Mutex<FxHashSet<Target>>>,
    ids: Arc<Ids>,
    touched: Vec<Touch>,
}

impl Watch for SideWatch {
    fn on_change(&mut self, _: &TableMap, table: &TableInfo, change: &RowChange<'_>) -> Watched {
        self.ids.changed(table, change);
        self.touched.clear();
        // What cannot be read has no lock either (the writer's merge does the same).
        if touches(table, change, &mut self.touched).is_ok() {
            let mut raised = self.raised.lock();
            for t in &self.touched {
                raised.extend(t.raises.iter().map(|&class| Target::Row { class, table: t.table, hash: t.hash }));
            }
        }
        Watched::Record
    }
}

/// What the writer publishes.
pub struct Finished {
    pub pages: CopiedPages,
    pub watch: ChangeWatch,
    /// The rows and keys that get a new version.
    pub raised: FxHashSet<Target>,
    /// It is the next copy's turn when this one is published.
    _turn: Following,
}

/// See the module.
pub struct SideCopy {
    conn: Conn,
    applier: Applier,
    position: PositionWriter,
    map: Arc<TableMap>,
    /// The last batch that the copy contains.
    number: u64,
    raised: Arc<Mutex<FxHashSet<Target>>>,
    watch: ChangeWatch,
    following: Following,
    /// Dropped after the connection, which uses its VFS.
    volume: Arc<Volume>,
}

impl SideCopy {
    /// Begins a copy of the newest snapshot, whose tables must be `map`'s, when it is its turn.
    pub fn begin(
        volume: Arc<Volume>,
        map: Arc<TableMap>,
        ids: Arc<Ids>,
        log: &Arc<SideLog>,
        may_wait: impl Fn() -> bool,
    ) -> Result<SideCopy, NotCopied> {
        let following = log.begin(may_wait).ok_or(NotCopied::Closed)?;
        let watch = ChangeWatch::begin(volume.store());
        let mut conn = volume.open_side_copy()?;
        conn.exec("pragma foreign_keys=on")?;
        conn.set_config(ffi::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        conn.install_capture(Capture::new(map.clone()))?;
        let raised = Arc::new(Mutex::new(FxHashSet::default()));
        conn.capture().set_watch(Box::new(SideWatch { raised: raised.clone(), ids, touched: Vec::new() }));
        let position = PositionWriter::prepare(&mut conn)?;
        // After both began to watch: what is published from here on is seen by them.
        let (number, _) = volume.store().acquire_newest();
        conn.choose_snapshot(number);
        let begun = conn.exec("begin immediate");
        volume.store().release(number);
        begun?;
        let applier = Applier::for_images(ApplyMode::Redo, map.clone());
        Ok(SideCopy { conn, applier, position, map, number, raised, watch, following, volume })
    }

    /// The last batch that the copy contains.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Whether it is a copy of this volume, which VACUUM replaces by another one.
    pub fn is_of(&self, volume: &Arc<Volume>) -> bool {
        Arc::ptr_eq(&self.volume, volume)
    }

    /// Applies the transaction's images. What is recorded of them has to be equal to them.
    pub fn apply(&mut self, images: &[u8]) -> Result<(), NotCopied> {
        self.conn.exec("pragma defer_foreign_keys=1")?;
        // What is recorded from here on is the transaction's.
        flush_sequences(&mut self.conn)?;
        self.conn.capture().buffer().clear();
        for piece in pieces(images, PIECE_BYTES, usize::MAX)? {
            self.apply_piece(piece)?;
        }
        flush_sequences(&mut self.conn)?;
        if !self.conn.capture().is_empty() || self.conn.deferred_foreign_keys() > 0 {
            return Err(NotCopied::Differs);
        }
        self.conn.capture().check()?;
        // What others do is complete in their images.
        self.applier.forget(&mut self.conn);
        self.applier = Applier::begin(&mut self.conn, self.map.clone())?;
        Ok(())
    }

    fn apply_piece(&mut self, piece: &[u8]) -> Result<(), NotCopied> {
        self.applier.apply(&mut self.conn, Ops::new(piece))?;
        let recorded = self.conn.capture().buffer();
        if recorded != piece {
            return Err(NotCopied::Differs);
        }
        recorded.clear();
        Ok(())
    }

    /// Repeats what was published meanwhile, until little is missing.
    pub fn catch_up(&mut self) -> Result<(), NotCopied> {
        for _ in 0..ROUNDS_MAX {
            if self.repeat()? <= LITTLE_BYTES {
                return Ok(());
            }
        }
        Err(NotCopied::Behind)
    }

    /// Repeats what was published since the last time, and returns its bytes.
    fn repeat(&mut self) -> Result<usize, NotCopied> {
        let mut bytes = 0;
        for (number, body) in self.following.take().ok_or(NotCopied::Behind)? {
            if number <= self.number {
                continue;
            }
            if number != self.number + 1 {
                return Err(NotCopied::Gap { has: self.number, found: number });
            }
            for record in RecordReader::new(&body) {
                let Record::Batch(batch) = record? else { continue };
                for transaction in batch.transactions() {
                    self.applier.apply(&mut self.conn, transaction?.ops)?;
                }
            }
            if !Arc::ptr_eq(self.applier.map(), &self.map) {
                return Err(NotCopied::Schema);
            }
            self.number = number;
            bytes += body.len();
        }
        Ok(bytes)
    }

    /// Makes the copy the batch `number`. To be called by the writer, which publishes nothing meanwhile.
    pub fn finish(mut self, number: u64, epoch: Epoch) -> Result<Finished, NotCopied> {
        self.repeat()?;
        if self.number + 1 != number {
            return Err(NotCopied::Gap { has: self.number, found: number });
        }
        self.position.write(&mut self.conn, number, epoch)?;
        self.conn.keep_pages();
        self.conn.exec("commit")?;
        let pages = self.conn.take_pages().ok_or(NotCopied::NoPages)?;
        let SideCopy { watch, raised, following, .. } = self;
        let raised = std::mem::take(&mut *raised.lock());
        Ok(Finished { pages, watch, raised, _turn: following })
    }
}
