//! A mounted disk in a temporary directory, for one test.

use holdfast_unsafe_disk::{CONTROL, Options, UnsafeDisk, cannot_mount};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub struct Bed {
    pub disk: UnsafeDisk,
    directory: tempfile::TempDir,
}

impl Bed {
    /// `None`, and a loud word, where nothing can be mounted; in CI that is a failure.
    pub fn new(change: impl FnOnce(&mut Options)) -> Option<Bed> {
        if let Some(why) = cannot_mount() {
            assert!(std::env::var_os("CI").is_none(), "cannot run: {why}");
            eprintln!("SKIPPED: {why}");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let (mountpoint, backing) = (directory.path().join("mount"), directory.path().join("backing"));
        fs::create_dir(&mountpoint).unwrap();
        fs::create_dir(&backing).unwrap();
        let mut options = Options::new(backing);
        change(&mut options);
        Some(Bed { disk: UnsafeDisk::mount(&mountpoint, options).unwrap(), directory })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.disk.mountpoint().join(name)
    }

    pub fn backing(&self, name: &str) -> PathBuf {
        self.directory.path().join("backing").join(name)
    }

    pub fn control(&self, commands: &str) -> io::Result<()> {
        fs::write(self.path(CONTROL), commands)
    }

    pub fn fired(&self) -> Vec<(String, u64)> {
        self.disk.status().faults.into_iter().map(|fault| (fault.rule, fault.fired)).collect()
    }

    /// Unmounts; gives the backing directory and where the mount was.
    pub fn unmount(self) -> (Backing, PathBuf) {
        let mountpoint = self.disk.mountpoint().to_owned();
        drop(self.disk);
        (Backing(self.directory), mountpoint)
    }
}

pub struct Backing(tempfile::TempDir);

impl Backing {
    pub fn path(&self) -> PathBuf {
        self.0.path().join("backing")
    }
}

/// `len` bytes of `value` at an address that direct I/O takes.
pub fn aligned(buffer: &mut [u8], len: usize, value: u8) -> &mut [u8] {
    let skip = buffer.as_ptr().align_offset(4096);
    let slice = &mut buffer[skip..skip + len];
    slice.fill(value);
    slice
}

/// The names in a directory.
pub fn lines(directory: &Path) -> Vec<String> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}
