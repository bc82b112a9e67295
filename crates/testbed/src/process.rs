//! A server as a child process: its log, waiting for it, and the ways to end it. It does not outlive its owner.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, WaitOptions, getpgid, kill_process, kill_process_group, waitpid};

/// Longer than any server here takes to stop; only one that hangs meets it.
const STOP_MAX: Duration = Duration::from_secs(120);
/// How long a server has to end by itself when it is dropped.
const DROP_MAX: Duration = Duration::from_secs(20);
/// Lines of a log in an error message.
const LOG_LINES_SHOWN: usize = 20;
/// Between two looks at a process: starts and stops are measured by it.
const LOOK: Duration = Duration::from_millis(1);

/// A running server and its log.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    stop: Signal,
    dropped: Signal,
}

impl Process {
    /// Starts `command` and appends what it says to the file `log`. `stop`: the signal on which it stops cleanly;
    /// `dropped`: the one that it gets when it is dropped.
    pub fn start(
        name: impl Into<String>,
        mut command: Command,
        log: &Path,
        stop: Signal,
        dropped: Signal,
    ) -> anyhow::Result<Process> {
        command.stdout(opened(log)?);
        Process::spawn(name.into(), command, log, stop, dropped)
    }

    /// As [`Process::start`], of a `holdfast` that says on its standard output where it listens. Dropping it kills it.
    pub fn announcing(name: impl Into<String>, mut command: Command, log: &Path) -> anyhow::Result<Process> {
        command.stdout(Stdio::piped());
        Process::spawn(name.into(), command, log, Signal::TERM, Signal::KILL)
    }

    fn spawn(name: String, mut command: Command, log: &Path, stop: Signal, dropped: Signal) -> anyhow::Result<Process> {
        command.stdin(Stdio::null()).stderr(opened(log)?);
        let child = command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        Ok(Process { name, child, log: log.to_owned(), stop, dropped })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// True while the process runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The first line that an announcing process says; empty: it has ended without one.
    pub fn announcement(&mut self) -> anyhow::Result<String> {
        // Kept open: a program that cannot print ends.
        let stdout = self.child.stdout.as_mut().context("it was not started to announce anything")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        Ok(line)
    }

    /// The port of 127.0.0.1 that an announcing Holdfast takes connections at, once it does.
    pub fn announced_port(&mut self) -> anyhow::Result<u16> {
        let line = self.announcement()?;
        let port = line.trim().strip_prefix("holdfast: ready on 127.0.0.1:").and_then(|port| port.parse().ok());
        port.with_context(|| format!("{} does not start: {line}\n{}", self.name, self.log_end()))
    }

    /// Tries `ready` until it succeeds; fails when the server ends or `limit` has passed.
    pub fn wait_until<T>(&mut self, limit: Duration, ready: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
        self.wait_while(limit, || Ok(()), ready)
    }

    /// As [`Process::wait_until`], and fails with the error of `unless` as soon as it has one.
    pub fn wait_while<T>(
        &mut self,
        limit: Duration,
        mut unless: impl FnMut() -> anyhow::Result<()>,
        mut ready: impl FnMut() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let began = Instant::now();
        loop {
            unless()?;
            let error = match ready() {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended before it was ready ({status}); its log ends:\n{}", self.name, self.log_end());
            }
            if began.elapsed() >= limit {
                let (name, log) = (&self.name, self.log_end());
                return Err(error)
                    .with_context(|| format!("{name} is not ready after {limit:?}; its log ends:\n{log}"));
            }
            std::thread::sleep(LOOK);
        }
    }

    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        kill_process(self.id(), signal).with_context(|| format!("sending {signal:?} to {}", self.name))
    }

    /// Stops the process where it is (SIGSTOP), and returns when it stands: it holds its port and says nothing.
    pub fn hang(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)?;
        match waitpid(Some(self.id()), WaitOptions::UNTRACED)? {
            Some((_, status)) if status.stopped() => Ok(()),
            other => bail!("{} ended in place of standing still: {other:?}", self.name),
        }
    }

    /// Lets a process run again that hangs.
    pub fn resume(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// kill -9, and waits for the end of the process. It may have ended by itself.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().with_context(|| format!("killing {}", self.name))?;
        self.ended().map(drop)
    }

    /// Waits until it ends by itself.
    pub fn ended(&mut self) -> anyhow::Result<ExitStatus> {
        self.child.wait().with_context(|| format!("waiting for {}", self.name))
    }

    /// Asks for a clean stop, and waits for nothing.
    pub fn ask_to_stop(&self) -> anyhow::Result<()> {
        self.signal(self.stop)
    }

    /// Asks for a clean stop and waits for the end.
    pub fn stop(&mut self) -> anyhow::Result<ExitStatus> {
        self.ask_to_stop()?;
        match self.ends_within(STOP_MAX)? {
            Some(status) => Ok(status),
            None => bail!("{} still runs {STOP_MAX:?} after {:?}:\n{}", self.name, self.stop, self.log_end()),
        }
    }

    fn ends_within(&mut self, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
        let began = Instant::now();
        loop {
            match self.child.try_wait()? {
                None if began.elapsed() < limit => std::thread::sleep(LOOK),
                status => return Ok(status),
            }
        }
    }

    /// What it has said, and those before it with the same log.
    pub fn log(&self) -> String {
        std::fs::read(&self.log).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    /// The last lines of the log.
    pub fn log_end(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    /// The panics in the log; there must never be one.
    pub fn panics(&self) -> Vec<String> {
        self.log().lines().filter(|line| line.contains("panicked at")).map(str::to_string).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The number of one that was waited for may be another process's by now.
        if !self.is_running() {
            return;
        }
        let _ = self.signal(self.dropped);
        if let Ok(None) = self.ends_within(DROP_MAX) {
            let id = self.id();
            // One that was started as a group of its own takes its children along.
            let _ = match getpgid(Some(id)) == Ok(id) {
                true => kill_process_group(id, Signal::KILL),
                false => kill_process(id, Signal::KILL),
            };
            let _ = self.child.wait();
        }
    }
}

fn opened(log: &Path) -> anyhow::Result<File> {
    let file = File::options().create(true).append(true).open(log);
    file.with_context(|| format!("cannot open {}", log.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(dir: &Path, script: &str) -> Process {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        Process::start("sh", command, &dir.join("log"), Signal::TERM, Signal::TERM).unwrap()
    }

    #[test]
    fn a_dropped_server_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let server = start(dir.path(), "exec sleep 1000");
        let proc = PathBuf::from(format!("/proc/{}", server.pid()));
        assert!(proc.exists());
        drop(server);
        assert!(!proc.exists());
    }

    #[test]
    fn a_server_that_ends_is_reported_with_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let mut server = start(dir.path(), "echo the disk is on fire; exit 3");
        let never = || -> anyhow::Result<()> { bail!("not yet") };
        let message = format!("{:#}", server.wait_until(Duration::from_secs(60), never).unwrap_err());
        assert!(message.contains("the disk is on fire"), "{message}");
    }

    #[test]
    fn a_server_that_hangs_stands_still_until_it_is_resumed() {
        let dir = tempfile::tempdir().unwrap();
        let mut server = start(dir.path(), "exec sleep 1000");
        let stat = format!("/proc/{}/stat", server.pid());
        let stands = || std::fs::read_to_string(&stat).unwrap().contains(") T ");
        server.hang().unwrap();
        assert!(stands() && server.is_running());
        server.resume().unwrap();
        assert!(!stands());
        assert!(!server.stop().unwrap().success(), "ended by a signal");
        assert!(server.hang().is_err());
    }
}
