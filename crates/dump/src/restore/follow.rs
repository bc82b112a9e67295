//! A standby or a mirror from a dump and the archive, so that it does not load its master with a copy.
//!
//! | step | a kill after it leaves |
//! |---|---|
//! | the file `restoring` is written, dump and archive are looked up | a directory that no server opens; the command begins again there |
//! | `standby.toml` and the settings of a new standby, or `mirror_of.toml`, are written | the same |
//! | the dump's pages are laid, the archive's trail is applied, as for a restore | the same |
//! | `restoring` is removed | a standby's or mirror's directory, which follows its master from where the archive ends |
//!
//! It keeps the trail's id: it belongs to that history. Its databases are whole when it has what the dump shows, and its master
//! refuses it if that is not in the master's own history. The dump's settings are not taken: they are another node's.
//!
//! Failure: as of a restore. A master that no longer has the trail from the archive's end on, and has no archive, refuses the
//! standby when it connects.

use super::error::RestoreError;
use super::mark::AtWork;
use super::options::{RestoreOptions, Step, io_error};
use super::{RESTORING, lay, look_up, roll};
use crate::error::DumpError;
use crate::manifest::Head;
use crate::repository::Repository;
use holdfast_engine::{BaseReceiver, Options};
use holdfast_mirror::trail_to_mirror;
use holdfast_replication::settings::SettingsFile;
use holdfast_replication::{CopyError, CopyTo, check_copy_target, mark_for_dump};
use holdfast_seams::{Disk, RealDisk};
use holdfast_standby::identity::Tip;
use holdfast_types::Lsn;
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// The standby that is to be.
pub struct NewStandby<'a> {
    /// HOST:PORT of its master, which is not reached yet.
    pub from: &'a str,
    pub name: &'a str,
    /// A node's certificates, which are copied into the directory.
    pub certificates: Option<&'a Path>,
    pub settings: &'a dyn SettingsFile,
}

/// What is made of a dump.
pub enum NewFollower<'a> {
    Standby(NewStandby<'a>),
    /// The mirror of this data directory, of which only the trail's id is read.
    Mirror {
        main: &'a Path,
    },
}

/// A standby's or mirror's directory.
#[derive(Serialize, Debug)]
pub struct FollowerMade {
    pub dir: String,
    pub dump: String,
    /// Where it will begin to follow.
    pub lsn: u64,
    pub clock_unix_ms: u64,
    pub databases: usize,
    pub bytes: u64,
    pub trail_bytes: u64,
    pub seconds: f64,
}

impl NewFollower<'_> {
    /// The trail that it has to have, where that is known; changes nothing.
    fn trail(&self, dir: &Path) -> Result<Option<String>, RestoreError> {
        let NewFollower::Mirror { main } = self else { return Ok(None) };
        let trail = trail_to_mirror(main, dir).map_err(Box::new)?;
        let trail = trail.ok_or_else(|| RestoreError::NoMain { dir: main.display().to_string() })?;
        Ok(Some(trail.to_string()))
    }

    /// Marks the directory, before it has anything.
    fn mark(&self, dir: &Path, head: &Head) -> Result<(), CopyError> {
        let anchor = Tip { lsn: Lsn(head.lsn()), checksum: head.shown_checksum };
        match self {
            NewFollower::Standby(NewStandby { from, name, certificates, settings }) => {
                mark_for_dump(from, CopyTo { dir, name }, anchor, *certificates, *settings)
            }
            NewFollower::Mirror { main } => holdfast_mirror::mark_for_dump(main, dir, anchor),
        }
    }
}

/// Makes the directory of a standby or mirror. Blocks; `progress` is called often.
pub fn follower_from_dump(
    repository: &Repository,
    options: &RestoreOptions<'_>,
    follower: &NewFollower<'_>,
    progress: &(dyn Fn(Step) + Sync),
) -> Result<FollowerMade, DumpError> {
    let (began, disk) = (Instant::now(), Arc::new(RealDisk::new()));
    let trail = follower.trail(options.dir)?;
    let options = &RestoreOptions { trail: trail.as_deref().or(options.trail), ..*options };
    // What an interrupted attempt has left is removed.
    if !options.dir.join(RESTORING).exists() {
        let name = if let NewFollower::Standby(standby) = follower { standby.name } else { holdfast_mirror::NAME };
        check_copy_target(CopyTo { dir: options.dir, name })?;
    }
    let at_work = AtWork::begin(&*disk, options.dir)?;
    let (choice, manifest, chain) = at_work.keep_if(&*disk, look_up(repository, options))?;
    at_work.clear(&*disk)?;
    let head = &manifest.head;
    follower.mark(options.dir, head)?;
    let receiver = BaseReceiver::begin(disk.clone(), options.dir, head.plan.clone())?;
    let laid = lay::lay(repository, &manifest, &choice.dump, &*disk, options, progress)?;
    lay::adopt(receiver, laid)?;
    let engine = Options { segment_bytes: head.plan.segment_bytes, restoring: true, ..Options::default() };
    let mut reached = roll::Reached { lsn: head.lsn(), clock_unix_ms: head.clock_unix_ms(), bytes: 0 };
    if let (Some(chain), Some(store)) = (&chain, &choice.archive) {
        reached =
            roll::roll_forward(&**store, chain, (&choice.dump, head), options, &engine, (roll::Reads::Fast, progress))?;
    }
    end(&*disk, options.dir)?;
    Ok(FollowerMade {
        dir: options.dir.display().to_string(),
        dump: choice.dump,
        lsn: reached.lsn,
        clock_unix_ms: reached.clock_unix_ms,
        databases: head.plan.volumes.len(),
        bytes: head.bytes,
        trail_bytes: reached.bytes,
        seconds: began.elapsed().as_secs_f64(),
    })
}

fn end(disk: &dyn Disk, dir: &Path) -> Result<(), RestoreError> {
    let mark = dir.join(RESTORING);
    disk.remove(&mark).map_err(io_error("remove", &mark))?;
    disk.sync_dir(dir).map_err(io_error("sync", dir))
}
