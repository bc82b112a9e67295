//! Runs the mirror: inspects its directory, copies what is missing, opens it and lets it follow; and starts over when that ends.
//!
//! | it ended because | then |
//! |---|---|
//! | the mirror has an end that the main disk lost before it was durable | that end is cut off and kept aside; it starts over at once |
//! | the main trail no longer has what the mirror needs next | the mirror is copied again, which is reported |
//! | its directory is away, in use, or full | it is inspected again, with pauses that double |
//! | its disk failed, or it is damaged | likewise; when its disk passes a probe the mirror is copied again |
//! | it does not fit this directory | nothing is acknowledged; a starting server refuses to start |
//!
//! An engine whose disk has failed is abandoned without another write. Nothing that happens here ends the process.

use crate::directory::{Action, MainDirectory, MirrorRefused, NAME, inspect, trail_of};
use crate::loopback_link::{EndSignal, FollowEnd, LoopbackConnector, LoopbackMaster, LoopbackStandby};
use crate::records::{CopyState, MirrorOf, Record};
use crate::settings::copy_settings;
use crate::state::{MirrorState, Phase};
use holdfast_engine::{Engine, OpenError, Options};
use holdfast_replication::settings::SettingsFile;
use holdfast_replication::{CopyTo, MIRROR_SLOT, StandbyFile, clear_for_copy, copy_over};
use holdfast_seams::{Disk, RealDisk};
use holdfast_standby::base_copy::CopyProgress;
use holdfast_standby::identity::Tip;
use holdfast_standby::receive::{Blocking, Follower};
use holdfast_standby::{Ended, Hub, LinkError, LinkOptions, Reason, draw_instance, follow};
use holdfast_trail::{ReceiveError, Trail, TrailError};
use holdfast_types::Lsn;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Pause between two attempts; doubled up to the maximum.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(120);

/// How long to wait for an engine whose disk has failed.
const CLOSE_MAX: Duration = Duration::from_secs(10);

/// How often to check that applying has not failed.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// How often the progress of a copy is logged.
const LOG_EVERY: Duration = Duration::from_secs(5);

/// How long a clean stop waits for the mirror to apply the end of the trail; the rest is left to the next start.
const APPLY_MAX: Duration = Duration::from_secs(10);

/// Keeps the mirror of a running server.
pub struct Supervisor {
    pub shared: Arc<MirrorState>,
    pub hub: Arc<Hub>,
    pub source: Arc<LoopbackMaster>,
    /// For the mirror's engine; the supervisor adds what makes it a standby.
    pub options: Options,
    pub settings: Arc<dyn SettingsFile>,
    pub stop: watch::Receiver<bool>,
}

impl Supervisor {
    /// Runs until it is stopped, or the mirror is refused.
    pub fn run(mut self) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return self.shared.lost(&format!("its runtime cannot be started: {error}"), false),
        };
        let (mut pause, mut must_copy) = (PAUSE, None);
        while !*self.stop.borrow() {
            let began = Instant::now();
            let end = self.run_once(&runtime, must_copy.take());
            if began.elapsed() > PAUSE_MAX {
                pause = PAUSE;
            }
            match end {
                FollowEnd::Stopped => break,
                FollowEnd::CutBack(tip) => {
                    tracing::info!(%tip, "cutting off the end of the mirror's trail, which the main disk never made durable");
                    let trail = self.shared.setup.mirror.join("trail");
                    if let Err(error) = Trail::cut_back(&RealDisk::new(), &trail, tip.lsn) {
                        self.shared.lost(&error.to_string(), true);
                    } else {
                        continue;
                    }
                }
                FollowEnd::Gone => {
                    must_copy = Some("the trail no longer has what the mirror needs (standby_keep_bytes_max)");
                    continue;
                }
                FollowEnd::Away(why) => self.shared.lost(&why, false),
                FollowEnd::Failed(why) => self.shared.lost(&why, true),
                FollowEnd::Refused(why) => return self.shared.refused(&why),
            }
            self.wait(&runtime, pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
        runtime.shutdown_timeout(Duration::from_millis(100));
    }

    fn wait(&mut self, runtime: &Runtime, pause: Duration) {
        runtime.block_on(async {
            // An error of the wait means that the time is up.
            drop(tokio::time::timeout(pause, self.stop.wait_for(|stop| *stop)).await);
        });
    }

    /// Inspects, opens and follows once, until following ends.
    fn run_once(&self, runtime: &Runtime, must_copy: Option<&'static str>) -> FollowEnd {
        let end_signal = Arc::<EndSignal>::default();
        *self.source.end.lock() = end_signal.clone();
        let begun = match self.open_mirror(runtime, &end_signal, must_copy) {
            Ok(begun) => begun,
            Err(end) => return end_signal.why().unwrap_or(end),
        };
        let (engine, of) = begun;
        let anchor = Tip { lsn: Lsn(of.anchor_lsn), checksum: of.anchor_checksum };
        let sink = LoopbackStandby::new(engine.clone(), self.shared.clone(), Some(anchor));
        let end = runtime.block_on(self.follow(&engine, &sink, &end_signal));
        sink.end();
        drop(sink);
        let end = end_signal.why().unwrap_or(end);
        close_or_abandon(engine, end == FollowEnd::Stopped);
        end
    }

    /// Opens an engine on the mirror's directory, after a copy where that is needed.
    fn open_mirror(
        &self,
        runtime: &Runtime,
        end_signal: &Arc<EndSignal>,
        must_copy: Option<&'static str>,
    ) -> Result<(Engine, MirrorOf), FollowEnd> {
        let mirror = &self.shared.setup.mirror;
        let away = |error: io::Error| FollowEnd::Away(error.to_string());
        let of = match (self.inspect()?, must_copy) {
            (Action::Away(why), _) => return Err(FollowEnd::Away(why)),
            (Action::Copy(why), _) | (Action::Follow(_), Some(why)) => self.copy(runtime, why)?,
            (Action::Follow(of), None) => {
                self.shared.set_phase(Phase::Opening);
                self.adopt(of).map_err(away)?
            }
        };
        if let Err(error) = copy_settings(&*self.settings, &self.shared.setup.dir, mirror) {
            tracing::warn!("cannot copy the settings to the mirror: {error}");
        }
        let signal = end_signal.clone();
        let options = Options {
            standby: true,
            on_failure: Arc::new(move |why| signal.raise(FollowEnd::Failed(why.to_owned()))),
            ..self.options.clone()
        };
        let engine = Engine::open(mirror, options).map_err(cannot_open)?;
        Ok((engine, of))
    }

    fn inspect(&self) -> Result<Action, FollowEnd> {
        let setup = &self.shared.setup;
        let main = setup.main.trail();
        let record = self.shared.record();
        let trail = Some((main.trail_id(), main.epoch()));
        inspect(&MainDirectory { dir: &setup.dir, trail, record: Some(&record) }, &setup.mirror)
            .map_err(|refused| FollowEnd::Refused(refused.to_string()))
    }

    /// Adopts an existing mirror, or a standby that is to be the mirror from now on.
    fn adopt(&self, mut of: MirrorOf) -> io::Result<MirrorOf> {
        let mirror = &self.shared.setup.mirror;
        if of.copy.is_empty() {
            of.copy = new_copy();
        }
        of.main.clone_from(&self.shared.setup.dir);
        self.shared.write_of(of.clone())?;
        StandbyFile::remove(mirror).map_err(io::Error::other)?;
        if self.shared.record().copy != of.copy && !self.shared.begin_copy(&of.copy) {
            return Err(io::Error::other("cannot write mirror.toml, which has to name the copy that is followed"));
        }
        Ok(of)
    }

    /// Makes the directory a copy of the databases.
    fn copy(&self, runtime: &Runtime, why: &str) -> Result<MirrorOf, FollowEnd> {
        let setup = &self.shared.setup;
        let away = |error: io::Error| FollowEnd::Away(error.to_string());
        // The old content is not touched until its disk passes a probe: it may be the last resort.
        RealDisk::new().create_dir(&setup.mirror).and_then(|()| probe(&setup.mirror)).map_err(away)?;
        setup.notify.warn(&format!("the mirror {} is copied: {why}", setup.mirror.display()));
        self.shared.set_phase(Phase::Copying { compared_bytes: 0, total_bytes: 0 });
        let copy = new_copy();
        if !self.shared.begin_copy(&copy) {
            return Err(FollowEnd::Away("cannot write mirror.toml, which has to say that a copy begins".to_owned()));
        }
        let of = MirrorOf::begin(&setup.dir, &copy, setup.away);
        self.shared.write_of(of.clone()).and_then(|()| clear_for_copy(&setup.mirror)).map_err(away)?;
        StandbyFile::remove(&setup.mirror).map_err(|error| FollowEnd::Away(error.to_string()))?;
        let announce = |anchor: Tip| {
            let (anchor_lsn, anchor_checksum) = (anchor.lsn.0, anchor.checksum);
            self.shared.write_of(MirrorOf { state: CopyState::Following, anchor_lsn, anchor_checksum, ..of.clone() })
        };
        let logged = parking_lot::Mutex::new(Instant::now());
        let progress = |done| self.show_progress(done, &logged);
        let to = CopyTo { dir: &setup.mirror, name: NAME };
        let copied = runtime.block_on(async {
            let inside = LoopbackConnector { hub: self.hub.clone() };
            tokio::select! {
                copied = copy_over(&inside, to, &announce, &progress) => Some(copied),
                () = stopped(self.stop.clone()) => None,
            }
        });
        match copied {
            None => Err(FollowEnd::Stopped),
            Some(Err(error)) => Err(FollowEnd::Away(format!("the copy failed: {error}"))),
            Some(Ok(copied)) => {
                tracing::info!(bytes = copied.sent_bytes, "the mirror is copied");
                MirrorOf::read(&setup.mirror)
                    .map_err(away)?
                    .ok_or_else(|| FollowEnd::Away("its file mirror_of.toml was removed".to_owned()))
            }
        }
    }

    fn show_progress(&self, done: CopyProgress, logged: &parking_lot::Mutex<Instant>) {
        let CopyProgress { compared_bytes, total_bytes, round, .. } = done;
        self.shared.set_phase(Phase::Copying { compared_bytes, total_bytes });
        let mut logged = logged.lock();
        if logged.elapsed() >= LOG_EVERY {
            *logged = Instant::now();
            let doing = if round == 0 { "copied" } else { "verified" };
            tracing::info!("the mirror: {compared_bytes} of {total_bytes} bytes {doing}");
        }
    }

    async fn follow(&self, engine: &Engine, sink: &Arc<LoopbackStandby>, end_signal: &EndSignal) -> FollowEnd {
        let (stop, stopping) = watch::channel(false);
        let follower = Follower {
            standby: sink.clone(),
            connect: LoopbackConnector { hub: self.hub.clone() },
            options: link_options(),
            blocking: Blocking::Threads,
            instance: draw_instance(),
            stop: stopping,
        };
        let mut following = std::pin::pin!(follow(follower));
        let why = tokio::select! {
            ended = &mut following => return self.ended_as(ended),
            () = end_signal.raised.notified() => FollowEnd::Stopped,
            end = until_apply_fails(engine) => end,
            () = stopped(self.stop.clone()) => {
                // The hub was stopped: it ships the end of the trail first.
                self.wait_until_applied(engine).await;
                FollowEnd::Stopped
            }
        };
        stop.send_replace(true);
        // What was received is written before, unless the disk hangs.
        drop(tokio::time::timeout(CLOSE_MAX, following).await);
        why
    }

    fn ended_as(&self, ended: Ended) -> FollowEnd {
        match ended {
            Ended::Stopped => FollowEnd::Stopped,
            Ended::CutBack(tip) => FollowEnd::CutBack(tip),
            Ended::Refused(refusal) if refusal.reason == Reason::Gone => FollowEnd::Gone,
            Ended::Refused(refusal) => {
                let mirror = self.shared.setup.mirror.clone();
                MirrorRefused::Parted { mirror, why: refusal.message }.into()
            }
            Ended::Failed(LinkError::Receive(error @ ReceiveError::Full { .. })) => FollowEnd::Away(error.to_string()),
            Ended::Failed(error) => FollowEnd::Failed(error.to_string()),
        }
    }

    /// Waits until the mirror has applied everything that is durable here, so that its next start has nothing to redo.
    async fn wait_until_applied(&self, engine: &Engine) {
        let end = self.shared.setup.main.trail().durable();
        let until = Instant::now() + APPLY_MAX;
        while (engine.trail().durable() < end || engine.applied() < end)
            && engine.apply_failure().is_none()
            && Instant::now() < until
        {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// The link's limits are wide: both ends are in this process and nothing is lost between them; only a disk may be slow.
pub fn link_options() -> LinkOptions {
    let silence_max = Duration::from_secs(600);
    LinkOptions {
        heartbeat: Duration::from_secs(10),
        silence_max,
        greeting_max: silence_max,
        queue_bytes_max: 8 << 20,
        ..LinkOptions::default()
    }
}

/// Ends keeping the trail for the mirror: the server has none any more.
pub fn release_slot(main: &Engine) -> io::Result<bool> {
    main.release_slot(MIRROR_SLOT)
}

fn new_copy() -> String {
    format!("{:016x}", draw_instance())
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Ends when applying has failed: the trail would grow without bound.
async fn until_apply_fails(engine: &Engine) -> FollowEnd {
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        if let Some(why) = engine.apply_failure() {
            return FollowEnd::Failed(why);
        }
    }
}

/// The directory may be in use or its disk not mounted, which may pass; any other error is damage.
fn cannot_open(error: OpenError) -> FollowEnd {
    match error {
        OpenError::Trail(TrailError::InUse { .. }) => FollowEnd::Away(error.to_string()),
        OpenError::Io { .. } | OpenError::Trail(TrailError::Io { .. }) => FollowEnd::Away(error.to_string()),
        other => FollowEnd::Failed(other.to_string()),
    }
}

/// Checks that the disk stores data and returns it.
fn probe(dir: &Path) -> io::Result<()> {
    const BYTES: &[u8] = &[0x5a; 4096];
    let path = dir.join("probe");
    let probed = || {
        let mut file = File::create(&path)?;
        file.write_all(BYTES)?;
        file.sync_all()?;
        let mut back = Vec::new();
        File::open(&path)?.read_to_end(&mut back)?;
        std::fs::remove_file(&path)?;
        File::open(dir)?.sync_all()?;
        if back == BYTES { Ok(()) } else { Err(io::Error::other("reading back returns other bytes than were written")) }
    };
    probed().map_err(|e| io::Error::new(e.kind(), format!("{}: writing a test file failed: {e}", dir.display())))
}

/// Ends an engine: cleanly, or, where its disk has failed, without another write. Waits for a limited time only.
fn close_or_abandon(engine: Engine, cleanly: bool) {
    let (done, ended) = std::sync::mpsc::channel();
    let spawned = std::thread::Builder::new().name("mirror end".into()).spawn(move || {
        if cleanly && let Err(error) = engine.close() {
            tracing::warn!("the mirror was not closed cleanly; its next start recovers it: {error}");
        }
        drop(engine);
        // The receiver is gone when it took too long.
        done.send(()).unwrap_or_default();
    });
    if spawned.is_ok() && ended.recv_timeout(CLOSE_MAX + APPLY_MAX).is_err() {
        tracing::warn!("the mirror's disk does not answer: its files stay open until the process ends");
    }
}

impl From<MirrorRefused> for FollowEnd {
    fn from(refused: MirrorRefused) -> FollowEnd {
        FollowEnd::Refused(refused.to_string())
    }
}

/// Checks whether a server may start with this mirror, before anything is opened.
pub fn check(main: &Path, mirror: &Path, record: Option<&Record>) -> Result<(), MirrorRefused> {
    inspect(&MainDirectory { dir: main, trail: trail_of(main)?, record }, mirror).map(drop)
}
