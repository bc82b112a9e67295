//! The records about a mirror, on both disks: either may be the one that is left.
//!
//! `mirror_of.toml` in the mirror's directory; unless it says `promoted`, the directory cannot be served:
//!
//! ```toml
//! format = 1                     # refused when newer
//! main = "/first/disk/holdfast"  # the directory it is the mirror of
//! copy = "9f86d081884c7d65"      # the base copy it began with; the main directory has the same number
//! state = "following"            # "copying": not complete; "following"; "left_behind"; "promoting"; "promoted"
//! away = "wait"                  # the setting mirror_away when it was last written
//! seen_unix_ms = 1732268400000   # it had everything acknowledged at this time; 0: never yet
//! anchor_lsn = 69632             # until its trail reaches this position, its files are not consistent
//! anchor_checksum = 305419896
//! ```
//!
//! `mirror.toml` in the main directory; durable *before* the first commit is acknowledged that the mirror does not have:
//!
//! ```toml
//! format = 1
//! mirror = "/second/disk/holdfast"
//! copy = "9f86d081884c7d65"
//! state = "in_service"           # "copying"; "in_service": it has everything acknowledged; "left_behind"; "promoted"
//! since_unix_ms = 1732268400000  # of the state
//! lsn = 0                        # left behind: the mirror had everything below, and perhaps nothing more
//! epoch = 0                      # promoted: from this epoch on the mirror has replaced this directory
//! distrusted = "why"             # only after its disk failed: it is not trusted until it was copied again
//! ```
//!
//! Each file is replaced atomically. Failure: with a file that cannot be read, whatever depends on it is refused.

use holdfast_replication::settings::Away;
use holdfast_seams::{Create, Disk, OpenHow, RealDisk};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};

const FORMAT: u32 = 1;
/// Longest file that is read.
const BYTES_MAX: u64 = 64 << 10;

pub(super) const MIRROR_OF: &str = "mirror_of.toml";
const MIRROR: &str = "mirror.toml";

/// The state of a mirror's directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CopyState {
    /// A base copy is under way: there is nothing to promote.
    Copying,
    Following,
    /// The server continued without it.
    LeftBehind,
    /// A promotion has begun and has to be completed.
    Promoting,
    /// It is a normal data directory now.
    Promoted,
}

/// `mirror_of.toml`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MirrorOf {
    pub(super) format: u32,
    pub main: PathBuf,
    pub copy: String,
    pub state: CopyState,
    pub away: Away,
    pub seen_unix_ms: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub anchor_lsn: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub anchor_checksum: u32,
}

/// The mirror's state as the main directory knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordState {
    Copying,
    /// Everything acknowledged is also on the mirror.
    InService,
    LeftBehind,
    Promoted,
}

/// `mirror.toml`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub(super) format: u32,
    pub mirror: PathBuf,
    pub copy: String,
    pub state: RecordState,
    pub since_unix_ms: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lsn: u64,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub epoch: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distrusted: Option<String>,
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl MirrorOf {
    /// For a directory into which a base copy begins.
    pub fn begin(main: &Path, copy: &str, away: Away) -> MirrorOf {
        MirrorOf {
            format: FORMAT,
            main: main.to_owned(),
            copy: copy.to_owned(),
            state: CopyState::Copying,
            away,
            seen_unix_ms: 0,
            anchor_lsn: 0,
            anchor_checksum: 0,
        }
    }

    /// Where the file is.
    pub(super) fn path(dir: &Path) -> PathBuf {
        dir.join(MIRROR_OF)
    }

    /// Reads the file; `None`: the directory is not a mirror.
    pub fn read(dir: &Path) -> io::Result<Option<MirrorOf>> {
        MirrorOf::read_file(&MirrorOf::path(dir))
    }

    /// Reads such a file under another name.
    pub(super) fn read_file(path: &Path) -> io::Result<Option<MirrorOf>> {
        let found: Option<MirrorOf> = read(path)?;
        found.map(|of| check_format(path, of.format).map(|()| of)).transpose()
    }

    pub fn write(&self, dir: &Path) -> io::Result<()> {
        replace(dir, MIRROR_OF, self)
    }
}

impl Record {
    /// For a mirror that is about to be copied.
    pub fn begin(mirror: &Path, copy: &str) -> Record {
        Record {
            format: FORMAT,
            mirror: mirror.to_owned(),
            copy: copy.to_owned(),
            state: RecordState::Copying,
            since_unix_ms: 0,
            lsn: 0,
            epoch: 0,
            distrusted: None,
        }
    }

    /// Reads the file; `None`: the server had no mirror yet.
    pub fn read(dir: &Path) -> io::Result<Option<Record>> {
        let found: Option<Record> = read(&dir.join(MIRROR))?;
        found.map(|record| check_format(&dir.join(MIRROR), record.format).map(|()| record)).transpose()
    }

    pub fn write(&self, dir: &Path) -> io::Result<()> {
        replace(dir, MIRROR, self)
    }
}

fn about(path: &Path, kind: ErrorKind, what: impl std::fmt::Display) -> io::Error {
    io::Error::new(kind, format!("{}: {what}", path.display()))
}

fn check_format(path: &Path, found: u32) -> io::Result<()> {
    let what = || format!("format {found} is newer than this program knows ({FORMAT})");
    if found <= FORMAT { Ok(()) } else { Err(about(path, ErrorKind::InvalidData, what())) }
}

fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let disk = RealDisk::new();
    let named = |e: io::Error| about(path, e.kind(), format_args!("cannot be read: {e}"));
    let Some(metadata) = disk.metadata(path).map_err(named)? else { return Ok(None) };
    if metadata.len_bytes > BYTES_MAX {
        return Err(about(path, ErrorKind::InvalidData, format_args!("longer than {BYTES_MAX} bytes")));
    }
    let mut bytes = vec![0; metadata.len_bytes as usize];
    let file = disk.open(path, &OpenHow::default()).map_err(named)?;
    let count = file.read_at(&mut bytes, 0).map_err(named)?;
    let text = String::from_utf8_lossy(&bytes[..count]);
    let parsed = toml::from_str(&text);
    parsed.map(Some).map_err(|e| about(path, ErrorKind::InvalidData, e.to_string().trim_end()))
}

fn replace(dir: &Path, name: &str, content: &impl Serialize) -> io::Result<()> {
    let text = toml::to_string(content).map_err(io::Error::other)?;
    replace_text(dir, name, &text)
}

/// Writes a file that nothing refers to yet, and syncs it. The caller syncs the directory.
pub(super) fn write_synced(path: &Path, of: &MirrorOf) -> io::Result<()> {
    let named = |e: io::Error| about(path, e.kind(), format_args!("cannot be written: {e}"));
    let text = toml::to_string(of).map_err(io::Error::other)?;
    let disk = RealDisk::new();
    if disk.metadata(path).map_err(named)?.is_some() {
        disk.remove(path).map_err(named)?;
    }
    let file = disk.open(path, &OpenHow { create: Create::New, write: true, ..OpenHow::default() }).map_err(named)?;
    file.write_at(&[IoSlice::new(text.as_bytes())], 0).and_then(|()| file.sync_all()).map_err(named)
}

/// Replaces a small file of a directory, durably.
pub fn replace_text(dir: &Path, name: &str, text: &str) -> io::Result<()> {
    let path = dir.join(name);
    let replaced = holdfast_seams::replace(&RealDisk::new(), &path, text.as_bytes()).map_err(io::Error::from);
    replaced.map_err(|e| about(&path, e.kind(), format_args!("cannot be written: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files_stand_as_described_and_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert_eq!((MirrorOf::read(dir).unwrap(), Record::read(dir).unwrap()), (None, None));
        let mut of = MirrorOf::begin("/a".as_ref(), "9f86", Away::GoOn);
        of.write(dir).unwrap();
        let golden =
            "format = 1\nmain = \"/a\"\ncopy = \"9f86\"\nstate = \"copying\"\naway = \"go_on\"\nseen_unix_ms = 0\n";
        assert_eq!(std::fs::read_to_string(dir.join(MIRROR_OF)).unwrap(), golden);
        (of.state, of.anchor_lsn, of.anchor_checksum) = (CopyState::LeftBehind, 69632, 7);
        of.write(dir).unwrap();
        assert_eq!(MirrorOf::read(dir).unwrap(), Some(of));
        let mut record = Record::begin("/b".as_ref(), "9f86");
        record.write(dir).unwrap();
        let golden = "format = 1\nmirror = \"/b\"\ncopy = \"9f86\"\nstate = \"copying\"\nsince_unix_ms = 0\n";
        assert_eq!(std::fs::read_to_string(dir.join(MIRROR)).unwrap(), golden);
        (record.state, record.lsn) = (RecordState::LeftBehind, 8192);
        record.distrusted = Some("EIO".into());
        record.write(dir).unwrap();
        assert_eq!(Record::read(dir).unwrap(), Some(record));
    }

    #[test]
    fn what_cannot_be_understood_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let newer = "format = 2\nmirror = \"/b\"\ncopy = \"1\"\nstate = \"copying\"\nsince_unix_ms = 0\n";
        for bad in ["", "format = 1", "state = \"perhaps\"", newer, &"#".repeat(70_000)] {
            std::fs::write(dir.join(MIRROR), bad).unwrap();
            let error = Record::read(dir).unwrap_err().to_string();
            assert!(error.contains("mirror.toml"), "{error}");
        }
    }
}
