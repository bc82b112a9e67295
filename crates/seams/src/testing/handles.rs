//! Open files and locks of a simulated disk; dead after the power has failed.

use std::io::{self, IoSlice};
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::state::State;
use crate::disk::{DiskFile, DiskLock, OpenHow};

/// A directory lock of a simulated disk.
pub struct FaultLock {
    pub state: Arc<Mutex<State>>,
    pub cycle: u64,
    pub path: PathBuf,
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

/// An open file of a simulated disk.
pub struct FaultFile {
    pub state: Arc<Mutex<State>>,
    pub cycle: u64,
    pub file: usize,
    pub how: OpenHow,
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
        self.on()?.read(self.file, buf, offset as usize, self.how.direct)
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
