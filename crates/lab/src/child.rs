//! Server processes that do not outlive the study: asked to stop when dropped, then killed.

use anyhow::Context;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to stop when asked.
const STOP_MAX: Duration = Duration::from_secs(20);
/// Lines of a server's log shown when it fails.
const LOG_LINES_SHOWN: usize = 12;
const POLL: Duration = Duration::from_millis(20);

/// A running server and its log.
pub struct Server {
    name: &'static str,
    child: Child,
    log: PathBuf,
    stop: rustix::process::Signal,
}

impl Server {
    /// Starts `command` with its output in the file `log`; `stop` is the signal it stops cleanly on.
    pub fn start(
        name: &'static str,
        mut command: Command,
        log: PathBuf,
        stop: rustix::process::Signal,
    ) -> anyhow::Result<Server> {
        use std::os::unix::process::CommandExt;
        let file = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let error = file.try_clone()?;
        // A process group of its own: Ctrl-C reaches the lab, which then stops the server in good order.
        command.stdin(Stdio::null()).stdout(file).stderr(error).process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        Ok(Server { name, child, log, stop })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tries `ready` until it succeeds; fails when the server ends or `limit` has passed.
    pub fn wait_until<T>(
        &mut self,
        limit: Duration,
        mut ready: impl FnMut() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let start = Instant::now();
        loop {
            crate::interrupt::check()?;
            let error = match ready() {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            if let Some(status) = self.child.try_wait()? {
                anyhow::bail!("{} ended ({status}) while it was started; its log ends:\n{}", self.name, self.log_end());
            }
            if start.elapsed() >= limit {
                let (name, log) = (self.name, self.log_end());
                return Err(error).with_context(|| format!("{name} is not ready; its log ends:\n{log}"));
            }
            std::thread::sleep(POLL);
        }
    }

    /// The last lines of the log.
    pub fn log_end(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        // Errors here mean that it has ended already.
        let _ = rustix::process::kill_process(pid, self.stop);
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            if start.elapsed() >= STOP_MAX {
                let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(POLL);
        }
    }
}

/// A TCP port that was free a moment ago.
pub fn free_port() -> anyhow::Result<u16> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).context("cannot find a free port")?;
    Ok(listener.local_addr()?.port())
}

/// A program in one of `directories` or on the PATH.
pub fn find_program(name: &str, directories: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    directories.iter().cloned().chain(std::env::split_paths(&path)).map(|d| d.join(name)).find(|p| p.is_file())
}

/// Runs a command to its end; its output is part of the error when it fails.
pub fn run(mut command: Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot run {:?}", command.get_program()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    anyhow::ensure!(
        output.status.success(),
        "{} failed ({}):\n{text}{}",
        Path::new(command.get_program()).display(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(dir: &Path, script: &str) -> Server {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        Server::start("sh", command, dir.join("log"), rustix::process::Signal::TERM).unwrap()
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
    fn a_server_that_ends_is_told_with_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let mut server = start(dir.path(), "echo the disk is on fire; exit 3");
        let never = || -> anyhow::Result<()> { anyhow::bail!("not yet") };
        let message = format!("{:#}", server.wait_until(Duration::from_secs(60), never).unwrap_err());
        assert!(message.contains("the disk is on fire"), "{message}");
    }
}
