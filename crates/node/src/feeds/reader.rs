//! The thread that reads the trail for one subscriber and makes messages of it.
//!
//! It reads up to [`Feeds::limit`], hands over pieces of about [`CHUNK_BYTES`], and waits while the session has not taken the
//! last few: so a subscriber that does not read costs a bounded amount of memory.
//!
//! Failure: the error that ends the feed is the last thing that it hands over.

use super::Feeds;
use super::boxcars::Boxcars;
use super::types::DatabaseTypes;
use crate::clock::now_us;
use holdfast_changes::{Assembly, Beyond, Car, Fragments, Position, parts};
use holdfast_engine::Database;
use holdfast_sites::link;
use holdfast_sites::{Feed, FeedError, Message};
use holdfast_trail::Shipped;
use holdfast_types::{SqlError, SqlState, VolumeId};
use holdfast_wire::copy_data;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// A piece is handed over when it has reached this.
const CHUNK_BYTES: usize = 64 << 10;

/// Pieces that were not taken yet.
const CHUNKS_AHEAD: usize = 4;

/// Fragments of large transactions that are kept in memory; the rest goes to a scratch file.
const FRAGMENTS_BYTES_MAX: u64 = 16 << 20;

/// The wait for news of the trail, at first and at most: it doubles while there are none.
const WAIT: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));

/// What the thread hands over.
pub enum Chunk {
    /// Data messages, framed, and the places that they reach.
    Data {
        framed: Vec<u8>,
        reached: Vec<Reached>,
    },
    Failed(SqlError),
}

/// The end of a transaction that was sent, or of one that publishes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The number by which a subscriber confirms it.
    pub lsn: u64,
    pub end: Position,
    /// Where reading would begin again.
    pub restart: Position,
}

/// A feed under way; dropping it ends the thread.
pub struct Reading {
    pub chunks: mpsc::Receiver<Chunk>,
    stop: Arc<AtomicBool>,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Begins to read for a subscriber that has everything before `from`, at `restart`.
pub fn read(
    feeds: Arc<Feeds>,
    db: Database,
    publications: Vec<String>,
    (from, restart): (u64, Position),
) -> std::io::Result<Reading> {
    let (sender, chunks) = mpsc::channel(CHUNKS_AHEAD);
    let stop = Arc::<AtomicBool>::default();
    let beyond = Beyond { memory_bytes_max: FRAGMENTS_BYTES_MAX, scratch_dir: feeds.engine().scratch_dir() };
    let fragments = Fragments::new(beyond);
    let feed = Feed::new(DatabaseTypes(db.clone()), publications, from);
    let assembly = Assembly::new(fragments, restart);
    let (framed, reached) = (Vec::new(), Vec::new());
    let thread = Thread { feeds, volume: db.volume(), feed, assembly, sender, stop: stop.clone(), framed, reached };
    std::thread::Builder::new().name("feed".to_owned()).spawn(move || thread.run(restart))?;
    Ok(Reading { chunks, stop })
}

struct Thread {
    feeds: Arc<Feeds>,
    volume: VolumeId,
    feed: Feed<DatabaseTypes>,
    assembly: Assembly,
    sender: mpsc::Sender<Chunk>,
    stop: Arc<AtomicBool>,
    framed: Vec<u8>,
    reached: Vec<Reached>,
}

/// Why the thread ends.
enum End {
    Stopped,
    Failed(SqlError),
}

impl From<FeedError> for End {
    fn from(error: FeedError) -> End {
        match error {
            FeedError::Stopped => End::Stopped,
            error => End::Failed(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, error.to_string())),
        }
    }
}

impl From<SqlError> for End {
    fn from(error: SqlError) -> End {
        End::Failed(error)
    }
}

impl Thread {
    fn run(mut self, restart: Position) {
        if let Err(End::Failed(error)) = self.read(restart) {
            tracing::warn!("a feed has ended: {error}");
            // The session may have gone.
            _ = self.sender.blocking_send(Chunk::Failed(error));
        }
    }

    fn read(&mut self, restart: Position) -> Result<(), End> {
        let feeds = self.feeds.clone();
        let mut boxcars = Boxcars::new(&feeds, restart.boxcar)?;
        let mut next: Option<Shipped> = None;
        let mut wait = WAIT.0;
        while !self.stop.load(Ordering::Relaxed) {
            if next.is_none() {
                next = boxcars.next()?;
            }
            match next.take_if(|boxcar| boxcar.end <= feeds.limit()) {
                Some(boxcar) => {
                    self.boxcar(&boxcar)?;
                    wait = WAIT.0;
                }
                None => {
                    hand_over(&self.sender, &mut self.framed, &mut self.reached)?;
                    std::thread::sleep(wait);
                    wait = (wait * 2).min(WAIT.1);
                }
            }
        }
        Err(End::Stopped)
    }

    fn boxcar(&mut self, boxcar: &Shipped) -> Result<(), End> {
        let car = Car { lsn: boxcar.lsn, epoch: boxcar.epoch, body: boxcar.body() };
        self.assembly.begin_epoch(boxcar.epoch);
        let volume = self.volume;
        for part in parts(car, |of| of == volume) {
            let Thread { feed, assembly, sender, framed, reached, .. } = self;
            let Some(committed) = assembly.add(part.map_err(FeedError::from)?).map_err(FeedError::from)? else {
                continue;
            };
            let (end, before) = (committed.end, feed.end());
            let mut send = |message: Message<'_>| {
                // In front of a message: what a commit reaches is handed over together with it, else the subscriber could confirm
                // what the session does not know of yet.
                if framed.len() >= CHUNK_BYTES {
                    hand_over(sender, framed, reached)?;
                }
                copy_data(framed, |out| {
                    link::data(out, message.lsn, now_us());
                    out.extend_from_slice(message.body);
                });
                Ok(())
            };
            feed.transaction(&committed, &mut send)?;
            if feed.end() > before {
                let lsn = feed.end();
                reached.push(Reached { lsn, end, restart: assembly.restart() });
            }
        }
        Ok(())
    }
}

/// Hands over what is ready. An error: the session has ended.
fn hand_over(sender: &mpsc::Sender<Chunk>, framed: &mut Vec<u8>, reached: &mut Vec<Reached>) -> Result<(), FeedError> {
    if framed.is_empty() && reached.is_empty() {
        return Ok(());
    }
    let (framed, reached) = (std::mem::take(framed), std::mem::take(reached));
    sender.blocking_send(Chunk::Data { framed, reached }).map_err(|_| FeedError::Stopped)
}
