//! The file `acknowledged` of a master's data directory: up to where its commits may have been acknowledged above level local.
//!
//! ```text
//! 7 67190784
//! ```
//! That is the epoch and the LSN. It is written when a master opens, before it serves, with the end of its trail: the masters
//! before it may have acknowledged that. It is replaced twice a second while it grows, and when the role ends. A server that
//! returns by itself keeps everything below it ([`crate::by_itself`]).
//!
//! Failure: a file that cannot be read, has another form or is of an older epoch than the end of the trail refuses an unattended
//! return. One that cannot be written when a master opens does not let it serve; later that is reported, and the one before
//! stays, which may be lower.

use holdfast_engine::Engine;
use holdfast_seams::{RealDisk, replace};
use holdfast_types::{Epoch, Lsn};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::watch;

/// The file's name.
pub const NAME: &str = "acknowledged";
const WRITE_EVERY: Duration = Duration::from_millis(500);

/// Up to where commits may have been acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Acknowledged {
    pub epoch: Epoch,
    pub lsn: Lsn,
}

impl Acknowledged {
    /// `None`: this directory has been no master's.
    pub fn read(dir: &Path) -> io::Result<Option<Acknowledged>> {
        let text = match std::fs::read_to_string(dir.join(NAME)) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let read = text.trim_end().split_once(' ').and_then(|(epoch, lsn)| {
            Some(Acknowledged { epoch: Epoch(epoch.parse().ok()?), lsn: Lsn(lsn.parse().ok()?) })
        });
        read.map(Some).ok_or_else(|| {
            let why = format!("{} is not an epoch and an LSN", dir.join(NAME).display());
            io::Error::new(ErrorKind::InvalidData, why)
        })
    }

    /// Writes the first mark of a master's epoch.
    pub fn begin(engine: &Engine, dir: &Path) -> io::Result<()> {
        let trail = engine.trail();
        Acknowledged { epoch: trail.epoch(), lsn: trail.durable() }.write(dir)
    }

    fn write(self, dir: &Path) -> io::Result<()> {
        let text = format!("{} {}\n", self.epoch, self.lsn.0);
        let path = dir.join(NAME);
        let replaced = replace(&RealDisk::new(), &path, text.as_bytes()).map_err(io::Error::from);
        replaced.map_err(|error| io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display())))
    }

    /// Raises the mark to this one; a higher one stays.
    fn raise(self, dir: &Path) -> io::Result<()> {
        let is_lower = |mark: Acknowledged| (mark.epoch, mark.lsn) < (self.epoch, self.lsn);
        if Acknowledged::read(dir)?.is_none_or(is_lower) { self.write(dir) } else { Ok(()) }
    }
}

/// Raises the mark of a master, which has begun, until `stop`.
pub async fn keep_acknowledged(engine: Engine, dir: PathBuf, mut stop: watch::Receiver<bool>) {
    let mut written = None;
    loop {
        let is_over = tokio::select! {
            () = tokio::time::sleep(WRITE_EVERY) => false,
            _ = stop.wait_for(|stop| *stop) => true,
        };
        let now = Acknowledged { epoch: engine.trail().epoch(), lsn: engine.reached_hot() };
        if now.lsn > Lsn(0) && written != Some(now) {
            let dir = dir.clone();
            match tokio::task::spawn_blocking(move || now.raise(&dir)).await {
                Ok(Ok(())) => written = Some(now),
                Ok(Err(error)) => tracing::warn!("cannot record up to where commits were acknowledged: {error}"),
                Err(error) => tracing::error!("the task that records what was acknowledged panicked: {error}"),
            }
        }
        if is_over {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_and_what_is_wrong_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Acknowledged::read(dir.path()).unwrap(), None);
        let mark = Acknowledged { epoch: Epoch(7), lsn: Lsn(67_190_784) };
        mark.write(dir.path()).unwrap();
        assert_eq!(std::fs::read_to_string(dir.path().join(NAME)).unwrap(), "7 67190784\n");
        assert_eq!(Acknowledged::read(dir.path()).unwrap(), Some(mark));
        // The first mark is the end of the trail, which may be higher than what has reached a standby by then.
        Acknowledged { lsn: Lsn(5), ..mark }.raise(dir.path()).unwrap();
        assert_eq!(Acknowledged::read(dir.path()).unwrap(), Some(mark));
        let next = Acknowledged { epoch: Epoch(8), lsn: Lsn(5) };
        next.raise(dir.path()).unwrap();
        assert_eq!(Acknowledged::read(dir.path()).unwrap(), Some(next));
        for bad in ["", "7", "7 x", "x 7", "7 8 9"] {
            std::fs::write(dir.path().join(NAME), bad).unwrap();
            assert!(Acknowledged::read(dir.path()).is_err(), "{bad}");
        }
    }
}
