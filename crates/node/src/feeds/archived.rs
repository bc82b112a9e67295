//! What feeds read from the archive: segments that the trail has recycled.
//!
//! A segment is read whole, because it is checked and decoded whole, one at a time for all feeds, and put into a scratch file without
//! a name. From there its boxcars are read one by one: a subscriber that takes them slowly costs no memory. The disk has at most one
//! segment for each feed.
//!
//! Failure: 58030 with the cause where the archive cannot be read, or the scratch file; the subscriber tries again.

use holdfast_archive::{ArchiveError, Segment};
use holdfast_engine::Engine;
use holdfast_replication::ArchiveSource;
use holdfast_store::pages::scratch::unlinked_file;
use holdfast_trail::{Shipped, TrailId};
use holdfast_types::{Lsn, SqlError, SqlResult, SqlState};
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::sync::Arc;
use tokio::runtime::Handle;

/// The archive of the trail. Its functions wait: they are called on threads that may.
pub struct Archive {
    source: Arc<ArchiveSource>,
    /// That in which the archive's requests run.
    runtime: Handle,
    /// Held while a segment is in memory.
    one_at_a_time: Mutex<()>,
}

impl Archive {
    pub fn new(source: Arc<ArchiveSource>, runtime: Handle) -> Archive {
        Archive { source, runtime, one_at_a_time: Mutex::default() }
    }

    /// Whether it has everything from `lsn` on up to the trail's beginning, which is behind `lsn`.
    pub fn has(&self, lsn: Lsn) -> SqlResult<bool> {
        self.runtime.block_on(self.source.has(lsn)).map_err(|error| unreadable(&error))
    }

    /// The boxcars from `lsn` on up to the end of their segment; `None`: it lacks that segment, or one between it and the trail.
    pub fn segment(&self, engine: &Engine, lsn: Lsn) -> SqlResult<Option<ArchivedBoxcars>> {
        let _one = self.one_at_a_time.lock();
        let segment = self.runtime.block_on(self.source.segment(lsn)).map_err(|error| unreadable(&error))?;
        let Some(segment) = segment else { return Ok(None) };
        tracing::info!(object = %segment.manifest.name(), from = %lsn, "a feed reads from the archive");
        let file = put_aside(&segment, lsn, engine)?;
        Ok(Some(ArchivedBoxcars {
            file,
            trail_id: engine.trail().trail_id(),
            segment_bytes: engine.trail().segment_bytes(),
        }))
    }
}

/// Writes the boxcars of a segment from `lsn` on to a scratch file.
fn put_aside(segment: &Segment, lsn: Lsn, engine: &Engine) -> SqlResult<BufReader<File>> {
    let mut file = BufWriter::new(unlinked_file(&engine.scratch_dir()).map_err(scratch)?);
    for boxcar in segment.boxcars_from(lsn) {
        let name = segment.manifest.name().to_string();
        let boxcar = boxcar.map_err(|what| unreadable(&ArchiveError::Damaged { name, what }))?;
        // In front of each its length. A boxcar is not longer than its segment.
        file.write_all(&(boxcar.bytes.len() as u64).to_le_bytes()).map_err(scratch)?;
        file.write_all(&boxcar.bytes).map_err(scratch)?;
    }
    let mut file = file.into_inner().map_err(|error| scratch(error.into_error()))?;
    file.seek(SeekFrom::Start(0)).map_err(scratch)?;
    Ok(BufReader::new(file))
}

/// Boxcars of one segment.
pub struct ArchivedBoxcars {
    file: BufReader<File>,
    trail_id: TrailId,
    segment_bytes: u64,
}

impl ArchivedBoxcars {
    /// The next boxcar; `None` behind the segment's end.
    pub fn next(&mut self) -> SqlResult<Option<Shipped>> {
        let mut length = [0; 8];
        match self.file.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read.map_err(scratch)?,
        }
        let mut bytes = vec![0; u64::from_le_bytes(length).min(self.segment_bytes) as usize];
        self.file.read_exact(&mut bytes).map_err(scratch)?;
        let boxcar = Shipped::parse(bytes.into(), self.trail_id, self.segment_bytes);
        boxcar.map(Some).map_err(|flaw| scratch(io::Error::other(flaw.to_string())))
    }
}

fn unreadable(error: &ArchiveError) -> SqlError {
    let hint = match error.needs_operator() {
        true => "Look at the archive with: holdfast archive verify. The subscriber continues when it can be read.",
        false => "The subscriber tries again, and continues when the archive can be read.",
    };
    SqlError::new(SqlState::IO_ERROR, format!("what the subscriber needs cannot be read from the archive: {error}"))
        .with_hint(hint)
}

fn scratch(error: io::Error) -> SqlError {
    let message = format!("a segment of the archive cannot be put into a scratch file of the data directory: {error}");
    SqlError::new(SqlState::IO_ERROR, message)
}
