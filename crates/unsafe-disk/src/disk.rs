//! The disk itself, without FUSE: every operation a file system offers, with latency, faults and power cuts.
//!
//! Operations on names are in `disk_names.rs`. An operation is judged by the fault rules and counted first; a power cut
//! that falls on it happens in its middle: a write has reached the cache, a sync has made nothing durable, a change of
//! names is pending. A caller that was waiting for the answer gets EIO, as does everything after it until the power is back.
//!
//! One barrier is under way at a time, as on one device; it waits outside the lock, so that reads continue.

use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::command::Command;
use crate::faults::{Effect, Operation, Rule, Verdict, flip_bit};
use crate::node::{Attributes, Ino, Kind};
use crate::pages::SECTOR_BYTES;
use crate::state::{Handle, State};
use crate::status::{Power, Status};

/// What makes a file's name durable, in addition to a sync of its directory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Names {
    /// A sync of the file makes the names it was given durable, as ext4, XFS and btrfs do.
    #[default]
    File,
    /// Nothing else does: the least that POSIX lets a program count on.
    Directory,
}

/// How a disk behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// The directory that holds what is durable.
    pub backing: PathBuf,
    /// How long a barrier takes.
    pub sync_us: u64,
    /// False: a sync does not flush the drive's cache.
    pub barrier: bool,
    /// False: the drive has no volatile cache; every write is durable when it returns, and takes as long as a barrier.
    pub cache: bool,
    /// Size of the drive's cache; when it is full, files are written before anybody asks.
    pub cache_bytes: u64,
    pub names: Names,
    /// The percentage of unsynced sectors, of those a power cut does not keep, that become garbage instead of staying as they
    /// were, in files that it tears.
    pub garbage_percent: u32,
    pub seed: u64,
    /// What all files together may hold.
    pub capacity_bytes: Option<u64>,
    pub faults: Vec<Rule>,
    /// Other users than the mounting one may use it.
    pub allow_other: bool,
}

impl Options {
    pub fn new(backing: impl Into<PathBuf>) -> Options {
        Options {
            backing: backing.into(),
            sync_us: 0,
            barrier: true,
            cache: true,
            cache_bytes: 256 << 20,
            names: Names::default(),
            garbage_percent: 20,
            seed: 1,
            capacity_bytes: None,
            faults: Vec::new(),
            allow_other: false,
        }
    }
}

/// The rule of a drive that acknowledges every sync and writes nothing.
pub fn lying_drive() -> Rule {
    Rule { effect: Effect::Lie, operations: vec![Operation::Sync], pattern: "*".into(), after: 0, times: None }
}

/// The rule of a power cut after that many operations.
pub fn cut_after(operations: u64) -> Rule {
    Rule { effect: Effect::Cut, operations: Vec::new(), pattern: "*".into(), after: operations, times: Some(1) }
}

pub struct Disk {
    options: Options,
    seed: Mutex<u64>,
    pub(crate) state: Mutex<State>,
    /// Held while a barrier is under way.
    device: Mutex<()>,
}

impl Disk {
    pub fn open(options: Options) -> io::Result<Disk> {
        let mut state = State::new(options.backing.clone(), options.seed, options.capacity_bytes)?;
        options.faults.iter().for_each(|rule| state.faults.add(rule.clone()));
        Ok(Disk { seed: Mutex::new(options.seed), options, state: Mutex::new(state), device: Mutex::new(()) })
    }

    /// The state, while the power is on.
    pub(crate) fn on(&self) -> Result<MutexGuard<'_, State>, Errno> {
        let state = self.state.lock();
        if state.power_on { Ok(state) } else { Err(Errno::IO) }
    }

    /// Begins an operation: counts it and lets the rules judge it.
    pub(crate) fn begin(
        &self,
        operation: Operation,
        path_of: impl Fn(&State) -> String,
    ) -> Result<(MutexGuard<'_, State>, Verdict), Errno> {
        let mut state = self.on()?;
        match operation {
            Operation::Read => state.counters.reads += 1,
            Operation::Write => state.counters.writes += 1,
            Operation::Sync => state.counters.syncs += 1,
            Operation::Name => state.counters.name_changes += 1,
        }
        state.counters.operations += u64::from(operation != Operation::Read);
        if state.faults.is_empty() {
            return Ok((state, Verdict::default()));
        }
        let path = path_of(&state);
        let verdict = state.faults.judge(operation, &path);
        if verdict.delay_us > 0 {
            drop(state);
            std::thread::sleep(Duration::from_micros(verdict.delay_us));
            state = self.on()?;
        }
        match verdict.fail {
            Some(errno) if operation != Operation::Sync => Err(errno),
            _ => Ok((state, verdict)),
        }
    }

    /// The power fails now, in the middle of an operation.
    pub(crate) fn cut_here<T>(&self, mut state: MutexGuard<'_, State>) -> Result<T, Errno> {
        state.cut(self.options.garbage_percent);
        Err(Errno::IO)
    }

    pub fn read(&self, ino: Ino, offset: u64, len_bytes: usize, direct: bool) -> Result<Vec<u8>, Errno> {
        let (mut state, _) = self.begin(Operation::Read, |state| state.path(ino))?;
        state.with_file(ino, |data| data.read(offset, len_bytes, direct))
    }

    /// `through`: durable when it returns.
    pub fn write(&self, ino: Ino, offset: u64, bytes: &[u8], through: bool) -> Result<(), Errno> {
        let (mut state, verdict) = self.begin(Operation::Write, |state| state.path(ino))?;
        state.check_room(ino, offset + bytes.len() as u64)?;
        let flipped = verdict.flip.then(|| flip_bit(bytes, &mut state.random));
        let bytes = flipped.as_deref().unwrap_or(bytes);
        let astray = if verdict.misdirect { (1 + state.random.below(8)) * SECTOR_BYTES as u64 } else { 0 };
        state.counters.written_bytes += bytes.len() as u64;
        let end = offset + bytes.len() as u64;
        state.with_file(ino, |data| {
            data.write(offset + astray, bytes)?;
            // The file is as long as if the write had gone where it was meant to.
            if astray > 0 && data.len_bytes < end {
                data.set_len(end);
            }
            Ok(())
        })?;
        state.touch(ino);
        if verdict.cut {
            return self.cut_here(state);
        }
        if state.unsynced_sectors * SECTOR_BYTES as u64 > self.options.cache_bytes {
            state.counters.cache_overflows += 1;
            state.flush(ino, false)?;
        }
        drop(state);
        match (through, self.options.cache) {
            (true, _) => self.sync(ino, false),
            (false, true) => Ok(()),
            (false, false) => self.barrier(ino, false),
        }
    }

    /// Makes a file's bytes durable, or a directory's entries; `with_times` also when it was last changed.
    pub fn sync(&self, ino: Ino, with_times: bool) -> Result<(), Errno> {
        let (mut state, verdict) = self.begin(Operation::Sync, |state| state.path(ino))?;
        if verdict.cut {
            return self.cut_here(state);
        }
        if let Some(errno) = verdict.fail {
            if state.node(ino)?.file().is_some() {
                state.with_file(ino, |data| {
                    data.fail_sync();
                    Ok(())
                })?;
            }
            return Err(errno);
        }
        if verdict.lie || (!self.options.barrier && self.options.cache) {
            state.counters.lies += 1;
            return Ok(());
        }
        drop(state);
        self.barrier(ino, with_times)
    }

    /// Waits as long as a barrier takes and flushes. Free when there is nothing to flush.
    fn barrier(&self, ino: Ino, with_times: bool) -> Result<(), Errno> {
        let with_names = self.options.names == Names::File || self.on()?.node(ino)?.is_directory();
        if self.on()?.is_synced(ino, with_names) {
            return Ok(());
        }
        let _one_at_a_time = self.device.lock();
        if self.options.sync_us > 0 {
            std::thread::sleep(Duration::from_micros(self.options.sync_us));
        }
        let mut state = self.on()?;
        state.counters.barriers += 1;
        state.flush(ino, with_times)?;
        if with_names { state.commit_names(|change| change.names(ino) || change.is_in(ino)) } else { Ok(()) }
    }

    /// Ends a change of names or a length: durable at once when there is no cache.
    pub(crate) fn end_change(
        &self,
        state: MutexGuard<'_, State>,
        verdict: &Verdict,
        inos: &[Ino],
    ) -> Result<(), Errno> {
        if verdict.cut {
            return self.cut_here(state);
        }
        drop(state);
        if self.options.cache {
            return Ok(());
        }
        inos.iter().try_for_each(|ino| self.barrier(*ino, false))
    }

    pub fn set_len(&self, ino: Ino, len_bytes: u64) -> Result<(), Errno> {
        let (mut state, verdict) = self.begin(Operation::Write, |state| state.path(ino))?;
        state.check_room(ino, len_bytes)?;
        state.with_file(ino, |data| {
            data.set_len(len_bytes);
            Ok(())
        })?;
        state.touch(ino);
        self.end_change(state, &verdict, &[ino])
    }

    /// Extends a file to `end`, if it is shorter.
    pub fn allocate(&self, ino: Ino, end: u64) -> Result<(), Errno> {
        let have = self.on()?.node(ino)?.file().ok_or(Errno::ISDIR)?.len_bytes;
        if end > have { self.set_len(ino, end) } else { Ok(()) }
    }

    pub fn set_attributes(&self, ino: Ino, change: impl FnOnce(&mut Attributes)) -> Result<(), Errno> {
        let mut state = self.on()?;
        let node = state.node_mut(ino)?;
        change(&mut node.attributes);
        node.attributes.changed = SystemTime::now();
        state.keep_attributes(ino);
        Ok(())
    }

    pub fn open_file(&self, ino: Ino, flags: i32) -> Result<u64, Errno> {
        let mut state = self.on()?;
        let node = state.node_mut(ino)?;
        node.open += 1;
        Ok(state.new_handle(Handle { ino, flags, entries: Vec::new(), text: Vec::new() }))
    }

    /// The flags a file was opened with; none for a handle from before a power cut.
    pub fn flags_of(&self, handle: u64) -> i32 {
        self.state.lock().handles.get(&handle).map_or(0, |handle| handle.flags)
    }

    pub fn is_synced(&self, ino: Ino) -> bool {
        self.state.lock().is_synced(ino, true)
    }

    pub fn close(&self, handle: u64) {
        let mut state = self.state.lock();
        let Some(Handle { ino, .. }) = state.handles.remove(&handle) else { return };
        let Some(node) = state.nodes.get_mut(&ino) else { return };
        node.open = node.open.saturating_sub(1);
        if let (0, Kind::File(data)) = (node.open, &mut node.kind) {
            data.backing = None;
        }
        state.reap(ino);
    }

    /// Remembers what an open directory shows.
    pub fn open_directory(&self, entries: Vec<(Ino, OsString)>, ino: Ino) -> u64 {
        self.state.lock().new_handle(Handle { ino, flags: 0, entries, text: Vec::new() })
    }

    /// Cuts the power now.
    pub fn cut(&self) {
        self.state.lock().cut(self.options.garbage_percent);
    }

    /// The power is back: the cache is gone, the backing holds what survived. Cuts it first when it is still on.
    pub fn restore(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        state.cut(self.options.garbage_percent);
        state.load()
    }

    /// Makes everything durable.
    pub fn sync_all(&self) -> Result<(), Errno> {
        self.on()?.sync_all()
    }

    pub fn command(&self, command: Command) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("the backing directory fails: {error}");
        match command {
            Command::Cut => self.cut(),
            Command::Restore => self.restore().map_err(|error| failed(&error))?,
            Command::Sync => self.sync_all().map_err(|error| failed(&error))?,
            Command::Clear => self.state.lock().faults.clear(),
            Command::Seed(seed) => {
                *self.seed.lock() = seed;
                self.state.lock().random = crate::random::Random::new(seed);
            }
            Command::Capacity(bytes) => self.state.lock().capacity_bytes = bytes,
            Command::Rule(rule) => self.state.lock().faults.add(rule),
        }
        Ok(())
    }

    /// Reads and runs commands, one a line; the first that is refused is remembered in the status.
    pub fn command_text(&self, text: &str) -> Result<(), String> {
        let run = |line: &str| {
            let command = line.parse::<Command>().map_err(|error| error.to_string())?;
            self.command(command)
        };
        let outcome = text.lines().filter(|line| !line.trim().is_empty()).try_for_each(run);
        self.state.lock().last_error = outcome.as_ref().err().cloned();
        outcome
    }

    pub fn status(&self) -> Status {
        let seed = *self.seed.lock();
        let state = self.state.lock();
        Status {
            power: if state.power_on { Power::On } else { Power::Off },
            seed,
            counters: state.counters,
            unsynced_bytes: state.unsynced_sectors * SECTOR_BYTES as u64,
            unsynced_names: state.pending.len(),
            used_bytes: state.used_bytes,
            last_cut: state.last_cut,
            faults: state.faults.fired(),
            last_error: state.last_error.clone(),
        }
    }

    pub fn options(&self) -> &Options {
        &self.options
    }
}
