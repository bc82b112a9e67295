//! The mirror: a second data directory on another disk, kept by the same process, so that one dead disk loses nothing.
//!
//! The server runs a standby of itself: an engine on the mirror's directory receives the trail while it is written, over
//! the link that other nodes use. No commit at any level is acknowledged before the mirror's trail has it durable; the
//! engine's gate sees to that. What the mirror costs and promises is in `docs/mirror.md`.
//!
//! | file | what |
//! |---|---|
//! | [`files`] | what is written down about it, on both disks |
//! | [`place`] | what stands in its directory, and what is to be done with that |
//! | [`keeper`] | copies, opens, follows, and does so again |
//! | [`ends`] | the two ends of the link |
//! | [`state`] | in service or not, and what commits do meanwhile |
//! | [`settings`] | its copy of holdfast.toml |
//! | [`promote`] | it becomes a data directory like any other |
//!
//! Failure: whatever happens to the mirror's disk ends the mirror, never the server; what happens to the main disk ends the
//! process as it always does.

mod ends;
mod files;
mod keeper;
mod place;
mod promote;
mod settings;
mod state;

pub(crate) use ends::SLOT;
pub use place::{MirrorRefused, same_device};
pub use promote::{PromoteError, Promoted, promote};

use crate::config::Config;
use crate::replication::Notify;
use ends::Source;
use files::{CopyState, MirrorOf, Record, RecordState};
use holdfast_engine::{Engine, Options};
use holdfast_sql::catalogue::StandbyRow;
use holdfast_standby::governor::GovernorOptions;
use holdfast_standby::{Governor, Hub, SyncSet};
use holdfast_types::Epoch;
use keeper::{Keeper, link_options};
use serde_json::json;
use state::{Phase, Setup, Shared, unix_ms};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Page versions in memory of the mirror's engine, per volume: it serves nobody.
const MEMORY_BYTES_MAX: u64 = 16 << 20;

/// Between two looks at how the mirror is.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How long a server that starts waits for its mirror to have what was recovered. Then it lets clients in; commits wait.
const SETTLE_MAX: Duration = Duration::from_secs(30);

/// How long a stop waits for the mirror. Its disk may hang.
const STOP_MAX: Duration = Duration::from_secs(30);

/// The mirror of a server, while that has its role.
pub struct Mirror {
    shared: Arc<Shared>,
    hub: Arc<Hub>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

/// Whether a directory may be served at all, and with the mirror that is configured. Nothing is changed.
pub fn check(dir: &Path, config: &Config, is_master: bool) -> Result<(), MirrorRefused> {
    if let Some(of) = MirrorOf::read(dir).map_err(MirrorRefused::Files)?
        && of.state != CopyState::Promoted
    {
        return Err(MirrorRefused::IsAMirror { dir: dir.to_owned(), main: of.main });
    }
    if !is_master {
        return Ok(());
    }
    let record = Record::read(dir).map_err(MirrorRefused::Files)?;
    if let Some(record) = record.as_ref().filter(|record| record.state == RecordState::Promoted)
        && place::trail_of(dir)?.is_none_or(|(_, epoch)| epoch.0 < record.epoch)
    {
        let (main, mirror) = (dir.to_owned(), record.mirror.clone());
        return Err(MirrorRefused::Promoted { main, mirror, epoch: Epoch(record.epoch) });
    }
    if !config.has_mirror() {
        return Ok(());
    }
    keeper::check(dir, &absolute(&config.mirror), record.as_ref())
}

fn absolute(path: &Path) -> PathBuf {
    // An error is that of an empty path, or that the current directory is gone.
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// A server that is about to acknowledge without the mirror it had: that is written down first, on both disks where they
/// take it.
fn leave(dir: &Path, engine: &Engine, notify: &Notify) -> Result<(), MirrorRefused> {
    let Some(mut record) = Record::read(dir).map_err(MirrorRefused::Files)? else { return Ok(()) };
    if record.state != RecordState::InService {
        return Ok(());
    }
    let mirror = record.mirror.clone();
    (record.state, record.since_unix_ms) = (RecordState::LeftBehind, unix_ms());
    record.lsn = engine.trail().durable().0;
    record.write(dir).map_err(MirrorRefused::Files)?;
    let said = MirrorOf::read(&mirror).and_then(|of| match of {
        Some(of) if of.copy == record.copy && of.state == CopyState::Following => {
            MirrorOf { state: CopyState::LeftBehind, ..of }.write(&mirror)
        }
        _ => Ok(()),
    });
    if let Err(error) = said {
        tracing::warn!("the mirror that is left behind cannot be told: {error}");
    }
    if let Err(error) = keeper::release_slot(engine) {
        tracing::warn!("the trail is still kept for the mirror: {error}");
    }
    notify.tell(&format!("this server has no mirror any more: {} is left behind", mirror.display()));
    Ok(())
}

/// A stopped server's directory is about to be changed by a command, past its mirror: that is written down first. The next
/// start brings the mirror up to date.
pub fn leave_offline(dir: &Path) -> Result<(), MirrorRefused> {
    let record = Record::read(dir).map_err(MirrorRefused::Files)?;
    let Some(record) = record.filter(|record| record.state == RecordState::InService) else { return Ok(()) };
    let left = Record { state: RecordState::LeftBehind, since_unix_ms: unix_ms(), ..record };
    left.write(dir).map_err(MirrorRefused::Files)
}

/// Starts a master's mirror, where one is configured, and waits until clients may be let in.
pub fn keep(
    name: &str,
    dir: &Path,
    engine: &Engine,
    config: &Config,
    is_master: bool,
    notify: &Notify,
) -> Result<Option<Mirror>, MirrorRefused> {
    if !is_master || !config.has_mirror() {
        if config.has_mirror() {
            tracing::warn!("a standby keeps no mirror: it will have one when it is promoted");
        }
        leave(dir, engine, notify)?;
        return Ok(None);
    }
    let mirror = Mirror::start(name, dir, engine, config, notify)?;
    mirror.until_settled()?;
    Ok(Some(mirror))
}

impl Mirror {
    /// Starts the mirror of a master that lets nobody in yet. From here on commits wait for it, unless it was left behind
    /// before and they need not.
    fn start(
        name: &str,
        dir: &Path,
        engine: &Engine,
        config: &Config,
        notify: &Notify,
    ) -> Result<Mirror, MirrorRefused> {
        let (dir, mirror) = (absolute(dir), absolute(&config.mirror));
        let found = Record::read(&dir).map_err(MirrorRefused::Files)?;
        let record = match found {
            Some(record) if record.mirror == mirror && record.state != RecordState::Promoted => record,
            Some(_) => {
                leave(&dir, engine, notify)?;
                Record::begin(&mirror, "")
            }
            None => Record::begin(&mirror, ""),
        };
        if same_device(&dir, &mirror) == Some(true) {
            notify.tell(&format!(
                "the mirror {} is on the SAME DEVICE as {}: it does not help when that dies. Put it on another disk",
                mirror.display(),
                dir.display()
            ));
        }
        let governor = GovernorOptions { lag_bytes_max: config.standby_lag_bytes_max, ..GovernorOptions::default() };
        let source = Arc::new(Source {
            name: name.to_owned(),
            engine: engine.clone(),
            dir: dir.clone(),
            mirror: mirror.clone(),
            broken: parking_lot::Mutex::default(),
        });
        let hub = Hub::new(source.clone(), link_options(), SyncSet::empty(), Governor::new(governor));
        let setup = Setup {
            main: engine.clone(),
            dir,
            mirror,
            away: config.mirror_away,
            silence_max: Duration::from_millis(config.standby_timeout_ms),
            notify: notify.clone(),
        };
        let shared = Shared::new(setup, record);
        let (stop, stopping) = watch::channel(false);
        let keeper = Keeper {
            shared: shared.clone(),
            hub: hub.clone(),
            source,
            options: options(config),
            stop: stopping.clone(),
        };
        let mut mirror = Mirror { shared: shared.clone(), hub, stop, threads: Vec::new() };
        mirror.spawn("mirror", move || keeper.run())?;
        mirror.spawn("mirror watch", move || {
            while !*stopping.borrow() {
                shared.look();
                std::thread::sleep(LOOK_EVERY);
            }
        })?;
        Ok(mirror)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), MirrorRefused> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(MirrorRefused::Files)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Waits until clients may be let in. What was recovered but perhaps not acknowledged is then on both disks, or it was
    /// told why not.
    fn until_settled(&self) -> Result<(), MirrorRefused> {
        self.shared.until_settled(SETTLE_MAX).map_err(MirrorRefused::Told)
    }

    /// How long the next boxcar waits because the mirror cannot keep up.
    pub fn delay(&self) -> impl Fn(u64) -> Duration + Send + Sync + 'static {
        let hub = Arc::downgrade(&self.hub);
        move |bytes| hub.upgrade().map_or(Duration::ZERO, |hub| hub.charge(bytes))
    }

    pub fn status(&self) -> Status {
        Status { shared: self.shared.clone(), hub: self.hub.clone() }
    }

    /// Ends it in order: the mirror gets what was written last. The engine is closed after that.
    fn stop(&mut self) {
        self.stop.send_replace(true);
        let until = Instant::now() + STOP_MAX;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
            if !thread.is_finished() {
                tracing::warn!("the mirror's disk does not answer: it is left to the end of the process");
            } else if thread.join().is_err() {
                tracing::error!("a thread of the mirror panicked");
            }
        }
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the mirror's engine is opened with.
fn options(config: &Config) -> Options {
    Options { memory_bytes_max: MEMORY_BYTES_MAX.min(config.memory_bytes_max), ..config.options() }
}

/// How the mirror is, for views and commands.
#[derive(Clone)]
pub struct Status {
    shared: Arc<Shared>,
    hub: Arc<Hub>,
}

impl Status {
    /// Its row among the standbys. It is never counted as synchronous: that is said of other nodes.
    pub fn row(&self) -> StandbyRow {
        let phase = self.shared.phase();
        let report = self.hub.standbys().into_iter().next();
        let governed = self.hub.governed().into_iter().next();
        let of = |lsn: Option<u64>| lsn.unwrap_or_default();
        // It says itself what it has, before its acks say it.
        let has = self.shared.has().0;
        StandbyRow {
            name: place::NAME.to_owned(),
            connected: matches!(phase, Phase::CatchingUp | Phase::InService),
            state: phase.name().to_owned(),
            sent_lsn: of(report.as_ref().map(|r| r.sent_lsn)).max(has),
            received_lsn: of(report.as_ref().and_then(|r| r.received_lsn)).max(has),
            durable_lsn: has,
            applied_lsn: of(report.as_ref().and_then(|r| r.applied_lsn)),
            apply_bytes_per_s: of(governed.as_ref().and_then(|g| g.rate_bytes_per_s)),
            delay_us: of(governed.as_ref().map(|g| g.delay_us)),
            reason: self.what_commits_do(&phase),
            ..StandbyRow::default()
        }
    }

    pub fn json(&self) -> serde_json::Value {
        let (phase, record) = (self.shared.phase(), self.shared.record());
        let why = match &phase {
            Phase::Away { why } | Phase::Refused { why } => Some(why.clone()),
            _ => None,
        };
        let copied = match phase {
            Phase::Copying { compared_bytes, total_bytes } => Some(json!([compared_bytes, total_bytes])),
            _ => None,
        };
        json!({
            "directory": self.shared.setup.mirror.display().to_string(), "state": phase.name(),
            "commits_wait": self.shared.waits(), "commits": self.what_commits_do(&phase), "why": why,
            "copied_of_bytes": copied, "durable_lsn": self.shared.has().0,
            "has_everything": record.state == RecordState::InService,
            "left_behind_at_lsn": (record.state == RecordState::LeftBehind).then_some(record.lsn),
            "distrusted": record.distrusted,
        })
    }

    fn what_commits_do(&self, phase: &Phase) -> String {
        match phase {
            Phase::Refused { .. } => "nothing is acknowledged".to_owned(),
            Phase::InService => "commits wait for both disks".to_owned(),
            Phase::Away { why } if self.shared.waits() => format!("commits WAIT for the mirror: {why}"),
            Phase::Away { why } => format!("commits go on WITHOUT the mirror: {why}"),
            _ if self.shared.waits() => "commits WAIT for the mirror".to_owned(),
            _ => "commits go on WITHOUT the mirror".to_owned(),
        }
    }
}
