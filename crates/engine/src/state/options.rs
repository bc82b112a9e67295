//! The options that an engine is opened with.

use holdfast_seams::{Clock, Disk, RealClock, RealDisk, SyncMethod};
use holdfast_store::sqlite::Conn;
use holdfast_trail::{Closed, CommitDelay};
use holdfast_types::schema::{Dialect, Schema};
use holdfast_types::{Epoch, SiteId, SqlResult};
use std::sync::Arc;
use std::time::Duration;

/// Called for every connection an engine opens on a volume: registers functions and virtual tables.
pub type Connect = Arc<dyn Fn(&mut Conn, &Arc<dyn ConnectedDatabase>) -> SqlResult<()> + Send + Sync>;

/// The database that a connection is opened on, as far as functions and virtual tables may read it.
pub trait ConnectedDatabase: Send + Sync {
    fn name(&self) -> &str;
    fn dialect(&self) -> Dialect;
    /// The number PostgreSQL's clients see as the database's OID.
    fn oid(&self) -> u32;
    /// The newest published schema.
    fn schema(&self) -> Arc<Schema>;
}

/// See [`Options::on_failure`].
pub type OnFailure = Arc<dyn Fn(&str) + Send + Sync>;

/// See [`Options::on_given_up`].
pub type OnGivenUp = Arc<dyn Fn(&str) + Send + Sync>;

/// How much of the trail is kept for an archive that cannot be reached. The trail recycles nothing that the archive
/// lacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArchiveKeep {
    pub bytes_max: u64,
    pub beyond: BeyondKeep,
}

/// What happens when more waits for the archive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BeyondKeep {
    /// The trail keeps it, and the log reports it.
    Warn,
    /// Writes are refused with 53100 until the archive has caught up.
    Refuse,
}

/// Settings of an engine. [`Options::default`] is what `holdfast serve` uses.
#[derive(Clone)]
pub struct Options {
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    /// How trail writes are made durable.
    pub sync_method: SyncMethod,
    /// Whether group commits wait for more transactions.
    pub commit_delay: CommitDelay,
    /// Size of a trail segment.
    pub segment_bytes: u64,
    /// Page versions in memory, per volume.
    pub memory_bytes_max: u64,
    /// Page versions spilled to scratch, per volume; beyond it the oldest snapshot fails with 72000.
    pub scratch_bytes_max: u64,
    /// The writer's execution time that redo may have to repeat, over all volumes: a checkpoint starts at half of it,
    /// and beyond it writers are slowed down. It bounds the time of a recovery; with large transactions recovery takes
    /// up to three times as long.
    pub redo_time_max: Duration,
    /// Trail bytes that redo may have to read.
    pub redo_bytes_max: u64,
    /// Requests in one batch.
    pub batch_requests_max: usize,
    /// Row images of one transaction; beyond it the transaction fails with 54000.
    pub transaction_bytes_max: u64,
    /// A branch with at least this many bytes of images writes them to the trail itself when it commits, in eight
    /// pieces or more, and the writer only applies them.
    pub prewrite_bytes_min: usize,
    /// Images of at least this many bytes are applied to a private copy of the volume while others write, and the writer takes its
    /// pages over.
    pub side_copy_bytes_min: usize,
    /// Row and key locks of one transaction, about 200 bytes each; with more it waits until it is the only writer, and
    /// continues without locks.
    pub branch_locks_max: usize,
    /// Statements that run on branches at the same time, each on a thread of its own; further ones wait. A caller with
    /// sessions gives each of them one, because statements may sleep.
    pub branch_statements_max: usize,
    /// The longest pause between two statements of an interactive transaction that blocks all other writers.
    pub idle_in_transaction_timeout: Duration,
    pub site: SiteId,
    /// The directory belongs to a standby: it follows a master's trail ([`crate::Engine::receive`]) and changes nothing
    /// itself.
    pub standby: bool,
    /// The caller restores the directory, which nothing else may open before it is complete.
    pub restoring: bool,
    /// The epoch will be higher than this. A standby's directory is opened as a master's, which promotes it, only where
    /// this is not 0: the caller that sets it knows that there is no other master.
    pub epoch_min: Epoch,
    /// Where this process closed the trail of the same directory, which is opened in another role now.
    pub closed: Option<Closed>,
    /// How much of the trail is kept for a registered standby that is behind; a standby further behind is dropped.
    pub standby_keep_bytes_max: u64,
    /// A replication slot that lags more than this no longer holds the trail.
    pub slot_keep_bytes_max: u64,
    /// Called with the name of each standby that is dropped; it must not block.
    pub on_given_up: OnGivenUp,
    /// The trail is archived: what the archive lacks is kept. `None`: it is kept only if an earlier open recorded an
    /// archive, see [`crate::Engine::forget_archive`].
    pub archive: Option<ArchiveKeep>,
    /// Databases created in a new directory.
    pub initial_databases: Vec<(String, Dialect)>,
    pub connect: Option<Connect>,
    /// Called with the reason when continuing could lose or falsify data; ends the process by default. Only tests
    /// return from it.
    pub on_failure: OnFailure,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            disk: Arc::new(RealDisk::default()),
            clock: Arc::new(RealClock),
            sync_method: SyncMethod::default(),
            commit_delay: CommitDelay::default(),
            segment_bytes: 64 << 20,
            memory_bytes_max: 256 << 20,
            scratch_bytes_max: 16 << 30,
            redo_time_max: Duration::from_millis(1000),
            redo_bytes_max: 1 << 30,
            batch_requests_max: 200,
            transaction_bytes_max: 1 << 30,
            prewrite_bytes_min: 8 << 20,
            side_copy_bytes_min: 1 << 20,
            branch_locks_max: 2_000_000,
            branch_statements_max: 512,
            idle_in_transaction_timeout: Duration::from_secs(5),
            site: SiteId(1),
            standby: false,
            restoring: false,
            epoch_min: Epoch(0),
            closed: None,
            standby_keep_bytes_max: 16 << 30,
            slot_keep_bytes_max: 16 << 30,
            on_given_up: Arc::new(|standby| tracing::warn!(standby, "the trail is no longer kept for this standby")),
            archive: None,
            initial_databases: vec![
                ("holdfast".to_owned(), Dialect::Postgres),
                ("postgres".to_owned(), Dialect::Postgres),
            ],
            connect: None,
            on_failure: Arc::new(|_| std::process::abort()),
        }
    }
}
