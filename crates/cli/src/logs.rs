//! Logs: to stderr, readable or as JSON, filtered by `HOLDFAST_LOG` (for example `info,holdfast_wire=debug`), else by
//! [`DEFAULT_FILTER`]; or into a directory, where each role among nodes has a file of its own.
//!
//! | file | what |
//! |---|---|
//! | `holdfast.log` | everything else |
//! | `ship.log`, `catchup.log` | of a master: standbys that come, go, and have caught up |
//! | `receive.log`, `apply.log` | of a standby |
//! | `archive.log`, `governor.log`, `standby.log` | segments put away; a standby that is waited for no longer; what `notify_command` is told |
//!
//! A file that has grown to `log_file_bytes_max` becomes `NAME.1`, that one `NAME.2` and so on; the oldest is removed. SIGHUP
//! opens all of them again, for programs that move logs away themselves.
//!
//! Failure: what cannot be written into a file goes to stderr, with the reason; the server goes on.

use anyhow::Context;
use holdfast_node::config::LogFiles;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tracing::Metadata;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// What a role's log target begins with; the role is the file's name.
const TARGET: &str = "holdfast::";
/// The roles that have a file.
const ROLES: [&str; 7] = ["ship", "catchup", "receive", "apply", "archive", "governor", "standby"];
/// What is logged where `HOLDFAST_LOG` says nothing. Of openraft errors only: it warns of what belongs to any election, in
/// words of its own; what an operator has to know of the control plane its own lines say.
const DEFAULT_FILTER: &str = "info,openraft=error";
/// The file of everybody else.
const REST: &str = "holdfast";

/// Installs the subscriber for this process: into files where a directory is given.
pub fn start(json: bool, files: Option<LogFiles>) -> anyhow::Result<()> {
    let filter = EnvFilter::try_from_env("HOLDFAST_LOG").unwrap_or_else(|_| EnvFilter::new(DEFAULT_FILTER));
    let logs = tracing_subscriber::fmt().with_env_filter(filter);
    let Some(files) = files else {
        let logs = logs.with_writer(io::stderr);
        if json {
            logs.json().init();
        } else {
            logs.with_ansi(io::stderr().is_terminal()).init();
        }
        return Ok(());
    };
    let dir = files.dir.clone();
    let files = Files::open(files).with_context(|| format!("log_directory = {:?}", dir.display()))?;
    reopen_on_hangup(files.clone())?;
    let logs = logs.with_writer(files).with_ansi(false);
    if json {
        logs.json().init()
    } else {
        logs.init()
    }
    Ok(())
}

/// Waits for SIGHUP on a thread of its own.
fn reopen_on_hangup(files: Files) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut hangup = runtime.block_on(async { signal(SignalKind::hangup()) })?;
    let wait = move || {
        while runtime.block_on(hangup.recv()).is_some() {
            files.0.lock().open = BTreeMap::new();
            tracing::info!("SIGHUP: log files are opened again");
        }
    };
    std::thread::Builder::new().name("logs".to_owned()).spawn(wait)?;
    Ok(())
}

/// The files of a directory.
#[derive(Clone)]
struct Files(Arc<Mutex<Open>>);

struct Open {
    settings: LogFiles,
    /// By role, opened when there is something to write.
    open: BTreeMap<&'static str, (File, u64)>,
}

impl Files {
    /// The directory is made, and it is found out now whether it can be written.
    fn open(settings: LogFiles) -> io::Result<Files> {
        std::fs::create_dir_all(&settings.dir)?;
        let mut open = Open { settings, open: BTreeMap::new() };
        open.file(REST)?;
        Ok(Files(Arc::new(Mutex::new(open))))
    }
}

impl Open {
    fn path(&self, role: &str) -> PathBuf {
        self.settings.dir.join(format!("{role}.log"))
    }

    fn file(&mut self, role: &'static str) -> io::Result<&mut (File, u64)> {
        if self.open.get(role).is_some_and(|(_, bytes)| *bytes >= self.settings.file_bytes_max) {
            self.open.remove(role);
            rotate(&self.path(role), self.settings.files_kept)?;
        }
        if !self.open.contains_key(role) {
            let file = OpenOptions::new().create(true).append(true).open(self.path(role))?;
            let bytes = file.metadata()?.len();
            self.open.insert(role, (file, bytes));
        }
        self.open.get_mut(role).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn write(&mut self, role: &'static str, line: &[u8]) -> io::Result<()> {
        let (file, bytes) = self.file(role)?;
        *bytes += line.len() as u64;
        file.write_all(line)
    }
}

/// `NAME.log` becomes `NAME.log.1`, and so on; `kept` of them stay.
fn rotate(path: &Path, kept: u32) -> io::Result<()> {
    let numbered = |number: u32| match number {
        0 => path.to_owned(),
        number => path.with_extension(format!("log.{number}")),
    };
    if kept == 0 {
        return std::fs::remove_file(path);
    }
    for number in (0..kept).rev() {
        match std::fs::rename(numbered(number), numbered(number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Writes one event's line.
struct Line {
    files: Files,
    role: &'static str,
}

impl Write for Line {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Err(error) = self.files.0.lock().write(self.role, line) {
            eprint!("{}.log cannot be written ({error}): {}", self.role, String::from_utf8_lossy(line));
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Files {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { files: self.clone(), role: REST }
    }

    fn make_writer_for(&'a self, event: &Metadata<'_>) -> Line {
        let role = event.target().strip_prefix(TARGET).and_then(|name| ROLES.into_iter().find(|role| *role == name));
        Line { files: self.clone(), role: role.unwrap_or(REST) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_election_is_no_warning_to_the_operator() {
        let dir = tempfile::tempdir().unwrap();
        let settings = LogFiles { dir: dir.path().to_owned(), file_bytes_max: 1 << 20, files_kept: 1 };
        let logs = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(DEFAULT_FILTER));
        let logs = logs.with_ansi(false).with_writer(Files::open(settings).unwrap()).finish();
        tracing::subscriber::with_default(logs, || {
            tracing::warn!(target: "openraft::engine::handler", "a vote is refused");
            tracing::error!(target: "openraft::core", "its state is lost");
            tracing::info!("of our own");
        });
        let log = std::fs::read_to_string(dir.path().join("holdfast.log")).unwrap();
        assert!(log.contains("its state is lost") && log.contains("of our own"), "{log}");
        assert!(!log.contains("a vote is refused"), "{log}");
    }

    #[test]
    fn files_are_by_role_rotate_and_are_opened_again() {
        let dir = tempfile::tempdir().unwrap();
        let settings = LogFiles { dir: dir.path().join("logs"), file_bytes_max: 10, files_kept: 2 };
        let files = Files::open(settings).unwrap();
        let content = |name: &str| std::fs::read_to_string(dir.path().join("logs").join(name)).ok();
        for line in ["first line\n", "second line\n", "third line\n", "fourth line\n"] {
            files.0.lock().write("ship", line.as_bytes()).unwrap();
        }
        assert_eq!(content("ship.log").as_deref(), Some("fourth line\n"));
        assert_eq!(content("ship.log.1").as_deref(), Some("third line\n"));
        assert_eq!(content("ship.log.2").as_deref(), Some("second line\n"));
        assert_eq!(content("ship.log.3"), None);
        assert_eq!(content("holdfast.log").as_deref(), Some(""));
        // Somebody has moved it away, and says so.
        std::fs::rename(dir.path().join("logs/holdfast.log"), dir.path().join("moved")).unwrap();
        files.0.lock().open = BTreeMap::new();
        files.0.lock().write(REST, b"x\n").unwrap();
        assert_eq!(content("holdfast.log").as_deref(), Some("x\n"));
    }
}
