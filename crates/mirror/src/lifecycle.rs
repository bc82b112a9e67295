//! Starts and stops the mirror of a server, and records when a server runs without the mirror that it had.

use crate::directory::{self, MirrorRefused, same_device};
use crate::loopback_link::LoopbackMaster;
use crate::records::{CopyState, MirrorOf, Record, RecordState};
use crate::state::{MirrorState, Setup, unix_ms};
use crate::status::MirrorStatus;
use crate::supervisor::{self, Supervisor, link_options};
use holdfast_engine::{Engine, Options};
use holdfast_replication::settings::{Away, SettingsFile};
use holdfast_replication::{MirrorView, Notify};
use holdfast_standby::governor::GovernorOptions;
use holdfast_standby::{Governor, Hub, SyncSet};
use holdfast_types::Epoch;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Page versions that the mirror's engine keeps in memory per volume: few, as it serves no client.
const MEMORY_BYTES_MAX: u64 = 16 << 20;

/// How often the mirror's state is checked.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// How long a starting server waits for its mirror to have what was recovered. After that it admits clients; commits wait.
const SETTLE_MAX: Duration = Duration::from_secs(30);

/// How long a stop waits for the mirror, whose disk may hang.
const STOP_MAX: Duration = Duration::from_secs(30);

/// The running mirror of a server.
pub struct Mirror {
    shared: Arc<MirrorState>,
    hub: Arc<Hub>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

/// A mirror as the server's settings configure it.
pub struct MirrorSettings {
    pub directory: PathBuf,
    /// What commits do while the mirror is away.
    pub away: Away,
    /// Bytes that the mirror may lag before the governor delays commits.
    pub lag_bytes_max: u64,
    /// A mirror that does not answer for this long, while commits wait for it, counts as away.
    pub silence_max: Duration,
    /// What the server's own engine is opened with; the mirror's gets the same, with less memory.
    pub engine: Options,
    pub settings_file: Arc<dyn SettingsFile>,
}

/// Checks whether a directory may be served at all, and with the configured mirror. Changes nothing.
pub fn check(dir: &Path, mirror: Option<&Path>, is_master: bool) -> Result<(), MirrorRefused> {
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
        && directory::trail_of(dir)?.is_none_or(|(_, epoch)| epoch.0 < record.epoch)
    {
        let (main, mirror) = (dir.to_owned(), record.mirror.clone());
        return Err(MirrorRefused::Promoted { main, mirror, epoch: Epoch(record.epoch) });
    }
    match mirror {
        Some(mirror) => supervisor::check(dir, &absolute(mirror), record.as_ref()),
        None => Ok(()),
    }
}

fn absolute(path: &Path) -> PathBuf {
    // It fails for an empty path, or when the current directory does not exist.
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Records that this server is about to acknowledge without the mirror that it had: on the main disk, and on the mirror's if
/// possible.
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
        tracing::warn!("cannot write to the mirror's directory that it is left behind: {error}");
    }
    if let Err(error) = supervisor::release_slot(engine) {
        tracing::warn!("the trail is still kept for the former mirror: {error}");
    }
    notify.warn(&format!("this server no longer has a mirror: {} is left behind", mirror.display()));
    Ok(())
}

/// The record of the configured mirror: as on the disk, or a new one. A different mirror before it is left behind.
fn record_of(dir: &Path, mirror: &Path, engine: &Engine, notify: &Notify) -> Result<Record, MirrorRefused> {
    match Record::read(dir).map_err(MirrorRefused::Files)? {
        Some(record) if record.mirror == mirror && record.state != RecordState::Promoted => Ok(record),
        Some(_) => leave(dir, engine, notify).map(|()| Record::begin(mirror, "")),
        None => Ok(Record::begin(mirror, "")),
    }
}

fn warn_of_same_device(dir: &Path, mirror: &Path, notify: &Notify) {
    if same_device(dir, mirror) == Some(true) {
        notify.warn(&format!(
            "the mirror {} is on the SAME DEVICE as {}: it does not help when that device fails. Put it on another disk",
            mirror.display(),
            dir.display()
        ));
    }
}

/// Records that a command is about to change a stopped server's directory, but not its mirror. The next start brings the
/// mirror up to date.
pub fn leave_offline(dir: &Path) -> Result<(), MirrorRefused> {
    let record = Record::read(dir).map_err(MirrorRefused::Files)?;
    let Some(record) = record.filter(|record| record.state == RecordState::InService) else { return Ok(()) };
    let left = Record { state: RecordState::LeftBehind, since_unix_ms: unix_ms(), ..record };
    left.write(dir).map_err(MirrorRefused::Files)
}

/// Starts a master's mirror, where one is configured, and waits until clients may be admitted.
pub fn keep(
    name: &str,
    dir: &Path,
    engine: &Engine,
    settings: Option<MirrorSettings>,
    is_master: bool,
    notify: &Notify,
) -> Result<Option<Mirror>, MirrorRefused> {
    if !is_master && settings.is_some() {
        tracing::warn!("a standby does not keep a mirror; this server will keep one after it is promoted");
    }
    let Some(settings) = settings.filter(|_| is_master) else {
        leave(dir, engine, notify)?;
        return Ok(None);
    };
    let mirror = Mirror::start(name, dir, engine, settings, notify)?;
    mirror.until_settled()?;
    Ok(Some(mirror))
}

impl Mirror {
    /// Starts the mirror of a master that does not admit clients yet. From here on commits wait for it, unless it was left behind
    /// before and they need not.
    fn start(
        name: &str,
        dir: &Path,
        engine: &Engine,
        settings: MirrorSettings,
        notify: &Notify,
    ) -> Result<Mirror, MirrorRefused> {
        let (dir, mirror) = (absolute(dir), absolute(&settings.directory));
        let record = record_of(&dir, &mirror, engine, notify)?;
        warn_of_same_device(&dir, &mirror, notify);
        let governor = GovernorOptions { lag_bytes_max: settings.lag_bytes_max, ..GovernorOptions::default() };
        let source = Arc::new(LoopbackMaster {
            name: name.to_owned(),
            engine: engine.clone(),
            dir: dir.clone(),
            mirror: mirror.clone(),
            end: parking_lot::Mutex::default(),
        });
        let hub = Hub::new(source.clone(), link_options(), SyncSet::empty(), Governor::new(governor));
        let setup = Setup {
            main: engine.clone(),
            dir,
            mirror,
            away: settings.away,
            silence_max: settings.silence_max,
            notify: notify.clone(),
        };
        let shared = MirrorState::new(setup, record);
        let memory_bytes_max = MEMORY_BYTES_MAX.min(settings.engine.memory_bytes_max);
        let (stop, stopping) = watch::channel(false);
        let supervisor = Supervisor {
            shared: shared.clone(),
            hub: hub.clone(),
            source,
            options: Options { memory_bytes_max, ..settings.engine },
            settings: settings.settings_file,
            stop: stopping.clone(),
        };
        let mut mirror = Mirror { shared: shared.clone(), hub, stop, threads: Vec::new() };
        mirror.spawn("mirror", move || supervisor.run())?;
        mirror.spawn("mirror watch", move || {
            while !*stopping.borrow() {
                shared.check();
                std::thread::sleep(CHECK_EVERY);
            }
        })?;
        Ok(mirror)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), MirrorRefused> {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(MirrorRefused::Files)?;
        self.threads.push(thread);
        Ok(())
    }

    /// Waits until clients may be admitted: what was recovered, but perhaps not acknowledged, is then on both disks, or the reason
    /// why not was reported.
    fn until_settled(&self) -> Result<(), MirrorRefused> {
        self.shared.until_settled(SETTLE_MAX).map_err(MirrorRefused::Supervisor)
    }

    /// Returns how long the next boxcar has to wait because the mirror lags.
    pub fn delay(&self) -> impl Fn(u64) -> Duration + Send + Sync + 'static {
        let hub = Arc::downgrade(&self.hub);
        move |bytes| hub.upgrade().map_or(Duration::ZERO, |hub| hub.charge(bytes))
    }

    pub fn status(&self) -> Arc<dyn MirrorView> {
        Arc::new(MirrorStatus::new(self.shared.clone(), self.hub.clone()))
    }

    /// Stops cleanly: the mirror gets what was written last. The server's engine is closed after that.
    fn stop(&mut self) {
        self.stop.send_replace(true);
        let until = Instant::now() + STOP_MAX;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(2));
            }
            if !thread.is_finished() {
                tracing::warn!("the mirror's disk does not answer: its thread is left until the process ends");
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
