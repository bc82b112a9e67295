//! The data directory in the file system: whether a directory is one, who can read it, and what a failed first start
//! leaves behind.
//!
//! | the directory | a start |
//! |---|---|
//! | does not exist, or is empty | makes it, mode 0700; removed again when the start fails before there is more than settings in it |
//! | is a data directory, mode 0700, files 0600 | uses it |
//! | is a data directory that other users can read (earlier versions made such) | tightens it, and logs that |
//! | does not exist, is empty or has no databases, and was more than a server by itself: `DIR.identity` next to it | refuses |
//! | does not exist or is empty, on a disk of /etc/fstab that is not mounted | refuses |
//! | holds certificates only | refuses: an interrupted `holdfast standby create` leaves them, or an operator before it |
//! | belongs to another user | refuses, as PostgreSQL does |
//! | holds a restore that did not complete | refuses |
//! | holds other files | refuses, and changes nothing |
//!
//! Failure: a file that belongs to another user cannot be tightened; it is named in a warning.

mod unmounted;

use crate::admission::{HBA_FILE, IDENT_FILE, SECRET_FILE, SHARED_FILE};
use crate::config::FILE_NAME;
use holdfast_replication::{CERTIFICATE_FILES, IdentityFile};
use rustix::fs::Mode;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// What other users could do with a file.
const OTHERS: u32 = 0o077;

/// Where `holdfast cert server` writes the server's certificate.
pub const TLS_CERTIFICATE: &str = "tls/server.crt";

/// A new file system has it.
const LOST_FOUND: &str = "lost+found";

/// What a failed start removes. Nothing else: another server may have been started on the directory meanwhile and have
/// acknowledged commits, and a control plane's directory holds votes.
const REMOVABLE: [&str; 9] = [
    FILE_NAME,
    "holdfast.toml.new",
    HBA_FILE,
    "pg_hba.conf.new",
    IDENT_FILE,
    "pg_ident.conf.new",
    SECRET_FILE,
    SHARED_FILE,
    "authentication_secret.new",
];

/// Why a directory is not used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    #[error("cannot read the directory {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "the directory {} is not empty and is not a data directory: it holds \"{found}\". Name an empty or a new directory \
         with --data",
        path.display()
    )]
    Foreign { path: PathBuf, found: String },
    #[error(
        "the directory {} holds a restore that did not complete. Run `holdfast restore` again, or remove the directory and \
         restore into another one",
        path.display()
    )]
    Restoring { path: PathBuf },
    #[error(
        "the data directory {} belongs to another user (uid {owner}). Start the server as that user, or give the directory \
         and its files to this one (uid {own}) with chown",
        path.display()
    )]
    Owner { path: PathBuf, owner: u32, own: u32 },
    #[error(
        "{dir} has no databases yet, but {note} records that it {what}: a new server is not made in its place. Mount the disk \
         that it is on. If its data is lost, {when_lost}. To begin with an empty server nevertheless: remove {note}",
        dir = dir.display(), note = note.display()
    )]
    Lost { dir: PathBuf, note: PathBuf, what: String, when_lost: String },
    #[error(
        "{dir} has no databases yet, and is on {point}, which /etc/fstab lists and which is not mounted: a new server is not \
         made on the disk below it. Mount {point}, or remove its line from /etc/fstab",
        dir = dir.display(), point = point.display()
    )]
    NotMounted { dir: PathBuf, point: PathBuf },
    #[error(
        "{dir} holds certificates and no databases, as an interrupted holdfast standby create leaves it: a new master is not \
         made from it. To make the standby: holdfast standby create --from HOST:PORT --data {dir}. To make a new master: write \
         {dir}/holdfast.toml with its node_listen first",
        dir = dir.display()
    )]
    OnlyCertificates { dir: PathBuf },
}

/// Files that this process makes are for its own user only, also those that a library makes.
pub fn private_umask() {
    rustix::process::umask(Mode::from_raw_mode(OTHERS));
}

/// Refuses a directory that holds something else than a data directory.
pub fn refuse_foreign(dir: &Path) -> Result<(), DataDirError> {
    if dir.join(holdfast_engine::RESTORING).exists() {
        return Err(DataDirError::Restoring { path: dir.to_owned() });
    }
    let mut names = names(dir).map_err(|source| DataDirError::Io { path: dir.to_owned(), source })?;
    // `holdfast cert server` may come before the first start.
    names.retain(|name| name != "tls" || !dir.join(TLS_CERTIFICATE).exists());
    match names.into_iter().next() {
        Some(found) if !is_data_directory(dir) => Err(DataDirError::Foreign { path: dir.to_owned(), found }),
        _ => Ok(()),
    }
}

/// Refuses to begin a new server in a directory without databases, where anything hints that it belongs to another node or to
/// one whose disk is away. Changes nothing.
pub fn refuse_lost(dir: &Path) -> Result<(), DataDirError> {
    let at = |source| DataDirError::Io { path: dir.to_owned(), source };
    let of_a_server = ["databases.toml", "standby.toml", "mirror_of.toml", "trail/control"];
    if of_a_server.iter().any(|file| dir.join(file).exists()) {
        return Ok(());
    }
    if let Some((note, was)) = IdentityFile::read(dir).map_err(at)? {
        let (what, when_lost) = (was.what(), was.when_lost(dir));
        return Err(DataDirError::Lost { dir: dir.to_owned(), note, what, when_lost });
    }
    let names = names(dir).map_err(at)?;
    if names.is_empty()
        && let Some(point) = unmounted::mount_point_above(dir)
    {
        return Err(DataDirError::NotMounted { dir: dir.to_owned(), point });
    }
    match names.as_slice() {
        [only] if only == "certificates" => Err(DataDirError::OnlyCertificates { dir: dir.to_owned() }),
        _ => Ok(()),
    }
}

/// By a file that nothing else has, from the first one that a start, an import, a base copy or `holdfast cert` makes on.
fn is_data_directory(dir: &Path) -> bool {
    let files =
        [FILE_NAME, "holdfast.toml.new", "databases.toml", "databases.toml.new", "standby.toml", "mirror_of.toml"];
    files.iter().any(|file| dir.join(file).is_file())
        || dir.join("trail/control").is_file()
        || CERTIFICATE_FILES.iter().all(|file| dir.join("certificates").join(file).is_file())
}

/// What is in it, sorted; of one that does not exist, nothing.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    let mut names: Vec<String> = names.collect::<io::Result<_>>()?;
    names.retain(|name| name != LOST_FOUND);
    names.sort_unstable();
    Ok(names)
}

/// What tightening has found.
#[derive(Default)]
struct Tightened {
    changed: usize,
    /// One of those that could not be changed, and why.
    failed: Option<(PathBuf, io::Error)>,
}

/// Takes the data directory from the eyes of other users: it becomes 0700, every directory in it 0700, every file 0600.
pub fn protect(dir: &Path) -> Result<(), DataDirError> {
    let at = |source| DataDirError::Io { path: dir.to_owned(), source };
    let metadata = match fs::metadata(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        metadata => metadata.map_err(at)?,
    };
    let (owner, own) = (metadata.uid(), rustix::process::geteuid());
    if owner != own.as_raw() && !own.is_root() {
        return Err(DataDirError::Owner { path: dir.to_owned(), owner, own: own.as_raw() });
    }
    let mut tightened = Tightened::default();
    tighten(dir, DIR_MODE, metadata.mode(), &mut tightened);
    tighten_below(dir, true, &mut tightened).map_err(at)?;
    if tightened.changed > 0 {
        tracing::info!(
            "data directory {}: {} entries had permissions for other users; directories are now 0700, files 0600",
            dir.display(),
            tightened.changed
        );
    }
    if let Some((path, error)) = tightened.failed {
        tracing::warn!("the permissions of {} cannot be changed: {error}; other users may read it", path.display());
    }
    Ok(())
}

fn tighten(path: &Path, wanted: u32, mode: u32, tightened: &mut Tightened) {
    if mode & OTHERS == 0 {
        return;
    }
    match fs::set_permissions(path, Permissions::from_mode(wanted)) {
        Ok(()) => tightened.changed += 1,
        Err(error) => tightened.failed = Some((path.to_owned(), error)),
    }
}

/// A link at the top may lead to another disk and is followed; one below is left alone.
fn tighten_below(dir: &Path, top: bool, tightened: &mut Tightened) -> io::Result<()> {
    for name in names(dir)? {
        let path = dir.join(name);
        let metadata = if top { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
        let metadata = match metadata {
            // Removed meanwhile, or a link to nothing.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            metadata => metadata?,
        };
        if metadata.is_dir() {
            tighten(&path, DIR_MODE, metadata.mode(), tightened);
            tighten_below(&path, false, tightened)?;
        } else if metadata.is_file() {
            tighten(&path, FILE_MODE, metadata.mode(), tightened);
        }
    }
    Ok(())
}

/// What a first start makes before it opens anything, to be removed when it fails. A directory that held anything before is
/// never touched, nor is one that has got a trail or a vote meanwhile.
pub struct FirstStart {
    dir: PathBuf,
    /// Of the directory and those above it, the ones that did not exist, the lowest first.
    missing: Vec<PathBuf>,
}

impl FirstStart {
    /// To be called before anything is made; `None` where something is there.
    pub fn of(dir: &Path) -> Option<FirstStart> {
        if !names(dir).is_ok_and(|names| names.is_empty()) || dir.join(LOST_FOUND).exists() {
            return None;
        }
        let missing = dir.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists());
        Some(FirstStart { dir: dir.to_owned(), missing: missing.map(PathBuf::from).collect() })
    }

    /// Removes the settings that the start has made, and the directory. One that holds anything else stays as it is.
    pub fn undo(self) {
        if !names(&self.dir).is_ok_and(|names| names.iter().all(|name| REMOVABLE.contains(&name.as_str()))) {
            return;
        }
        for name in REMOVABLE {
            let path = self.dir.join(name);
            if let Err(error) = fs::remove_file(&path)
                && error.kind() != ErrorKind::NotFound
            {
                tracing::warn!("cannot remove {} after the failed start: {error}", path.display());
            }
        }
        for dir in self.missing {
            if fs::remove_dir(dir).is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn only_a_data_directory_or_an_empty_one_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("d");
        refuse_foreign(&dir).unwrap();
        fs::create_dir_all(dir.join(LOST_FOUND)).unwrap();
        refuse_foreign(&dir).unwrap();
        fs::write(dir.join("photo.jpg"), "").unwrap();
        let refused = refuse_foreign(&dir).unwrap_err().to_string();
        assert!(refused.contains("not a data directory") && refused.contains("photo.jpg"), "{refused}");
        fs::write(dir.join(FILE_NAME), "").unwrap();
        refuse_foreign(&dir).unwrap();
    }

    #[test]
    fn every_file_is_tightened_and_links_below_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (data, other) = (dir.path().join("data"), dir.path().join("other"));
        fs::create_dir_all(data.join("volumes")).unwrap();
        fs::create_dir(&other).unwrap();
        let files = [data.join("holdfast.toml"), data.join("volumes/1.db"), other.join("mine")];
        files.iter().for_each(|file| fs::write(file, "").unwrap());
        files.iter().for_each(|file| fs::set_permissions(file, Permissions::from_mode(0o644)).unwrap());
        for dir in [&data, &data.join("volumes"), &other] {
            fs::set_permissions(dir, Permissions::from_mode(0o755)).unwrap();
        }
        std::os::unix::fs::symlink(&other, data.join("volumes/link")).unwrap();
        protect(&data).unwrap();
        let modes = [&data, &data.join("volumes"), &files[0], &files[1]].map(|path| mode(path));
        assert_eq!(modes, [0o700, 0o700, 0o600, 0o600]);
        assert_eq!([mode(&other), mode(&files[2])], [0o755, 0o644], "behind a link");
    }

    #[test]
    fn a_failed_first_start_leaves_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("a/b");
        let first = FirstStart::of(&data).unwrap();
        fs::create_dir_all(&data).unwrap();
        fs::write(data.join(FILE_NAME), "").unwrap();
        first.undo();
        assert!(dir.path().exists() && !dir.path().join("a").exists());

        // Another server may have taken the directory meanwhile; votes of a control plane are never forgotten.
        for other in ["trail", "control"] {
            let first = FirstStart::of(&data).unwrap();
            fs::create_dir_all(data.join(other)).unwrap();
            fs::write(data.join(other).join("journal"), "").unwrap();
            fs::write(data.join(FILE_NAME), "").unwrap();
            first.undo();
            assert!(data.join(other).join("journal").exists() && data.join(FILE_NAME).exists(), "{other}");
            assert!(FirstStart::of(&data).is_none());
            fs::remove_dir_all(&data).unwrap();
        }
    }
}
