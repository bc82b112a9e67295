//! `clock` in a data directory: a reading of the commit clock that no commit is later than which the trail has recycled.
//!
//! The clock continues behind the latest commit, and a dump says up to which moment it has commits. Both are found in the trail at a
//! start; of commits that are no longer in it this file tells. It is written before the trail recycles anything, at a clean stop,
//! and when a directory is made from a copy or a dump.
//!
//! ```text
//! format = 1
//! clock = 116866007040000000      # milliseconds since 1970-01-01 UTC, times 65536, and a counter
//! ```
//! Failure: a file that cannot be read refuses to open, by name; one that cannot be written keeps the trail.

use crate::state::error::OpenError;
use holdfast_seams::{Disk, read_whole, replace};
use holdfast_types::Hlc;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

const FORMAT: u32 = 1;
const NAME: &str = "clock";
const BYTES_MAX: u64 = 4096;

#[derive(Serialize, Deserialize)]
struct Content {
    format: u32,
    clock: u64,
}

pub fn path(dir: &Path) -> PathBuf {
    dir.join(NAME)
}

/// `None`: a directory of an earlier release, or one whose trail has recycled nothing.
pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Hlc>, OpenError> {
    let path = path(dir);
    let failed = |source| OpenError::Io { what: "read", path: path.display().to_string(), source };
    let Some(bytes) = read_whole(disk, &path, BYTES_MAX).map_err(failed)? else { return Ok(None) };
    let invalid = |what: String| OpenError::Io {
        what: "read",
        path: path.display().to_string(),
        source: io::Error::new(ErrorKind::InvalidData, what),
    };
    let text = String::from_utf8(bytes).map_err(|e| invalid(e.to_string()))?;
    let content: Content = toml::from_str(&text).map_err(|e| invalid(e.to_string()))?;
    match content.format {
        FORMAT => Ok(Some(Hlc(content.clock))),
        newer => Err(invalid(format!("it has format {newer}; this program reads format {FORMAT}"))),
    }
}

/// Writes the file durably.
pub fn write(disk: &dyn Disk, dir: &Path, clock: Hlc) -> io::Result<()> {
    let text = toml::to_string(&Content { format: FORMAT, clock: clock.0 }).map_err(io::Error::other)?;
    Ok(replace(disk, &path(dir), text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_seams::testing::FaultDisk;

    #[test]
    fn golden_and_damaged() {
        let (disk, dir) = (FaultDisk::new(1), Path::new("/data"));
        disk.create_dir(dir).unwrap();
        assert_eq!(read(&disk, dir).unwrap(), None);
        write(&disk, dir, Hlc(116_866_007_040_000_000)).unwrap();
        let text = read_whole(&disk, &path(dir), BYTES_MAX).unwrap().unwrap();
        assert_eq!(text, b"format = 1\nclock = 116866007040000000\n");
        assert_eq!(read(&disk, dir).unwrap(), Some(Hlc(116_866_007_040_000_000)));
        for bad in ["", "format = 2\nclock = 1\n", "format = 1\nclock = -1\n", "\u{0}"] {
            replace(&disk, &path(dir), bad.as_bytes()).unwrap();
            let error = read(&disk, dir).unwrap_err().to_string();
            assert!(error.contains("/data/clock"), "{error}");
        }
    }
}
