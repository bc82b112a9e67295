//! A mirror whose databases come from a dump, so that its server's disk is not read for a copy.
//!
//! The directory is marked as a mirror before it has anything. It has no number of a copy yet: the server gives it one when it
//! begins to follow, and until then nothing counts on it.
//!
//! Failure: a directory that cannot be a mirror of this server is refused before it is written.

use crate::directory::{MirrorRefused, NAME, trail_of};
use crate::records::{CopyState, MirrorOf};
use holdfast_replication::settings::Away;
use holdfast_replication::{CopyError, CopyTo, check_copy_target};
use holdfast_seams::{Disk, RealDisk};
use holdfast_standby::identity::Tip;
use holdfast_trail::TrailId;
use std::path::Path;

/// The trail that a mirror of the directory `main` has to have; `None`: the directory has none. Of its files only the last
/// segment is read, also while a server runs there.
pub fn trail_to_mirror(main: &Path, mirror: &Path) -> Result<Option<TrailId>, MirrorRefused> {
    if mirror.canonicalize().is_ok_and(|mirror| main.canonicalize().is_ok_and(|main| main == mirror)) {
        return Err(MirrorRefused::Same { mirror: mirror.to_owned() });
    }
    Ok(trail_of(main)?.map(|(trail, _)| trail))
}

/// Marks a directory as the mirror of `main`, whose history has a boxcar that ends at `anchor`.
pub fn mark_for_dump(main: &Path, mirror: &Path, anchor: Tip) -> Result<(), CopyError> {
    let failed = |source| CopyError::Directory { dir: mirror.to_owned(), source };
    check_copy_target(CopyTo { dir: mirror, name: NAME })?;
    let main = std::path::absolute(main).map_err(failed)?;
    RealDisk::new().create_dir(mirror).map_err(failed)?;
    let of = MirrorOf {
        state: CopyState::Following,
        anchor_lsn: anchor.lsn.0,
        anchor_checksum: anchor.checksum,
        ..MirrorOf::begin(&main, "", Away::Wait)
    };
    of.write(mirror).map_err(failed)
}
