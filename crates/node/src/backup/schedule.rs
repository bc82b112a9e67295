//! When is a dump or a drill due, and what becomes of it.
//!
//! | dumps | |
//! |---|---|
//! | `dump.node` is empty | the master dumps, and after a promotion the new one |
//! | it is this node's name | this node dumps, also as a standby |
//! | the last one is `dump.every` old, or went to another place, or there is none, or a database was imported since | one is made, then old ones are removed |
//! | one fails | it is tried again after [`RETRY`], twice as long with each failure, at most [`RETRY_MAX`] |
//!
//! Drills are due in the same way, once there is a dump; one that failed is repeated after `drill.every`. Only one command runs
//! at a time. A clock that was set back does not delay them: a last time in the future counts as long ago.

use super::command::{self, Ended};
use super::record::{DrillDone, DumpDone, Failure, Record};
use super::report::{BackupReport, age_ms, age_without_dump_ms, now_ms, restorable};
use crate::config::{Config, DrillSettings, DumpSettings, KeepSettings};
use holdfast_engine::Engine;
use holdfast_replication::Notify;
use parking_lot::Mutex;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

const LOOK_EVERY: Duration = Duration::from_millis(200);
const RETRY: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_secs(900);
/// A last time that is this far in the future is not believed.
const AHEAD_MAX_MS: u64 = 60_000;
/// A dump shares the machine with the server.
const THREADS: &str = "2";

/// What does not change with the role, and what was done.
pub struct Backups {
    dir: PathBuf,
    name: String,
    /// Where the server's own links reach it.
    at: String,
    dump: DumpSettings,
    drill: DrillSettings,
    archive: String,
    /// Empty: none.
    archive_identity: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    record: Record,
    doing: Doing,
    failures: u32,
    retry_at: Option<Instant>,
    /// The restorable position whose age was looked up last, and when the change behind it was written.
    behind: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Doing {
    #[default]
    Waiting,
    Dumping,
    Drilling,
    Failing,
    /// Another node dumps.
    Elsewhere,
}

impl Doing {
    fn word(self) -> &'static str {
        match self {
            Doing::Waiting => "waiting",
            Doing::Dumping => "dumping",
            Doing::Drilling => "drilling",
            Doing::Failing => "failing",
            Doing::Elsewhere => "elsewhere",
        }
    }
}

/// A server in one role.
pub struct Role {
    pub engine: Engine,
    pub notify: Notify,
    pub stopping: watch::Receiver<bool>,
    /// Whether clients, and so the links of commands, are admitted.
    pub serves: Box<dyn Fn() -> bool + Send>,
}

/// What `holdfast dump create --json` prints, as far as it is kept.
#[derive(Deserialize)]
struct Created {
    name: String,
    lsn: u64,
    clock_unix_ms: u64,
    bytes: u64,
    stored_bytes: u64,
    seconds: f64,
    unregistered: Option<String>,
    warnings: Vec<String>,
}

impl Created {
    /// What an operator should know of a dump that has succeeded.
    fn warning(&self) -> Option<String> {
        let earlier = self.warnings.iter().map(|warning| format!("an earlier dump: {warning}"));
        let unknown =
            self.unregistered.iter().map(|why| format!("the archive does not know of the place of dumps: {why}"));
        Some(earlier.chain(unknown).collect::<Vec<_>>().join("; ")).filter(|text| !text.is_empty())
    }
}

/// What `holdfast dump drill --json` prints, as far as it is kept.
#[derive(Deserialize)]
struct Drilled {
    ok: bool,
    text: String,
    lsn: Option<u64>,
    restore_seconds: f64,
    seconds: f64,
}

impl Backups {
    pub fn new(dir: &Path, name: &str, at: String, config: &Config) -> Arc<Backups> {
        let record = if config.dump.to.is_empty() { Record::default() } else { Record::read(dir) };
        Arc::new(Backups {
            dir: dir.to_owned(),
            name: name.to_owned(),
            at,
            dump: config.dump.clone(),
            drill: config.drill.clone(),
            archive: config.archive.clone(),
            archive_identity: config.archive_identity.clone(),
            state: Mutex::new(State { record, ..State::default() }),
        })
    }

    pub fn is_on(&self) -> bool {
        !self.dump.to.is_empty()
    }

    /// Dumps and drills until the role ends. Blocks.
    pub fn run(&self, role: &Role) {
        while !*role.stopping.borrow() {
            if !(role.serves)() {
                // It opens, or changes its role.
            } else if !self.is_this_node(role) {
                self.state.lock().doing = Doing::Elsewhere;
            } else if self.is_dump_due(role) {
                self.dump_now(role);
            } else if self.is_drill_due() {
                self.drill_now(role);
            } else {
                let mut state = self.state.lock();
                state.doing = if state.failures > 0 { Doing::Failing } else { Doing::Waiting };
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn is_this_node(&self, role: &Role) -> bool {
        match self.dump.node.as_str() {
            "" => !role.engine.is_standby() && role.engine.has_right(),
            node => node == self.name,
        }
    }

    fn is_dump_due(&self, role: &Role) -> bool {
        let state = self.state.lock();
        if let Some(at) = state.retry_at {
            return Instant::now() >= at;
        }
        let is_of_this =
            state.record.to == self.dump.to && state.record.trail == role.engine.trail().trail_id().to_string();
        let last = state.record.dump.as_ref().filter(|_| is_of_this).map(|dump| dump.at_unix_ms);
        state.record.due || is_due(last, self.dump.every)
    }

    fn is_drill_due(&self) -> bool {
        let state = self.state.lock();
        let has_dump = state.record.dump.is_some() && state.record.to == self.dump.to;
        has_dump
            && !self.drill.every.is_zero()
            && is_due(state.record.drill.as_ref().map(|d| d.at_unix_ms), self.drill.every)
    }

    fn dump_now(&self, role: &Role) {
        self.state.lock().doing = Doing::Dumping;
        let mut arguments = words(&["dump", "create", "--at", &self.at, "--to", &self.dump.to, "--claim", "--json"]);
        arguments.extend(words(&["--threads", THREADS]));
        for recipient in self.dump.encrypt_to.split_whitespace() {
            arguments.extend(words(&["--encrypt-to", recipient]));
        }
        self.add_identities(&mut arguments);
        self.add_rate(&mut arguments);
        let Some(ended) = self.run_command(&arguments, role) else { return };
        let created = ended.and_then(|ended| match ended.status.success() {
            true => serde_json::from_str(&ended.output).map_err(|e| format!("its report cannot be read: {e}")),
            false => Err(ended.error),
        });
        match created {
            Ok(created) => self.dumped(created, role),
            Err(why) => self.dump_failed(why, role),
        }
    }

    fn dumped(&self, created: Created, role: &Role) {
        let warning = created.warning();
        let Created { name, lsn, clock_unix_ms, bytes, stored_bytes, seconds, .. } = created;
        tracing::info!(target: "holdfast::archive", dump = name, lsn, bytes, stored_bytes, seconds, "dumped to {}", self.dump.to);
        let trail = role.engine.trail().trail_id().to_string();
        let before = {
            let mut state = self.state.lock();
            let record = &mut state.record;
            (record.to, record.trail) = (self.dump.to.clone(), trail.clone());
            record.dump =
                Some(DumpDone { name, lsn, clock_unix_ms, at_unix_ms: now_ms(), seconds, bytes, stored_bytes });
            record.dumps += 1;
            record.due = false;
            if let Some(text) = warning {
                tracing::warn!(target: "holdfast::archive", "dumped to {}: {text}", self.dump.to);
                record.last_failure = Some(Failure { at_unix_ms: now_ms(), text });
            }
            record.write(&self.dir);
            state.retry_at = None;
            std::mem::take(&mut state.failures)
        };
        if before > 0 {
            role.notify.info(&format!("{}: the dump to {} has succeeded again", self.name, self.dump.to));
        }
        self.forget_old(&trail, role);
    }

    fn dump_failed(&self, why: String, role: &Role) {
        let (failures, pause) = {
            let mut state = self.state.lock();
            state.failures += 1;
            let pause = RETRY.saturating_mul(1 << (state.failures - 1).min(16)).min(RETRY_MAX);
            state.retry_at = Some(Instant::now() + pause);
            state.record.dump_failures += 1;
            state.record.last_failure = Some(Failure { at_unix_ms: now_ms(), text: why.clone() });
            state.record.write(&self.dir);
            (state.failures, pause)
        };
        let text = format!(
            "{}: the dump to {} failed: {why}; it is tried again in {} s",
            self.name,
            self.dump.to,
            pause.as_secs()
        );
        // Once for each time that dumps begin to fail.
        if failures == 1 { role.notify.warn(&text) } else { tracing::warn!("{text}") }
    }

    /// Removes dumps by the rules, and what no dump needs from the archive.
    fn forget_old(&self, trail: &str, role: &Role) {
        let KeepSettings { last, daily, weekly, monthly } = self.dump.keep;
        if last + daily + weekly + monthly == 0 {
            return;
        }
        let mut arguments = words(&["dump", "forget", "--from", &self.dump.to, "--trail", trail, "--json"]);
        self.add_identities(&mut arguments);
        for (rule, count) in [("last", last), ("daily", daily), ("weekly", weekly), ("monthly", monthly)] {
            arguments.extend([format!("--keep-{rule}"), count.to_string()]);
        }
        if !self.archive.is_empty() && !self.dump.archive_keep.is_zero() {
            let hours = self.dump.archive_keep.as_secs().div_ceil(3600);
            arguments.extend(words(&["--archive", &self.archive, "--archive-keep-hours", &hours.to_string()]));
        }
        match self.run_command(&arguments, role) {
            Some(Ok(ended)) if !ended.status.success() => self.forget_failed(&ended.error, role),
            Some(Err(why)) => self.forget_failed(&why, role),
            _ => {}
        }
    }

    fn forget_failed(&self, why: &str, role: &Role) {
        let text = format!("{}: old dumps in {} were not removed: {why}", self.name, self.dump.to);
        {
            let record = &mut self.state.lock().record;
            record.last_failure = Some(Failure { at_unix_ms: now_ms(), text: text.clone() });
            record.write(&self.dir);
        }
        role.notify.warn(&text);
    }

    fn drill_now(&self, role: &Role) {
        self.state.lock().doing = Doing::Drilling;
        let scratch = match self.drill.scratch.as_os_str().is_empty() {
            true => self.dir.join("drill"),
            false => self.drill.scratch.clone(),
        };
        let scratch = scratch.display().to_string();
        let mut arguments =
            words(&["dump", "drill", "--from", &self.dump.to, "--at", &self.at, "--scratch", &scratch, "--json"]);
        arguments.extend(words(&["--threads", THREADS]));
        if !self.archive.is_empty() {
            arguments.extend(words(&["--archive", &self.archive]));
        }
        self.add_identities(&mut arguments);
        self.add_rate(&mut arguments);
        let began = Instant::now();
        let Some(ended) = self.run_command(&arguments, role) else { return };
        let drilled = ended.and_then(|ended| serde_json::from_str::<Drilled>(&ended.output).map_err(|_| ended.error));
        let done = match drilled {
            Ok(drilled) => DrillDone {
                at_unix_ms: now_ms(),
                ok: drilled.ok,
                text: drilled.text,
                lsn: drilled.lsn,
                restore_seconds: drilled.restore_seconds,
                seconds: drilled.seconds,
            },
            Err(why) => DrillDone {
                at_unix_ms: now_ms(),
                text: format!("the drill of the dumps in {} could not be done: {why}", self.dump.to),
                seconds: began.elapsed().as_secs_f64(),
                ..DrillDone::default()
            },
        };
        self.drilled(done, role);
    }

    fn drilled(&self, done: DrillDone, role: &Role) {
        let (ok, text) = (done.ok, format!("{}: {}", self.name, done.text));
        {
            let mut state = self.state.lock();
            let record = &mut state.record;
            record.drills += 1;
            if !ok {
                record.drill_failures += 1;
                record.last_failure = Some(Failure { at_unix_ms: done.at_unix_ms, text: done.text.clone() });
            }
            record.drill = Some(done);
            record.write(&self.dir);
        }
        if ok { role.notify.info(&text) } else { role.notify.warn(&text) }
    }

    fn add_identities(&self, arguments: &mut Vec<String>) {
        if !self.dump.identity.as_os_str().is_empty() {
            arguments.extend(["--identity".to_owned(), self.dump.identity.display().to_string()]);
        }
        if !self.archive.is_empty() && !self.archive_identity.as_os_str().is_empty() {
            arguments.extend(["--archive-identity".to_owned(), self.archive_identity.display().to_string()]);
        }
    }

    fn add_rate(&self, arguments: &mut Vec<String>) {
        if self.dump.rate_mb > 0 {
            arguments.extend(["--rate-mb".to_owned(), self.dump.rate_mb.to_string()]);
        }
    }

    /// `None`: the role ended meanwhile.
    fn run_command(&self, arguments: &[String], role: &Role) -> Option<Result<Ended, String>> {
        let ended = command::run(arguments, || *role.stopping.borrow());
        ended.map_err(|error| format!("the command cannot be run: {error}")).transpose()
    }

    /// What views and metrics show; `None`: the server does not dump itself.
    pub fn report(&self, engine: Option<&Engine>) -> Option<BackupReport> {
        if !self.is_on() {
            return None;
        }
        let mut state = self.state.lock();
        let record = state.record.clone();
        let has_begun = record.to == self.dump.to;
        let dump = record.dump.filter(|_| has_begun);
        let next = |last: Option<u64>, every: Duration| last.map(|last| last + every.as_millis() as u64);
        let (lsn, age) = match (&dump, engine) {
            (Some(dump), Some(engine)) => {
                let lsn = restorable(engine, dump);
                (Some(lsn.0), Some(state.age(engine, lsn.0, dump)))
            }
            (Some(_), None) => (None, None),
            (None, _) => (None, Some(age_without_dump_ms())),
        };
        Some(BackupReport {
            place: self.dump.to.clone(),
            state: state.doing.word(),
            next_dump_unix_ms: next(dump.as_ref().map(|dump| dump.at_unix_ms), self.dump.every),
            next_drill_unix_ms: next(record.drill.as_ref().map(|drill| drill.at_unix_ms), self.drill.every)
                .filter(|_| !self.drill.every.is_zero()),
            dump,
            dumps: record.dumps,
            dump_failures: record.dump_failures,
            last_failure: record.last_failure,
            drill: record.drill,
            drills: record.drills,
            drill_failures: record.drill_failures,
            restorable_lsn: lsn,
            restorable_age_ms: age,
        })
    }
}

impl State {
    /// The age of the first change behind `lsn`; the trail is read once for each position.
    fn age(&mut self, engine: &Engine, lsn: u64, dump: &DumpDone) -> u64 {
        if let Some((known, written)) = self.behind
            && known == lsn
        {
            return now_ms().saturating_sub(written);
        }
        let age = age_ms(engine, holdfast_types::Lsn(lsn), dump);
        self.behind = (age > 0).then(|| (lsn, now_ms().saturating_sub(age)));
        age
    }
}

fn is_due(last: Option<u64>, every: Duration) -> bool {
    let (Some(last), now) = (last, now_ms()) else { return true };
    now.saturating_sub(last) >= every.as_millis() as u64 || last > now + AHEAD_MAX_MS
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_set_back_delays_nothing() {
        let hour = Duration::from_secs(3600);
        assert!(is_due(None, hour));
        assert!(!is_due(Some(now_ms()), hour));
        assert!(is_due(Some(now_ms() - 3_600_001), hour));
        assert!(is_due(Some(now_ms() + 86_400_000), hour));
    }
}
