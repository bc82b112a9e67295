//! Mounting a disk and taking it down.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::disk::{Disk, Options};
use crate::fuse::FileSystem;
use crate::status::Status;

/// Requests served at once; more wait in the kernel, as in a device's queue.
const THREADS: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum MountError {
    #[error("cannot use {} as backing directory: {source}", path.display())]
    Backing { path: PathBuf, source: io::Error },
    #[error(
        "cannot mount at {}: {source}; it must be an empty directory, and mounting needs /dev/fuse and root (or \
         fusermount3)", path.display()
    )]
    Mount { path: PathBuf, source: io::Error },
    #[error("cannot mount at {}: it is, holds, or lies in the backing directory {}", path.display(), backing.display())]
    Inside { path: PathBuf, backing: PathBuf },
}

/// A mounted disk. Dropping it unmounts, with everything made durable as at a clean shutdown.
pub struct UnsafeDisk {
    disk: Arc<Disk>,
    mountpoint: PathBuf,
    session: Option<BackgroundSession>,
}

impl UnsafeDisk {
    /// Mounts at `mountpoint`, a directory that exists; a mount left behind there by a process that died is removed.
    pub fn mount(mountpoint: &Path, options: Options) -> Result<UnsafeDisk, MountError> {
        remove_dead_mount(mountpoint);
        let at = |source| MountError::Mount { path: mountpoint.to_owned(), source };
        let path = options.backing.clone();
        let backing = |source| MountError::Backing { path: path.clone(), source };
        let real = mountpoint.canonicalize().map_err(at)?;
        let real_backing = options.backing.canonicalize().map_err(backing)?;
        if real.starts_with(&real_backing) || real_backing.starts_with(&real) {
            return Err(MountError::Inside { path: real, backing: real_backing });
        }
        let disk = Arc::new(Disk::open(options).map_err(backing)?);
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("unsafe-disk".into()),
            MountOption::Subtype("unsafe-disk".into()),
            MountOption::DefaultPermissions,
            MountOption::NoAtime,
        ];
        config.acl = if disk.options().allow_other { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(THREADS);
        let session = Session::new(FileSystem { disk: disk.clone() }, &real, &config).and_then(Session::spawn);
        Ok(UnsafeDisk { disk, mountpoint: real, session: Some(session.map_err(at)?) })
    }

    /// The mounted directory.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// The disk behind it: to cut the power, bring it back, and look.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    pub fn status(&self) -> Status {
        self.disk.status()
    }

    /// Whether it is still mounted; another process may have unmounted it.
    pub fn is_served(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.guard.is_finished())
    }

    fn unmount(&mut self) {
        if let Some(session) = self.session.take() {
            // Nothing is durable on a disk without power, and nothing needs to be.
            let _ = self.disk.sync_all();
            // Also with files still open. Who is not root leaves it to the session, which asks fusermount.
            match rustix::mount::unmount(&self.mountpoint, UnmountFlags::DETACH) {
                Ok(()) | Err(Errno::PERM) => {}
                Err(_) if session.guard.is_finished() => {}
                Err(error) => tracing::warn!("cannot unmount {}: {error}", self.mountpoint.display()),
            }
            drop(session);
        }
    }
}

impl Drop for UnsafeDisk {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// Unmounts what a process that is gone left mounted: everything below says ENOTCONN until then. True when it did.
pub fn remove_dead_mount(mountpoint: &Path) -> bool {
    let dead = |error: io::Error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error());
    if !std::fs::metadata(mountpoint).is_err_and(dead) {
        return false;
    }
    let unmounted = rustix::mount::unmount(mountpoint, UnmountFlags::DETACH);
    if let Err(error) = unmounted {
        tracing::warn!("cannot remove the dead mount at {}: {error}", mountpoint.display());
    }
    unmounted.is_ok()
}

/// Why no disk can be mounted here; `None` when one can.
pub fn cannot_mount() -> Option<String> {
    let device = std::fs::File::options().read(true).write(true).open("/dev/fuse");
    if let Err(error) = device {
        return Some(format!("/dev/fuse cannot be opened: {error}"));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let helper = std::env::split_paths(&path)
        .any(|directory| directory.join("fusermount3").is_file() || directory.join("fusermount").is_file());
    let may = helper || rustix::process::geteuid().is_root();
    (!may).then(|| "only root can mount without fusermount3 (package fuse3)".to_owned())
}
