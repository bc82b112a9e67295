//! Logs: to stderr, readable or as JSON, or into a directory, where each role among nodes has a file of its own.
//!
//! What is logged is decided by the environment variable `HOLDFAST_LOG`, else by `log` in holdfast.toml, else by
//! [`DEFAULT_FILTER`]: a level, and levels of single targets, for example `info,holdfast_wire=debug`. SIGHUP reads
//! holdfast.toml's again.
//!
//! | file | what |
//! |---|---|
//! | `holdfast.log` | everything else |
//! | `ship.log`, `catchup.log` | of a master: standbys that connect, disconnect, and have caught up |
//! | `receive.log`, `apply.log` | of a standby |
//! | `archive.log`, `governor.log`, `standby.log` | archived segments; a standby that commits no longer wait for; what `notify_command` is given |
//!
//! A file that has grown to `log_file_bytes_max` becomes `NAME.1`, that one `NAME.2` and so on; the oldest is removed. SIGHUP
//! opens all of them again, for programs that move logs away themselves.
//!
//! Failure: a line that cannot be written into a file goes to stderr, with the reason; the server continues. A `log` that
//! cannot be read at SIGHUP is a warning, and the one before it stays.

use crate::log_events::LogEvents;
use anyhow::{Context, bail};
use holdfast_node::Config;
use holdfast_node::config::{FILE_NAME, LogFiles};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tracing::Metadata;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// What a role's log target begins with; the role is the file's name.
const TARGET: &str = "holdfast::";
/// The roles that have a file.
const ROLES: [&str; 7] = ["ship", "catchup", "receive", "apply", "archive", "governor", "standby"];
/// What is logged where nothing is configured.
const DEFAULT_FILTER: &str = "info,openraft=error,openraft::replication=off";
/// What is logged of openraft where that is not configured. Errors only: it warns of what belongs to any election; what an
/// operator has to know of the control plane is logged by Holdfast. Of replication nothing: it repeats several times a second
/// that a member does not answer, which Holdfast logs once.
const OPENRAFT: &str = "openraft=error,openraft::replication=off";
/// The environment variable that overrides `log`.
const VARIABLE: &str = "HOLDFAST_LOG";
/// The file of all other targets.
const REST: &str = "holdfast";

/// Replaces the filter of the installed subscriber.
type Reload = Box<dyn Fn(EnvFilter) -> Result<(), tracing_subscriber::reload::Error> + Send>;

/// Installs the subscriber for this process. `server`: its data directory and configuration, for files and for SIGHUP.
pub fn start(json: bool, server: Option<(&Path, &Config)>) -> anyhow::Result<()> {
    let filter = filter(server.map_or("", |(_, config)| &config.log))?;
    let files = match server.and_then(|(data, config)| config.log_files(data)) {
        Some(settings) => {
            let dir = settings.dir.clone();
            Some(Files::open(settings).with_context(|| format!("log_directory = {:?}", dir.display()))?)
        }
        None => None,
    };
    let reload = match &files {
        Some(files) => install(json, files.clone(), false, filter),
        None => install(json, io::stderr, io::stderr().is_terminal(), filter),
    };
    server.map_or(Ok(()), |(data, _)| heed_hangup(files, reload, data.join(FILE_NAME)))
}

/// From the environment, else as configured, else the default.
fn filter(configured: &str) -> anyhow::Result<EnvFilter> {
    match std::env::var(VARIABLE) {
        Ok(text) if !text.trim().is_empty() => {
            EnvFilter::try_new(&text).with_context(|| format!("the environment variable {VARIABLE} = \"{text}\""))
        }
        _ if configured.trim().is_empty() => Ok(EnvFilter::new(DEFAULT_FILTER)),
        _ => configured_filter(configured).with_context(|| format!("log = \"{configured}\"")),
    }
}

/// A word that is no level would be taken for a target, and everything else would be silent.
fn configured_filter(text: &str) -> anyhow::Result<EnvFilter> {
    let directives: Vec<&str> = text.split(',').map(str::trim).collect();
    for directive in &directives {
        let level = directive.rsplit_once('=').map_or(*directive, |(_, level)| level);
        if level.is_empty() || level.parse::<LevelFilter>().is_err() || level.parse::<u8>().is_ok() {
            bail!("\"{level}\" is not a level; levels are error, warn, info, debug, trace and off");
        }
    }
    let names_openraft = directives.iter().any(|directive| directive.starts_with("openraft"));
    let directives = directives.join(",");
    Ok(EnvFilter::try_new(if names_openraft { directives } else { format!("{OPENRAFT},{directives}") })?)
}

fn install<W>(json: bool, writer: W, ansi: bool, filter: EnvFilter) -> Reload
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(ansi);
    if json {
        // The fields of a session's line have the names of PostgreSQL's JSON log; they are at the top, as there.
        let logs = logs.json().flatten_event(true).with_filter_reloading();
        let handle = logs.reload_handle();
        logs.finish().with(LogEvents).init();
        Box::new(move |filter| handle.reload(filter))
    } else {
        let logs = logs.with_filter_reloading();
        let handle = logs.reload_handle();
        logs.finish().with(LogEvents).init();
        Box::new(move |filter| handle.reload(filter))
    }
}

/// Waits for SIGHUP on a thread of its own: opens the files again, and reads `log` again.
fn heed_hangup(files: Option<Files>, reload: Reload, config: PathBuf) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut hangup = runtime.block_on(async { signal(SignalKind::hangup()) })?;
    let read = move || -> anyhow::Result<String> {
        let log = Config::parse(&std::fs::read_to_string(&config)?).map_err(anyhow::Error::msg)?.log;
        reload(filter(&log)?)?;
        Ok(log)
    };
    let wait = move || {
        while runtime.block_on(hangup.recv()).is_some() {
            if let Some(files) = &files {
                files.0.lock().open = BTreeMap::new();
                tracing::info!("SIGHUP: log files are opened again");
            }
            match read() {
                Ok(log) => {
                    holdfast_node::settings_were_read();
                    tracing::info!("SIGHUP: {FILE_NAME} was read again: log = \"{log}\"");
                }
                Err(error) => tracing::warn!("SIGHUP: {FILE_NAME}: {error:#}; the log levels stay as they are"),
            }
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
    /// Makes the directory, and fails now if it cannot be written.
    fn open(settings: LogFiles) -> io::Result<Files> {
        DirBuilder::new().recursive(true).mode(0o700).create(&settings.dir)?;
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
            let file = OpenOptions::new().create(true).append(true).mode(0o600).open(self.path(role))?;
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

    /// What a filter lets through.
    fn logged(filter: EnvFilter) -> String {
        let dir = tempfile::tempdir().unwrap();
        let settings = LogFiles { dir: dir.path().to_owned(), file_bytes_max: 1 << 20, files_kept: 1 };
        let logs = tracing_subscriber::fmt().with_env_filter(filter);
        let logs = logs.with_ansi(false).with_writer(Files::open(settings).unwrap()).finish();
        tracing::subscriber::with_default(logs, || {
            tracing::warn!(target: "openraft::engine::handler", "a vote is refused");
            tracing::error!(target: "openraft::replication", "a member does not answer");
            tracing::error!(target: "openraft::core", "its state is lost");
            tracing::info!("of our own");
        });
        std::fs::read_to_string(dir.path().join("holdfast.log")).unwrap()
    }

    #[test]
    fn an_election_is_no_warning_to_the_operator() {
        for log in [logged(EnvFilter::new(DEFAULT_FILTER)), logged(configured_filter("info").unwrap())] {
            assert!(log.contains("its state is lost") && log.contains("of our own"), "{log}");
            assert!(!log.contains("a vote is refused") && !log.contains("a member does not answer"), "{log}");
        }
        let all = logged(configured_filter("info,openraft=info").unwrap());
        assert!(all.contains("a vote is refused") && all.contains("a member does not answer"), "{all}");
    }

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for right in ["info", "off", "warn,holdfast::standby=debug", " info , holdfast_wire=TRACE"] {
            assert!(configured_filter(right).is_ok(), "{right}");
        }
        for wrong in ["verbose", "info,holdfast_wire", "info,,debug", "holdfast_wire=loud", "3"] {
            assert!(configured_filter(wrong).unwrap_err().to_string().contains("levels are error"), "{wrong}");
        }
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
        // The file was moved away, and SIGHUP announces that.
        std::fs::rename(dir.path().join("logs/holdfast.log"), dir.path().join("moved")).unwrap();
        files.0.lock().open = BTreeMap::new();
        files.0.lock().write(REST, b"x\n").unwrap();
        assert_eq!(content("holdfast.log").as_deref(), Some("x\n"));
    }
}
