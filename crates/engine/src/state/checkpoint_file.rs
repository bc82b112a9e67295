//! The file `checkpoints` of a data directory: what this node knows of its own files, which the trail of another node cannot contain.
//!
//! A standby's trail is its master's, byte for byte, so the checkpoint records in it speak of the master's files. A
//! standby keeps its own here. A directory that was never a standby's has no such file: every record in its trail is its
//! own.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | "HFLOCALC" |
//! | 8 | 2 | format version: 1, or 2 with the list's end |
//! | 10 | 2 | zero |
//! | 12 | 4 | number of volumes |
//! | 16 | 8 | own from: checkpoint records in the trail from this LSN on are this node's own; 0 while it is a standby |
//! | 24 | 8 | listed to: what the trail records below this LSN about new and dropped databases is in the list of databases |
//! | 32 | 8 | whole from: a base copy is consistent only with the trail up to this LSN |
//! | 40 | 8 | only in version 2: list's end: the list of databases may hold what the trail has below this LSN |
//! | 40 or 48 | 48 each | the volumes, by id |
//! | | 4 | CRC-32C of all before |
//!
//! A volume:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 4 | volume |
//! | 4 | 4 | zero |
//! | 8 | 8 | number of the last batch in its file |
//! | 16 | 8 | LSN at which redo starts |
//! | 24 | 8 | size of the file in bytes |
//! | 32 | 8 | modification time of the file, nanoseconds since 1970, signed |
//! | 40 | 8 | end: everything in the file is in the trail below this LSN; 0 for a file of a base copy |
//!
//! A former master's list holds databases, parameters and roles that its trail may lose when it is cut back to the new master's:
//! its file has version 2. All others are written in version 1, which earlier releases read.
//!
//! Numbers are little-endian. The file is replaced as a whole ([`holdfast_seams::replace`]).
//!
//! Failure: damage is refused at the start. The next step is a new base copy, because a standby has nothing that its master
//! lacks.

use crate::state::error::OpenError;
use holdfast_seams::{Disk, read_whole, replace};
use holdfast_types::record::Checkpoint;
use holdfast_types::{Lsn, VolumeId};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"HFLOCALC";
/// The newest format that this program reads.
const VERSION: u16 = 2;
/// Without the list's end.
const VERSION_PLAIN: u16 = 1;
const HEAD_BYTES: usize = 40;
const VOLUME_BYTES: usize = 48;
/// A million volumes.
const BYTES_MAX: u64 = 48 << 20;

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointFile {
    /// `None`: the node is a standby, and no record in the trail is its own.
    pub own_from: Option<Lsn>,
    pub listed_to: Lsn,
    pub whole_from: Lsn,
    /// Of a former master: everything in the list of databases is in the trail below this; 0 where `listed_to` says it.
    pub list_end: Lsn,
    pub volumes: BTreeMap<VolumeId, LocalCheckpoint>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalCheckpoint {
    pub checkpoint: Checkpoint,
    /// Everything in the file is in the trail below this; 0 for a file of a base copy, which may be ahead of it.
    pub end: Lsn,
}

pub fn path(dir: &Path) -> PathBuf {
    dir.join("checkpoints")
}

impl CheckpointFile {
    pub fn is_standby(&self) -> bool {
        self.own_from.is_none()
    }

    /// Everything in the files is in the trail below this, base copies apart.
    pub fn files_end(&self) -> Lsn {
        self.volumes.values().map(|v| v.end).max().unwrap_or_default()
    }

    /// Finds a file, or the list of databases, that holds more than the trail up to `end`: the trail was cut back too
    /// far for it. The list of an incomplete base copy may be ahead, as its files are.
    pub fn refuse_ahead(&self, dir: &Path, end: Lsn) -> Result<(), OpenError> {
        let file = self.volumes.values().find(|v| v.end > end);
        let file = file.map(|v| (format!("the file of volume {}", v.checkpoint.volume), v.end));
        let listed = self.listed_to.max(self.list_end);
        let list = (self.whole_from <= end && listed > end).then(|| ("the list of databases".to_owned(), listed));
        match file.or(list) {
            Some((what, holds)) => {
                Err(OpenError::AheadOfTrail { path: dir.display().to_string(), what, holds, trail: end })
            }
            None => Ok(()),
        }
    }

    /// A base copy whose trail has not advanced far enough.
    pub fn refuse_not_whole(&self, dir: &Path, end: Lsn) -> Result<(), OpenError> {
        if self.whole_from <= end {
            return Ok(());
        }
        Err(OpenError::NotWhole { path: dir.display().to_string(), needed: self.whole_from, trail: end })
    }

    /// Reads the file; `None` when there is none.
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<CheckpointFile>, OpenError> {
        let path = path(dir);
        let io = |source| OpenError::Io { what: "read", path: path.display().to_string(), source };
        let Some(bytes) = read_whole(disk, &path, BYTES_MAX).map_err(io)? else { return Ok(None) };
        let refuse = |message: &str| OpenError::Local { path: path.display().to_string(), message: message.to_owned() };
        CheckpointFile::decode(&bytes).map(Some).map_err(refuse)
    }

    /// Replaces the file.
    pub fn write(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        Ok(replace(disk, &path(dir), &self.encode())?)
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + VOLUME_BYTES * self.volumes.len() + 4);
        bytes.extend_from_slice(&MAGIC);
        let plain = self.list_end <= self.listed_to;
        bytes.extend_from_slice(&if plain { VERSION_PLAIN } else { VERSION }.to_le_bytes());
        bytes.extend_from_slice(&[0; 2]);
        bytes.extend_from_slice(&(self.volumes.len() as u32).to_le_bytes());
        for lsn in [self.own_from.unwrap_or_default(), self.listed_to, self.whole_from] {
            bytes.extend_from_slice(&lsn.0.to_le_bytes());
        }
        if !plain {
            bytes.extend_from_slice(&self.list_end.0.to_le_bytes());
        }
        for LocalCheckpoint { checkpoint: c, end } in self.volumes.values() {
            bytes.extend_from_slice(&c.volume.0.to_le_bytes());
            bytes.extend_from_slice(&[0; 4]);
            for number in [c.number, c.redo_start.0, c.file_size_bytes, c.file_mtime_ns as u64, end.0] {
                bytes.extend_from_slice(&number.to_le_bytes());
            }
        }
        let sum = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Result<CheckpointFile, &'static str> {
        let short = "it is too short";
        let (content, sum) = bytes.split_last_chunk::<4>().ok_or(short)?;
        if content.len() < HEAD_BYTES || content[..8] != MAGIC {
            return Err("it does not begin with the header of a checkpoints file");
        }
        if u32::from_le_bytes(*sum) != crc32c::crc32c(content) {
            return Err("its checksum does not match its bytes");
        }
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| content[at + i]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| content[at + i]));
        if u32_at(8) > u32::from(VERSION) {
            return Err("it was written by a newer release; use that release");
        }
        let head = if u32_at(8) > u32::from(VERSION_PLAIN) { HEAD_BYTES + 8 } else { HEAD_BYTES };
        if content.len() != head + VOLUME_BYTES * u32_at(12) as usize {
            return Err(short);
        }
        let volume = |at: usize| LocalCheckpoint {
            checkpoint: Checkpoint {
                volume: VolumeId(u32_at(at)),
                number: u64_at(at + 8),
                redo_start: Lsn(u64_at(at + 16)),
                file_size_bytes: u64_at(at + 24),
                file_mtime_ns: u64_at(at + 32) as i64,
            },
            end: Lsn(u64_at(at + 40)),
        };
        let volumes = (head..content.len()).step_by(VOLUME_BYTES).map(volume);
        Ok(CheckpointFile {
            own_from: Some(Lsn(u64_at(16))).filter(|lsn| lsn.0 > 0),
            listed_to: Lsn(u64_at(24)),
            whole_from: Lsn(u64_at(32)),
            list_end: if head > HEAD_BYTES { Lsn(u64_at(40)) } else { Lsn(0) },
            volumes: volumes.map(|v| (v.checkpoint.volume, v)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local() -> CheckpointFile {
        let checkpoint = Checkpoint {
            volume: VolumeId(3),
            number: 77,
            redo_start: Lsn(0x11000),
            file_size_bytes: 8192,
            file_mtime_ns: -1,
        };
        let volume = LocalCheckpoint { checkpoint, end: Lsn(0x12000) };
        CheckpointFile {
            own_from: Some(Lsn(0x13000)),
            listed_to: Lsn(0x10000),
            whole_from: Lsn(0x10800),
            list_end: Lsn(0),
            volumes: [(VolumeId(3), volume)].into(),
        }
    }

    #[test]
    fn golden_bytes() {
        let bytes = local().encode();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "48464c4f43414c430100000001000000003001000000000000000100000000000008010000000000\
             03000000000000004d0000000000000000100100000000000020000000000000ffffffffffffffff0020010000000000\
             c24cc09d"
        );
        assert_eq!(CheckpointFile::decode(&bytes), Ok(local()));
        let standby = CheckpointFile { own_from: None, ..local() };
        assert_eq!(CheckpointFile::decode(&standby.encode()), Ok(standby));
        let former = CheckpointFile { own_from: None, list_end: Lsn(0x14000), ..local() };
        let hex: String = former.encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "48464c4f43414c430200000001000000000000000000000000000100000000000008010000000000\
             0040010000000000\
             03000000000000004d0000000000000000100100000000000020000000000000ffffffffffffffff0020010000000000\
             e6bad904"
        );
        assert_eq!(CheckpointFile::decode(&former.encode()), Ok(former));
    }

    #[test]
    fn what_holds_more_than_the_trail_is_refused() {
        let dir = Path::new("/data");
        let refused = |local: &CheckpointFile, end| local.refuse_ahead(dir, Lsn(end)).err().map(|e| e.to_string());
        assert_eq!(refused(&local(), 0x12000), None);
        assert!(refused(&local(), 0x11fff).is_some_and(|why| why.contains("the file of volume 3")));
        let list = CheckpointFile { listed_to: Lsn(0x12800), ..local() };
        assert!(refused(&list, 0x12000).is_some_and(|why| why.contains("the list of databases")));
        assert_eq!(refused(&list, 0x12800), None);
        let former = CheckpointFile { list_end: Lsn(0x12800), ..local() };
        assert!(refused(&former, 0x12000).is_some_and(|why| why.contains("the list of databases")));
        assert_eq!(refused(&former, 0x12800), None);
        let copied = CheckpointFile { whole_from: Lsn(0x13000), ..list };
        assert_eq!(refused(&copied, 0x12000), None, "a base copy that is not whole");
    }

    #[test]
    fn damage_and_newer_formats_are_refused() {
        let good = local().encode();
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            assert!(CheckpointFile::decode(&bytes).is_err(), "byte {at}");
            assert!(CheckpointFile::decode(&good[..at]).is_err(), "{at} bytes");
        }
        let mut newer = good[..good.len() - 4].to_vec();
        newer[8] = 3;
        let sum = crc32c::crc32c(&newer);
        newer.extend_from_slice(&sum.to_le_bytes());
        assert!(CheckpointFile::decode(&newer).unwrap_err().contains("newer"));
    }
}
