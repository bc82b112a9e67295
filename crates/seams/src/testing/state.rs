//! The state of a simulated disk: its files, its names, the pending faults, and what has happened.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::Seeded;
use super::file::FileBytes;
use super::fired::Fired;
use super::names::{NameChange, apply, dir_of};
use crate::disk::{DiskStats, WriteThrough};

/// Selects the files and directories to which faults apply.
pub type Aim = fn(&Path) -> bool;

/// The whole state of a simulated disk and its handles.
pub struct State {
    pub random: Seeded,
    pub files: Vec<FileBytes>,
    pub names: BTreeMap<PathBuf, usize>,
    pub durable_names: BTreeMap<PathBuf, usize>,
    pub pending_names: Vec<NameChange>,
    pub dirs: BTreeSet<PathBuf>,
    pub locks: BTreeSet<PathBuf>,
    /// Counts power cycles and processes: a handle from an earlier one is dead.
    pub cycle: u64,
    pub power_off: bool,
    /// The process that had files open has ended, and the next one has not begun.
    pub process_ended: bool,
    /// Only these files and directories have the faults below, and only operations on them are counted.
    pub aim: Aim,
    /// Whether a failing read, write or sync continues to fail.
    pub sticky: bool,
    pub changes_until_cut: Option<u64>,
    pub writes_until_failure: Option<u64>,
    pub write_errno: Errno,
    pub syncs_until_failure: Option<u64>,
    pub reads_until_failure: Option<u64>,
    pub reads_until_flip: Option<u64>,
    /// Writes left, and by how many bytes the last of them misses its offset.
    pub writes_until_misdirection: Option<(u64, i64)>,
    /// Syncs are acknowledged without effect.
    pub lying: bool,
    pub capacity_bytes: Option<u64>,
    pub fired: Fired,
    pub stats: DiskStats,
}

/// Counts one operation. Returns true for the operation chosen to fail, or a later one where the fault is sticky.
fn due(left: &mut Option<u64>, sticky: bool) -> bool {
    let Some(count) = left.as_mut() else { return false };
    *count = count.saturating_sub(1);
    let now = *count == 0;
    if now && !sticky {
        *left = None;
    }
    now
}

impl State {
    pub fn new(seed: u64) -> State {
        State {
            random: Seeded::new(seed),
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            pending_names: Vec::new(),
            dirs: BTreeSet::new(),
            locks: BTreeSet::new(),
            cycle: 0,
            power_off: false,
            process_ended: false,
            aim: |_| true,
            sticky: false,
            changes_until_cut: None,
            writes_until_failure: None,
            write_errno: Errno::IO,
            syncs_until_failure: None,
            reads_until_failure: None,
            reads_until_flip: None,
            writes_until_misdirection: None,
            lying: false,
            capacity_bytes: None,
            fired: Fired::default(),
            stats: DiskStats::default(),
        }
    }

    pub fn check_power(&self, cycle: u64) -> io::Result<()> {
        if self.power_off || self.cycle != cycle {
            return Err(io::Error::other("the power is off"));
        }
        if self.process_ended {
            return Err(io::Error::other("the process has ended"));
        }
        Ok(())
    }

    /// Counts one change that is already in progress; the power may fail in the middle of it.
    pub fn change(&mut self) -> io::Result<()> {
        if let Some(left) = self.changes_until_cut.as_mut() {
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.cut();
                return Err(io::Error::other("the power failed"));
            }
        }
        Ok(())
    }

    pub fn cut(&mut self) {
        if !self.power_off {
            self.power_off = true;
            self.changes_until_cut = None;
            self.fired.power_cuts += 1;
        }
    }

    pub fn restore(&mut self) {
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
        (self.power_off, self.process_ended) = (false, false);
        self.cycle += 1;
    }

    /// Ends the process: every handle and lock is dead; written bytes stay.
    pub fn end_process(&mut self) {
        self.locks.clear();
        self.cycle += 1;
        self.process_ended = true;
    }

    /// Whether faults apply to this file.
    fn is_aimed_at(&self, file: usize) -> bool {
        self.names.iter().any(|(path, named)| *named == file && (self.aim)(path))
    }

    pub fn rename_or_link(&mut self, change: NameChange) -> io::Result<()> {
        apply(&mut self.names, &change);
        self.pending_names.push(change);
        self.change()
    }

    /// Whether a file may grow by `growth` bytes.
    pub fn check_room(&mut self, growth: u64) -> io::Result<()> {
        let Some(capacity) = self.capacity_bytes else { return Ok(()) };
        let linked: BTreeSet<usize> = self.names.values().copied().collect();
        let used: u64 = linked.iter().map(|file| self.files[*file].cached.len() as u64).sum();
        if growth > 0 && used + growth > capacity {
            self.fired.disk_full += 1;
            return Err(Errno::NOSPC.into());
        }
        Ok(())
    }

    pub fn write(&mut self, file: usize, bytes: &[u8], offset: usize, through: WriteThrough) -> io::Result<()> {
        let len = self.files[file].cached.len();
        self.check_room((offset + bytes.len()).saturating_sub(len) as u64)?;
        self.stats.writes += 1;
        let aimed = self.is_aimed_at(file);
        if aimed && due(&mut self.writes_until_failure, self.sticky) {
            self.fired.failed_writes += 1;
            self.files[file].write(offset, &bytes[..bytes.len() / 2]);
            return Err(self.write_errno.into());
        }
        let landed = if aimed { self.landing_place(file, offset, bytes.len()) } else { offset };
        self.files[file].write(landed, bytes);
        self.stats.written_bytes += bytes.len() as u64;
        self.change()?;
        if through == WriteThrough::No { Ok(()) } else { self.sync(file) }
    }

    /// Where a write really lands. A misdirected write stays within the file and shows in the page cache too: a read
    /// before the cache is gone sees it.
    fn landing_place(&mut self, file: usize, offset: usize, len: usize) -> usize {
        let Some((left, by_bytes)) = self.writes_until_misdirection.as_mut() else { return offset };
        *left -= 1;
        if *left > 0 {
            return offset;
        }
        let missed = usize::try_from(offset as i64 + *by_bytes).ok();
        self.writes_until_misdirection = None;
        match missed.filter(|missed| missed + len <= self.files[file].cached.len()) {
            Some(missed) => {
                self.fired.misdirected_writes += 1;
                missed
            }
            None => offset,
        }
    }

    pub fn read(&mut self, file: usize, buf: &mut [u8], offset: usize, direct: bool) -> io::Result<usize> {
        self.stats.reads += 1;
        let aimed = self.is_aimed_at(file);
        if aimed && due(&mut self.reads_until_failure, self.sticky) {
            self.fired.failed_reads += 1;
            return Err(Errno::IO.into());
        }
        let len = self.files[file].read(offset, buf, direct);
        if aimed && len > 0 && due(&mut self.reads_until_flip, false) {
            self.fired.flipped_reads += 1;
            buf[self.random.below(len as u64) as usize] ^= 1 << self.random.below(8);
        }
        self.stats.read_bytes += len as u64;
        Ok(len)
    }

    pub fn sync_names(&mut self, dir: &Path) -> io::Result<()> {
        self.change()?;
        self.stats.syncs += 1;
        let aimed = (self.aim)(dir);
        if aimed && self.lying {
            self.fired.lied_syncs += 1;
            return Ok(());
        }
        if aimed && due(&mut self.syncs_until_failure, self.sticky) {
            self.fired.failed_syncs += 1;
            return Err(Errno::IO.into());
        }
        let (synced, rest) = std::mem::take(&mut self.pending_names)
            .into_iter()
            .partition::<Vec<_>, _>(|change| dir_of(change) == Some(dir));
        for change in &synced {
            apply(&mut self.durable_names, change);
        }
        self.pending_names = rest;
        Ok(())
    }

    pub fn sync(&mut self, file: usize) -> io::Result<()> {
        self.stats.syncs += 1;
        let aimed = self.is_aimed_at(file);
        if aimed && self.lying {
            self.fired.lied_syncs += 1;
            return Ok(());
        }
        if aimed && due(&mut self.syncs_until_failure, self.sticky) {
            self.fired.failed_syncs += 1;
            self.files[file].fail_sync();
            return Err(Errno::IO.into());
        }
        self.files[file].sync();
        Ok(())
    }
}
