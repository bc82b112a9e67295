//! A disk in memory that fails, fills up, lies, corrupts data and loses power on command.
//!
//! At a power cut every sector written since the last sync of its file is kept, dropped or turned into garbage; of the
//! directory changes since the last directory sync, a random number from the first on is kept. The seed decides all of
//! this. After a failed sync, buffered reads still show the lost bytes and direct reads do not, as on Linux (Rebello
//! and others, USENIX ATC 2020). [`FaultDisk::fired`] tells a test which faults really happened.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::file::FileBytes;
use super::fired::Fired;
use super::handles::{FaultFile, FaultLock};
use super::names::NameChange;
use super::state::{Aim, State};
use crate::disk::{Create, Disk, DiskFile, DiskLock, DiskStats, Metadata, OpenHow};

/// The simulated disk; clones share it.
#[derive(Clone)]
pub struct FaultDisk {
    state: Arc<Mutex<State>>,
}

impl FaultDisk {
    pub fn new(seed: u64) -> FaultDisk {
        FaultDisk { state: Arc::new(Mutex::new(State::new(seed))) }
    }

    /// Cuts the power in the middle of the `changes`th change from now (1 is the next one): writes, syncs, creations,
    /// renames and removals count.
    pub fn cut_power_after(&self, changes: u64) {
        self.state.lock().changes_until_cut = Some(changes);
    }

    /// Cancels [`FaultDisk::cut_power_after`].
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

    /// Decides what survived and switches the power on. Handles and locks from before are dead.
    pub fn restore_power(&self) {
        self.state.lock().restore();
    }

    /// Ends the process that has files open, as kill -9 does: its handles and locks are dead, the page cache stays. No
    /// file may be opened before [`FaultDisk::begin_process`].
    pub fn end_process(&self) {
        self.state.lock().end_process();
    }

    /// Lets another process use the disk.
    pub fn begin_process(&self) {
        self.state.lock().process_ended = false;
    }

    /// Limits faults that count operations, and lies, to these files and directories; at first they apply to all.
    pub fn aim(&self, at: Aim) {
        self.state.lock().aim = at;
    }

    /// Whether a failing read, write or sync continues to fail, with all that follow it.
    pub fn stay(&self, sticky: bool) {
        self.state.lock().sticky = sticky;
    }

    /// Cancels every fault that was requested and has not happened yet, or that continues.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        (state.writes_until_failure, state.syncs_until_failure, state.reads_until_failure) = (None, None, None);
        (state.reads_until_flip, state.writes_until_misdirection) = (None, None);
        (state.sticky, state.lying, state.capacity_bytes) = (false, false, None);
        state.aim = |_| true;
    }

    /// The `nth` write from now fails (1 is the next one), with half of it written.
    pub fn fail_write(&self, nth: u64, errno: Errno) {
        let mut state = self.state.lock();
        (state.writes_until_failure, state.write_errno) = (Some(nth), errno);
    }

    /// The `nth` sync from now fails with EIO; a write to a write-through file and the sync of a directory count too.
    pub fn fail_sync(&self, nth: u64) {
        self.state.lock().syncs_until_failure = Some(nth);
    }

    /// The `nth` read from now fails with EIO; the one after it works.
    pub fn fail_read(&self, nth: u64) {
        self.state.lock().reads_until_failure = Some(nth);
    }

    /// The `nth` read from now returns one bit flipped; the stored bytes stay as they are.
    pub fn flip_read(&self, nth: u64) {
        self.state.lock().reads_until_flip = Some(nth);
    }

    /// The `nth` write from now lands `by_bytes` away from its offset in the file, if the file is long enough.
    pub fn misdirect_write(&self, nth: u64, by_bytes: i64) {
        self.state.lock().writes_until_misdirection = Some((nth, by_bytes));
    }

    /// From now on syncs are acknowledged without effect, or are honest again.
    pub fn lie(&self, lying: bool) {
        self.state.lock().lying = lying;
    }

    /// Flips one stored bit permanently. Panics when the file does not exist.
    pub fn rot(&self, path: &Path, offset: u64, bit: u8) {
        let mut state = self.state.lock();
        let file = state.names[path];
        let byte = state.files[file].device()[offset as usize];
        state.files[file].overwrite(offset as usize, &[byte ^ 1 << bit]);
        state.fired.rotten_bits += 1;
    }

    /// Limits the total length of all files; growing a file beyond it fails with ENOSPC.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state.lock().capacity_bytes = bytes;
    }

    /// All files with their lengths.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        let state = self.state.lock();
        state.names.iter().map(|(path, file)| (path.clone(), state.files[*file].cached.len() as u64)).collect()
    }

    /// The bytes that the device has for a file.
    pub fn contents(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state.lock();
        state.names.get(path).map(|file| state.files[*file].device())
    }

    /// Changes bytes durably without notice, as damage or another program would. Panics when the file does not exist.
    pub fn overwrite(&self, path: &Path, offset: u64, bytes: &[u8]) {
        let mut state = self.state.lock();
        let file = state.names[path];
        state.files[file].overwrite(offset as usize, bytes);
    }

    pub fn fired(&self) -> Fired {
        self.state.lock().fired
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

    fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state.lock();
        state.check_power(state.cycle)?;
        match (state.names.contains_key(from), state.names.contains_key(to)) {
            (false, _) => Err(ErrorKind::NotFound.into()),
            (true, true) => Err(ErrorKind::AlreadyExists.into()),
            (true, false) => state.rename_or_link(NameChange::Rename(from.to_path_buf(), to.to_path_buf())),
        }
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
        state.sync_names(dir)
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
        let bytes = file.map(|file| file.cached.len() as u64);
        Ok(bytes.map(|len_bytes| Metadata { is_regular: true, len_bytes, modified_unix_ns: 0 }))
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

#[cfg(test)]
mod tests {
    use std::io::IoSlice;

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
    fn a_lying_disk_forgets_what_it_acknowledged() {
        let forgot = (0..50).filter(|seed| {
            let disk = FaultDisk::new(*seed);
            let file = create(&disk, "/d/a");
            file.sync_all().unwrap();
            disk.sync_dir(Path::new("/d")).unwrap();
            disk.lie(true);
            file.write_at(&[IoSlice::new(&[1; 4096])], 0).unwrap();
            file.sync_all().unwrap();
            disk.restore_power();
            assert_eq!(disk.fired().lied_syncs, 1);
            disk.contents(Path::new("/d/a")).unwrap() != [1; 4096]
        });
        assert!(forgot.count() > 10);
    }

    #[test]
    fn writes_miss_and_reads_flip_and_fail_once() {
        let disk = FaultDisk::new(1);
        let file = create(&disk, "/d/a");
        file.write_at(&[IoSlice::new(&[0; 8192])], 0).unwrap();
        disk.misdirect_write(1, 4096);
        file.write_at(&[IoSlice::new(&[7; 4096])], 0).unwrap();
        let mut buf = [9; 8192];
        file.read_at(&mut buf, 0).unwrap();
        assert!(buf[..4096] == [0; 4096] && buf[4096..] == [7; 4096]);
        disk.flip_read(1);
        let mut flipped = [9; 8192];
        file.read_at(&mut flipped, 0).unwrap();
        assert_eq!(buf.iter().zip(&flipped).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>(), 1);
        disk.fail_read(2);
        file.read_at(&mut flipped, 0).unwrap();
        assert!(flipped == buf && file.read_at(&mut flipped, 0).is_err() && file.read_at(&mut flipped, 0).is_ok());
        disk.rot(Path::new("/d/a"), 5, 3);
        file.read_at(&mut flipped, 0).unwrap();
        assert_eq!(flipped[5], 8);
        let Fired { misdirected_writes, flipped_reads, failed_reads, rotten_bits, .. } = disk.fired();
        assert_eq!([misdirected_writes, flipped_reads, failed_reads, rotten_bits], [1; 4]);
    }

    #[test]
    fn faults_are_for_the_files_they_are_aimed_at_and_may_stay() {
        let disk = FaultDisk::new(1);
        let (a, b) = (create(&disk, "/d/a"), create(&disk, "/d/b"));
        disk.aim(|path| path.ends_with("b"));
        disk.stay(true);
        disk.fail_sync(2);
        assert!(a.sync_all().is_ok() && a.sync_all().is_ok() && b.sync_all().is_ok());
        assert!(b.sync_all().is_err() && b.sync_all().is_err() && a.sync_all().is_ok());
        disk.heal();
        assert!(b.sync_all().is_ok());
        assert_eq!(disk.fired().failed_syncs, 2);
    }

    #[test]
    fn the_end_of_a_process_loses_nothing_but_its_handles() {
        let disk = FaultDisk::new(1);
        let file = create(&disk, "/d/a");
        file.write_at(&[IoSlice::new(&[1; 512])], 0).unwrap();
        disk.end_process();
        assert!(file.write_at(&[IoSlice::new(&[2; 512])], 0).is_err());
        assert!(disk.open(Path::new("/d/a"), &OpenHow::default()).is_err());
        disk.begin_process();
        assert!(file.write_at(&[IoSlice::new(&[2; 512])], 0).is_err());
        assert_eq!(disk.contents(Path::new("/d/a")).unwrap(), [1; 512]);
        assert!(disk.open(Path::new("/d/a"), &OpenHow::default()).is_ok());
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
