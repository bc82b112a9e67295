//! The mark of a promotion in the mirror's directory, written so that neither its end nor its withdrawal needs room on the
//! disk: a promotion that fails because the disk is full leaves a mirror that its server can follow again.
//!
//! | step | `mirror_of.toml` | `mirror_of.toml.promoted` | `mirror_of.toml.before` |
//! |---|---|---|---|
//! | before | at work | | |
//! | 1 [`PromotionMark::begin`] | at work | promoted | promoting |
//! | 2 the two are exchanged | promoting | promoted | at work |
//! | 3 [`PromotionMark::complete`] | promoted, by a rename | | removed |
//! | or [`PromotionMark::withdraw`] | at work, by an exchange | removed | removed |
//!
//! Each step is durable before the next one begins. A crash after step 2 leaves `promoting`, with which neither directory is
//! served; the promotion is repeated, and what was there before is still known.
//!
//! Failure: when step 1 or 2 fails, `mirror_of.toml` is as it was.

use crate::records::{CopyState, MirrorOf, write_synced};
use holdfast_seams::{Disk, RealDisk};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

const PROMOTED: &str = "mirror_of.toml.promoted";
const BEFORE: &str = "mirror_of.toml.before";

/// A promotion that has begun.
pub struct PromotionMark<'a> {
    dir: &'a Path,
    /// What the directory was before is known, so that the promotion can be withdrawn.
    has_before: bool,
}

impl<'a> PromotionMark<'a> {
    /// Marks the directory, whose file says `of`, as being promoted.
    pub fn begin(dir: &'a Path, of: &MirrorOf) -> io::Result<PromotionMark<'a>> {
        let disk = RealDisk::new();
        let (now, before) = (MirrorOf::path(dir), dir.join(BEFORE));
        write_synced(&dir.join(PROMOTED), &MirrorOf { state: CopyState::Promoted, ..of.clone() })?;
        if of.state == CopyState::Promoting {
            // An earlier attempt was interrupted.
            let kept = MirrorOf::read_file(&before).ok().flatten();
            let has_before = kept.is_some_and(|kept| kept.copy == of.copy && kept.state != CopyState::Promoting);
            return disk.sync_dir(dir).map(|()| PromotionMark { dir, has_before });
        }
        write_synced(&before, &MirrorOf { state: CopyState::Promoting, ..of.clone() })?;
        disk.sync_dir(dir)?;
        disk.exchange(&before, &now)?;
        disk.sync_dir(dir)?;
        Ok(PromotionMark { dir, has_before: true })
    }

    /// The directory is a normal data directory from now on.
    pub fn complete(self) -> io::Result<()> {
        let disk = RealDisk::new();
        disk.rename(&self.dir.join(PROMOTED), &MirrorOf::path(self.dir))?;
        disk.sync_dir(self.dir)?;
        self.remove(BEFORE)
    }

    /// The directory is what it was before. False: that is not known, and it stays marked.
    pub fn withdraw(self) -> io::Result<bool> {
        if !self.has_before {
            return Ok(false);
        }
        let disk = RealDisk::new();
        disk.exchange(&self.dir.join(BEFORE), &MirrorOf::path(self.dir))?;
        disk.sync_dir(self.dir)?;
        self.remove(BEFORE).and_then(|()| self.remove(PROMOTED))?;
        Ok(true)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let path: PathBuf = self.dir.join(name);
        match RealDisk::new().remove(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_replication::settings::Away;

    #[test]
    fn it_is_completed_withdrawn_or_repeated() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path();
        let of = MirrorOf { state: CopyState::Following, ..MirrorOf::begin("/a".as_ref(), "1", Away::Wait) };
        of.write(dir).unwrap();
        let now = || MirrorOf::read(dir).unwrap().unwrap();
        let names = || std::fs::read_dir(dir).unwrap().count();
        let mark = PromotionMark::begin(dir, &of).unwrap();
        assert_eq!(now().state, CopyState::Promoting);
        assert!(mark.withdraw().unwrap());
        assert_eq!((now(), names()), (of.clone(), 1));
        // A crash: the next attempt still knows what there was.
        let _ = PromotionMark::begin(dir, &of).unwrap();
        assert!(PromotionMark::begin(dir, &now()).unwrap().withdraw().unwrap());
        assert_eq!(now(), of);
        let _ = PromotionMark::begin(dir, &of).unwrap();
        PromotionMark::begin(dir, &now()).unwrap().complete().unwrap();
        assert_eq!((now().state, names()), (CopyState::Promoted, 1));
        // A mark of an earlier program has nothing to return to.
        MirrorOf { state: CopyState::Promoting, ..of }.write(dir).unwrap();
        assert!(!PromotionMark::begin(dir, &now()).unwrap().withdraw().unwrap());
        assert_eq!(now().state, CopyState::Promoting);
    }
}
