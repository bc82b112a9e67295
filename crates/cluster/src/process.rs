//! The server's process as its supervisor sees it.
//!
//! A pid may be used again by another process. So the pidfd is opened first, which names one process for good, and then the
//! start time is compared: if it is equal, the pidfd is that of the process that was meant.
//!
//! A process that was killed is seen by its flag PF_EXITING, in field 9 of `/proc/PID/stat`, long before its pidfd reports its
//! end: with a large memory that is taken down in between. The flag proves only that the end has begun, not that every thread
//! has stopped.
//!
//! Failure: `/proc` that cannot be read is an error; a process that is gone is not.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::fs::DirEntry;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// In `include/linux/sched.h`.
const PF_EXITING: u64 = 0x4;

/// A process, told from a later one with the same pid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    pub pid: u32,
    /// In clock ticks since the machine started.
    pub start: u64,
}

impl Identity {
    /// This process.
    pub fn own() -> io::Result<Identity> {
        let pid = std::process::id();
        let stat = Stat::of(pid)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Identity { pid, start: stat.start })
    }

    /// A child that was not waited for yet: its pid belongs to no other process.
    pub fn of_child(pid: u32) -> io::Result<Identity> {
        let stat = Stat::of(pid)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Identity { pid, start: stat.start })
    }
}

/// What `/proc/PID/stat` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// R, S, D, T, Z, ...
    pub state: char,
    flags: u64,
    pub start: u64,
}

impl Stat {
    /// `None`: there is no such process.
    pub fn of(pid: u32) -> io::Result<Option<Stat>> {
        match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
            Ok(text) => Ok(Some(Stat::parse(&text).ok_or(io::ErrorKind::InvalidData)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            // ESRCH: it ended while it was read.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The name, field 2, is in parentheses and may contain any byte, parentheses too.
    fn parse(text: &str) -> Option<Stat> {
        let (_, rest) = text.rsplit_once(')')?;
        let mut fields = rest.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let flags = fields.nth(5)?.parse().ok()?;
        let start = fields.nth(12)?.parse().ok()?;
        Some(Stat { state, flags, start })
    }

    /// Whether the process is ending, or has ended and is not waited for yet.
    pub fn is_ending(&self) -> bool {
        self.flags & PF_EXITING != 0 || matches!(self.state, 'Z' | 'X' | 'x')
    }

    /// Whether it was stopped by a signal.
    pub fn is_stopped(&self) -> bool {
        self.state == 'T'
    }
}

/// A running process, by a descriptor that names it for good.
#[derive(Debug)]
pub struct Process {
    identity: Identity,
    pidfd: OwnedFd,
}

impl Process {
    /// `None`: it has ended, or another process has its pid.
    pub fn open(identity: Identity) -> io::Result<Option<Process>> {
        let Some(pid) = i32::try_from(identity.pid).ok().and_then(Pid::from_raw) else { return Ok(None) };
        let pidfd = match pidfd_open(pid, PidfdFlags::NONBLOCK) {
            Ok(pidfd) => pidfd,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        // Only now: what is read here is about the process that the descriptor names, or that one has ended.
        let lives = Stat::of(identity.pid)?.is_some_and(|stat| stat.start == identity.start && !stat.is_ending());
        Ok(lives.then_some(Process { identity, pidfd }))
    }

    pub fn identity(&self) -> Identity {
        self.identity
    }

    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.pidfd, signal)?)
    }

    /// Whether every thread of it has ended.
    pub fn has_ended(&self) -> io::Result<bool> {
        let mut pidfd = [PollFd::new(&self.pidfd, PollFlags::IN)];
        match poll(&mut pidfd, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(ready) => Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// `None`: it has ended.
    pub fn stat(&self) -> io::Result<Option<Stat>> {
        Ok(Stat::of(self.identity.pid)?.filter(|stat| stat.start == self.identity.start))
    }
}

/// The other processes that have a file open, as far as this user may see their descriptors. Reads all of `/proc`.
pub fn users_of(path: &Path) -> io::Result<Vec<Identity>> {
    let wanted = std::fs::metadata(path)?;
    let is_it = |fd: io::Result<DirEntry>| {
        let found = fd.and_then(|fd| std::fs::metadata(fd.path()));
        found.is_ok_and(|found| (found.dev(), found.ino()) == (wanted.dev(), wanted.ino()))
    };
    let mut users = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(pid) = pid.filter(|pid| *pid != std::process::id()) else { continue };
        // Another user's process, or one that has ended meanwhile.
        let Ok(mut fds) = std::fs::read_dir(entry.path().join("fd")) else { continue };
        if fds.any(is_it)
            && let Some(stat) = Stat::of(pid)?
        {
            users.push(Identity { pid, start: stat.start });
        }
    }
    Ok(users)
}

/// The arguments that a process was started with; none if it has ended, or if its program is only just being loaded: the
/// kernel lets the parent continue before it has laid them out. A process that has opened a file since has them.
pub fn arguments_of(pid: u32) -> Vec<OsString> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(|argument| OsString::from_vec(argument.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_seams::testing::Patience;
    use std::process::{Command, Stdio};

    #[test]
    fn any_name_is_read() {
        let rest = "S 1 2 3 0 -1 4194564 10 0 0 0 1 2 0 0 20 0 5 0 98765 100 200";
        for name in ["holdfast", "a b", ") R 1 1", "(("] {
            let stat = Stat::parse(&format!("42 ({name}) {rest}\n")).unwrap();
            assert_eq!((stat.state, stat.start, stat.is_ending()), ('S', 98_765, true), "{name}");
        }
        assert!(["", "42", "42 (a)", "42 (a) S 1"].iter().all(|text| Stat::parse(text).is_none()));
    }

    #[test]
    fn another_start_time_is_another_process() {
        let own = Identity::own().unwrap();
        assert!(Process::open(own).unwrap().is_some());
        assert!(Process::open(Identity { start: own.start + 1, ..own }).unwrap().is_none());
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let identity = Identity::of_child(child.id()).unwrap();
        let process = Process::open(identity).unwrap().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(Process::open(identity).unwrap().is_none() && process.has_ended().unwrap());
        assert!(process.stat().unwrap().is_none() && process.signal(Signal::TERM).is_err());
    }

    #[test]
    fn the_users_of_a_file_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        std::fs::write(&path, "").unwrap();
        // A process that another test starts has this one's descriptors until its program begins.
        let until = |path: &Path, wanted: &[Identity]| {
            let mut patience = Patience::new();
            while users_of(path).unwrap() != wanted {
                patience.look("the users of a file");
            }
        };
        until(&path, &[]);
        let file = std::fs::File::open(&path).unwrap();
        let mut child = Command::new("cat").stdin(file).stdout(Stdio::piped()).spawn().unwrap();
        // It ends when it has read the file, and stays until it is waited for.
        let mut other = Command::new("sleep").arg("600").stdin(std::fs::File::open(&path).unwrap()).spawn().unwrap();
        let identity = Identity::of_child(other.id()).unwrap();
        child.wait().unwrap();
        until(&path, &[identity]);
        // Its parent continues before the kernel has laid the arguments out.
        let mut patience = Patience::new();
        while arguments_of(other.id()) == [OsString::new()] {
            patience.look("the arguments of a program that begins");
        }
        assert_eq!(arguments_of(other.id()), ["sleep", "600", ""], "each ends with a zero byte");
        other.kill().unwrap();
        other.wait().unwrap();
        until(&path, &[]);
        assert!(users_of(&dir.path().join("none")).is_err());
    }
}
