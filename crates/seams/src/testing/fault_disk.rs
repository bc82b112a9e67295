//! A disk in memory that fails, fills up, rots and loses power on command.
//!
//! At a power cut every sector written since the last sync of its file is kept, dropped or turned into garbage, and of
//! the directory changes since the last directory sync a random beginning is kept; all decided by the seed. After a
//! failed sync buffered reads still show the lost bytes and direct reads do not, as on Linux (Rebello and others,
//! USENIX ATC 2020). [`FaultDisk::fired`] tells a test which faults really happened.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::Seeded;
use super::file::FileBytes;
use crate::disk::{Create, Disk, DiskFile, DiskLock, DiskStats, Metadata, OpenHow, WriteThrough};

/// Shared by its clones.
#[derive(Clone)]
pub struct FaultDisk {
    state: Arc<Mutex<State>>,
}

/// How often each fault really happened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Fired {
    pub power_cuts: u64,
    pub kept_sectors: u64,
    pub dropped_sectors: u64,
    pub garbage_sectors: u64,
    pub lost_names: u64,
    pub failed_writes: u64,
    pub failed_syncs: u64,
    pub disk_full: u64,
}

#[derive(Clone)]
enum NameChange {
    Link(PathBuf, usize),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
    Exchange(PathBuf, PathBuf),
}

struct State {
    random: Seeded,
    files: Vec<FileBytes>,
    names: BTreeMap<PathBuf, usize>,
    durable_names: BTreeMap<PathBuf, usize>,
    pending_names: Vec<NameChange>,
    dirs: BTreeSet<PathBuf>,
    locks: BTreeSet<PathBuf>,
    /// Counts power cycles: a handle from an earlier one is dead.
    cycle: u64,
    power_off: bool,
    changes_until_cut: Option<u64>,
    writes_until_failure: Option<(u64, Errno)>,
    syncs_until_failure: Option<u64>,
    capacity_bytes: Option<u64>,
    fired: Fired,
    stats: DiskStats,
}

impl FaultDisk {
    pub fn new(seed: u64) -> FaultDisk {
        let state = State {
            random: Seeded::new(seed),
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            dirs: BTreeSet::new(),
            locks: BTreeSet::new(),
            cycle: 0,
            power_off: false,
            changes_until_cut: None,
            writes_until_failure: None,
            syncs_until_failure: None,
            capacity_bytes: None,
            fired: Fired::default(),
            stats: DiskStats::default(),
        };
        FaultDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// Cuts the power in the middle of the `changes`th change from now (1 is the next one): writes, syncs, creations,
    /// renames and removals count.
    pub fn cut_power_after(&self, changes: u64) {
        self.state.lock().changes_until_cut = Some(changes);
    }

    /// Forgets what [`FaultDisk::cut_power_after`] announced.
    pub fn do_not_cut(&self) {
        self.state.lock().changes_until_cut = None;
    }

    /// Cuts the power now.
    pub fn cut_power(&self) {
        self.state.lock().cut();
    }

    pub fn power_is_off(&self) -> bool {
        self.state.lock().power_off
    }

    /// Decides what survived and switches on again. Handles and locks from before are dead.
    pub fn restore_power(&self) {
        self.state.lock().restore();
    }

    /// The `nth` write from now fails (1 is the next one), with half of it written.
    pub fn fail_write(&self, nth: u64, errno: Errno) {
        self.state.lock().writes_until_failure = Some((nth, errno));
    }

    /// The `nth` sync from now fails with EIO, also the one in a write to a write-through file.
    pub fn fail_sync(&self, nth: u64) {
        self.state.lock().syncs_until_failure = Some(nth);
    }

    /// What all files together may be long; beyond it growing one fails with ENOSPC.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity_bytes = bytes;
    }

    /// What the device has for a file.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state.lock();
        state.names.get(path).map(|file| state.files[*file].device())
    }

    /// Rot, or somebody else's hand: changes bytes durably, unnoticed. Panics when there is no such file.
    pub fn overwrite(&self, path: &Path, offset: u64, bytes: &[u8]) {
        let mut state = self.state.lock();
        let file = state.names[path];
        state.files[file].overwrite(offset as usize, bytes);
    }

    pub fn fired(&self) -> Fired {
        self.state.lock().fired
    }
}

impl State {
    fn check_power(&self, cycle: u64) -> io::Result<()> {
        if self.power_off || self.cycle != cycle {
            return Err(io::Error::other("the power is off"));
        }
        Ok(())
    }

    /// Counts one change that is already under way; the power may fail in the middle of it.
    fn change(&mut self) -> io::Result<()> {
        if let Some(left) = self.changes_until_cut.as_mut() {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.cut();
                return Err(io::Error::other("the power failed"));
            }
        }
        Ok(())
    }

    fn cut(&mut self) {
        if !self.power_off {
            self.power_off = true;
            self.changes_until_cut = None;
            self.fired.power_cuts += 1;
        }
    }

    fn restore(&mut self) {
        self.cut();
        for file in &mut self.files {
            let torn = file.lose_power(&mut self.random);
            self.fired.kept_sectors += torn.kept_sectors;
            self.fired.dropped_sectors += torn.dropped_sectors;
            self.fired.garbage_sectors += torn.garbage_sectors;
        }
        let pending = std::mem::take(&mut self.pending_names);
        let kept = self.random.below(pending.len() as u64 + 1) as usize;
        self.fired.lost_names += (pending.len() - kept) as u64;
        for change in &pending[..kept] {
            apply(&mut self.durable_names, change);
        }
        self.names = self.durable_names.clone();
        self.locks.clear();
        self.power_off = false;
        self.cycle += 1;
    }

    fn rename_or_link(&mut self, change: NameChange) -> io::Result<()> {
        apply(&mut self.names, &change);
        self.pending_names.push(change);
        self.change()
    }

    /// Whether a file may grow by that much.
    fn check_room(&mut self, growth: u64) -> io::Result<()> {
        let Some(capacity) = self.capacity_bytes else { return Ok(()) };
        let linked: BTreeSet<usize> = self.names.values().copied().collect();
        let used: u64 = linked.iter().map(|file| self.files[*file].cached.len() as u64).sum();
        if growth > 0 && used + growth > capacity {
            self.fired.disk_full += 1;
            return Err(Errno::NOSPC.into());
        }
        Ok(())
    }

    fn write(&mut self, file: usize, bytes: &[u8], offset: usize, through: WriteThrough) -> io::Result<()> {
        let len = self.files[file].cached.len();
        self.check_room((offset + bytes.len()).saturating_sub(len) as u64)?;
        self.stats.writes += 1;
        if let Some((left, errno)) = self.writes_until_failure.as_mut() {
            *left -= 1;
            if *left == 0 {
                let errno = *errno;
                self.writes_until_failure = None;
                self.fired.failed_writes += 1;
                self.files[file].write(offset, &bytes[..bytes.len() / 2]);
                return Err(errno.into());
            }
        }
        self.files[file].write(offset, bytes);
        self.stats.written_bytes += bytes.len() as u64;
        self.change()?;
        if through == WriteThrough::No { Ok(()) } else { self.sync(file) }
    }

    fn sync(&mut self, file: usize) -> io::Result<()> {
        self.stats.syncs += 1;
        if let Some(left) = self.syncs_until_failure.as_mut() {
            *left -= 1;
            if *left == 0 {
                self.syncs_until_failure = None;
                self.fired.failed_syncs += 1;
                self.files[file].fail_sync();
                return Err(Errno::IO.into());
            }
        }
        self.files[file].sync();
        Ok(())
    }
}

fn apply(names: &mut BTreeMap<PathBuf, usize>, change: &NameChange) {
    match change {
        NameChange::Link(path, file) => {
            names.insert(path.clone(), *file);
        }
        NameChange::Unlink(path) => {
            names.remove(path);
        }
        NameChange::Rename(from, to) => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
        NameChange::Exchange(from, to) => {
            let (first, second) = (names.remove(from), names.remove(to));
            names.extend(first.map(|file| (to.clone(), file)));
            names.extend(second.map(|file| (from.clone(), file)));
        }
    }
}

fn dir_of(change: &NameChange) -> Option<&Path> {
    match change {
        NameChange::Link(path, _) | NameChange::Unlink(path) => path.parent(),
        NameChange::Rename(_, path) | NameChange::Exchange(_, path) => path.parent(),
    }
}

impl Disk for FaultDisk {
    fn open(&self, path: &Path, how: &OpenHow) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state.lock();
        state.check_power(state.cycle)?;
        let file = match (state.names.get(path).copied(), how.create) {
            (Some(_), Create::New) => return Err(ErrorKind::AlreadyExists.into()),
            (None, Create::Never) => return Err(ErrorKind::NotFound.into()),
            (Some(file), _) => file,
            (None, _) => {
                let file = state.files.len();
                state.files.push(FileBytes::default());
                state.rename_or_link(NameChange::Link(path.to_path_buf(), file))?;
                file
            }
        };
        Ok(Box::new(FaultFile { state: self.state.clone(), cycle: state.cycle, file, how: *how }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power(state.cycle)?;
        if !state.names.contains_key(from) {
            return Err(ErrorKind::NotFound.into());
        }
        state.rename_or_link(NameChange::Rename(from.to_path_buf(), to.to_path_buf()))
    }

    fn exchange(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power(state.cycle)?;
        if !state.names.contains_key(from) {
            return Err(ErrorKind::NotFound.into());
        }
        state.rename_or_link(NameChange::Exchange(from.to_path_buf(), to.to_path_buf()))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power(state.cycle)?;
        if !state.names.contains_key(path) {
            return Err(ErrorKind::NotFound.into());
        }
        state.rename_or_link(NameChange::Unlink(path.to_path_buf()))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.state.lock();
        state.check_power(state.cycle)?;
        let here = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(here.filter_map(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned()).collect())
    }

    fn create_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power(state.cycle)?;
        state.dirs.insert(dir.to_path_buf());
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power(state.cycle)?;
        state.change()?;
        state.stats.syncs += 1;
        let (synced, rest) = std::mem::take(&mut state.pending_names)
            .into_iter()
            .partition::<Vec<_>, _>(|change| dir_of(change) == Some(dir));
        for change in &synced {
            apply(&mut state.durable_names, change);
        }
        state.pending_names = rest;
        Ok(())
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        let state = self.state.lock();
        let used: u64 = state.names.values().map(|file| state.files[*file].cached.len() as u64).sum();
        Ok(state.capacity_bytes.map_or(u64::MAX, |capacity| capacity.saturating_sub(used)))
    }

    fn metadata(&self, path: &Path) -> io::Result<Option<Metadata>> {
        let state = self.state.lock();
        state.check_power(state.cycle)?;
        let file = state.names.get(path).map(|file| &state.files[*file]);
        Ok(file.map(|file| Metadata { len_bytes: file.cached.len() as u64, modified_unix_ns: 0 }))
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn DiskLock>>> {
        let mut state = self.state.lock();
        state.check_power(state.cycle)?;
        if !state.locks.insert(path.to_path_buf()) {
            return Ok(None);
        }
        Ok(Some(Box::new(FaultLock { state: self.state.clone(), cycle: state.cycle, path: path.to_path_buf() })))
    }

    fn stats(&self) -> DiskStats {
        self.state.lock().stats
    }
}

struct FaultLock {
    state: Arc<Mutex<State>>,
    cycle: u64,
    path: PathBuf,
}

impl DiskLock for FaultLock {}

impl Drop for FaultLock {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if state.cycle == self.cycle {
            state.locks.remove(&self.path);
        }
    }
}

struct FaultFile {
    state: Arc<Mutex<State>>,
    cycle: u64,
    file: usize,
    how: OpenHow,
}

impl FaultFile {
    fn on(&self) -> io::Result<parking_lot::MutexGuard<'_, State>> {
        let state = self.state.lock();
        state.check_power(self.cycle)?;
        Ok(state)
    }
}

impl DiskFile for FaultFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.on()?;
        let len = state.files[self.file].read(offset as usize, buf, self.how.direct);
        state.stats.reads += 1;
        state.stats.read_bytes += len as u64;
        Ok(len)
    }

    fn write_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> io::Result<()> {
        let bytes = bufs.iter().map(|buf| &buf[..]).collect::<Vec<_>>().concat();
        if !self.how.write {
            return Err(Errno::BADF.into());
        }
        if self.how.direct && !(offset.is_multiple_of(4096) && bytes.len().is_multiple_of(4096)) {
            return Err(Errno::INVAL.into());
        }
        self.on()?.write(self.file, &bytes, offset as usize, self.how.through)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync_all()
    }

    fn sync_all(&self) -> io::Result<()> {
        let mut state = self.on()?;
        state.change()?;
        state.sync(self.file)
    }

    fn set_len(&self, len_bytes: u64) -> io::Result<()> {
        let mut state = self.on()?;
        state.files[self.file].set_len(len_bytes as usize);
        state.change()
    }

    fn len_bytes(&self) -> io::Result<u64> {
        let state = self.on()?;
        Ok(state.files[self.file].cached.len() as u64)
    }

    fn allocate(&self, offset: u64, len_bytes: u64) -> io::Result<()> {
        let mut state = self.on()?;
        let len = state.files[self.file].cached.len() as u64;
        let end = offset + len_bytes;
        if end <= len {
            return Ok(());
        }
        state.check_room(end - len)?;
        state.files[self.file].set_len(end as usize);
        state.change()
    }

    fn is_direct(&self) -> bool {
        self.how.direct
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(disk: &FaultDisk, path: &str) -> Box<dyn DiskFile> {
        disk.open(Path::new(path), &OpenHow { create: Create::New, write: true, ..OpenHow::default() }).unwrap()
    }

    #[test]
    fn a_power_cut_keeps_what_was_synced_and_tears_the_rest() {
        let (mut whole, mut torn) = (0, 0);
        for seed in 0..200 {
            let disk = FaultDisk::new(seed);
            let file = create(&disk, "/d/a");
            disk.sync_dir(Path::new("/d")).unwrap();
            file.write_at(&[IoSlice::new(&[1; 4096])], 0).unwrap();
            file.sync_all().unwrap();
            file.write_at(&[IoSlice::new(&[2; 4096])], 4096).unwrap();
            disk.cut_power();
            assert!(file.sync_all().is_err());
            disk.restore_power();
            assert!(file.sync_all().is_err(), "a handle from before the cut is dead");
            let content = disk.contents(Path::new("/d/a")).unwrap();
            assert!(content[..4096] == [1; 4096]);
            let kept = content[4096..].iter().filter(|byte| **byte == 2).count();
            whole += u32::from(kept == 4096);
            torn += u32::from(0 < kept && kept < 4096);
        }
        assert!(whole > 0 && torn > 0);
    }

    #[test]
    fn names_need_a_directory_sync() {
        let lost = (0..50).filter(|seed| {
            let disk = FaultDisk::new(*seed);
            create(&disk, "/d/a").sync_all().unwrap();
            disk.restore_power();
            disk.contents(Path::new("/d/a")).is_none()
        });
        assert!((1..50).contains(&lost.count()));
    }

    #[test]
    fn after_a_failed_sync_the_page_cache_lies() {
        let disk = FaultDisk::new(1);
        let file = create(&disk, "/d/a");
        file.write_at(&[IoSlice::new(&[0; 4096])], 0).unwrap();
        file.sync_all().unwrap();
        file.write_at(&[IoSlice::new(&[7; 4096])], 0).unwrap();
        disk.fail_sync(1);
        assert!(file.sync_all().is_err());
        file.sync_all().unwrap();
        let mut buf = [9; 4096];
        file.read_at(&mut buf, 0).unwrap();
        assert_eq!(buf[0], 7);
        let direct = disk.open(Path::new("/d/a"), &OpenHow::READ_DIRECT).unwrap();
        direct.read_at(&mut buf, 0).unwrap();
        assert_eq!((buf[0], disk.fired().failed_syncs), (0, 1));
    }

    #[test]
    fn a_full_disk_refuses_to_grow() {
        let disk = FaultDisk::new(1);
        disk.set_capacity(Some(8192));
        let file = create(&disk, "/d/a");
        file.allocate(0, 8192).unwrap();
        assert_eq!(file.allocate(0, 8193).unwrap_err().kind(), ErrorKind::StorageFull);
        file.write_at(&[IoSlice::new(&[1; 4096])], 4096).unwrap();
        assert_eq!(disk.fired().disk_full, 1);
    }
}
