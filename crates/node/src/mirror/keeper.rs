//! Attends the mirror: looks at its directory, copies what is missing, opens it, has it follow; and again, when that ends.
//!
//! | it ended because | then |
//! |---|---|
//! | the mirror has an end that the main disk lost before it was durable | that is cut off, and kept aside; at once again |
//! | the main trail does not reach back to where the mirror is | copied anew, which is told |
//! | its directory is away, in use, or full | looked at again, with pauses that double |
//! | its disk failed, or it is damaged | the same; when its disk takes a probe again the mirror is copied anew |
//! | it does not fit | nothing is acknowledged; a server that starts refuses to |
//!
//! An engine whose disk has failed is let go without another write to it. Nothing of what happens here ends the process.

use super::ends::{Broken, End, Inside, SLOT, Sink, Source};
use super::files::{CopyState, MirrorOf, Record};
use super::place::{Found, Main, MirrorRefused, NAME, look, trail_of};
use super::settings::copy_settings;
use super::state::{Phase, Shared};
use crate::replication::{CopyTo, Progress, StandbyFile, copy_over, make_way};
use holdfast_engine::{Engine, OpenError, Options};
use holdfast_seams::RealDisk;
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

/// Between two attempts; doubled up to the second.
const PAUSE: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(120);

/// How long an engine whose disk has failed is given to end.
const LET_GO_MAX: Duration = Duration::from_secs(10);

/// How often it is looked whether applying goes on.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often the progress of a copy is logged.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// How long the end of the trail may take to get into the mirror's databases before a clean stop leaves it to the next start.
const APPLY_MAX: Duration = Duration::from_secs(10);

pub struct Keeper {
    pub shared: Arc<Shared>,
    pub hub: Arc<Hub>,
    pub source: Arc<Source>,
    /// For the mirror's engine; what makes it a mirror's is added here.
    pub options: Options,
    pub stop: watch::Receiver<bool>,
}

impl Keeper {
    /// Until it is stopped, or the mirror is refused.
    pub fn run(mut self) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return self.shared.lost(&format!("it cannot be attended: {error}"), false),
        };
        let (mut pause, mut must_copy) = (PAUSE, None);
        while !*self.stop.borrow() {
            let began = Instant::now();
            let end = self.attend(&runtime, must_copy.take());
            if began.elapsed() > PAUSE_MAX {
                pause = PAUSE;
            }
            match end {
                End::Stopped => break,
                End::CutBack(tip) => {
                    tracing::info!(%tip, "what the main disk never made durable is cut off the mirror's trail");
                    let trail = self.shared.setup.mirror.join("trail");
                    if let Err(error) = Trail::cut_back(&RealDisk::new(), &trail, tip.lsn) {
                        self.shared.lost(&error.to_string(), true);
                    } else {
                        continue;
                    }
                }
                End::Gone => {
                    must_copy = Some("it was behind for longer than the trail is kept (standby_keep_bytes_max)");
                    continue;
                }
                End::Away(why) => self.shared.lost(&why, false),
                End::Failed(why) => self.shared.lost(&why, true),
                End::Refused(why) => return self.shared.refused(&why),
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

    /// One time from looking to the end of following.
    fn attend(&self, runtime: &Runtime, must_copy: Option<&'static str>) -> End {
        let broken = Arc::<Broken>::default();
        *self.source.broken.lock() = broken.clone();
        let begun = match self.begin(runtime, &broken, must_copy) {
            Ok(begun) => begun,
            Err(end) => return broken.why().unwrap_or(end),
        };
        let (engine, of) = begun;
        let anchor = Tip { lsn: Lsn(of.anchor_lsn), checksum: of.anchor_checksum };
        let sink = Sink::new(engine.clone(), self.shared.clone(), Some(anchor));
        let end = runtime.block_on(self.follow(&engine, &sink, &broken));
        sink.end();
        drop(sink);
        let end = broken.why().unwrap_or(end);
        let_go(engine, end == End::Stopped);
        end
    }

    /// An engine on the mirror's directory, which is copied first where it has to be.
    fn begin(
        &self,
        runtime: &Runtime,
        broken: &Arc<Broken>,
        must_copy: Option<&'static str>,
    ) -> Result<(Engine, MirrorOf), End> {
        let mirror = &self.shared.setup.mirror;
        let away = |error: io::Error| End::Away(error.to_string());
        let of = match (self.look()?, must_copy) {
            (Found::Away(why), _) => return Err(End::Away(why)),
            (Found::Copy(why), _) | (Found::Follow(_), Some(why)) => self.copy(runtime, why)?,
            (Found::Follow(of), None) => {
                self.shared.set_phase(Phase::Opening);
                self.adopt(of).map_err(away)?
            }
        };
        if let Err(error) = copy_settings(&self.shared.setup.dir, mirror) {
            tracing::warn!("the settings could not be copied to the mirror: {error}");
        }
        let told = broken.clone();
        let options = Options {
            standby: true,
            on_failure: Arc::new(move |why| told.tell(End::Failed(why.to_owned()))),
            ..self.options.clone()
        };
        let engine = Engine::open(mirror, options).map_err(cannot_open)?;
        Ok((engine, of))
    }

    fn look(&self) -> Result<Found, End> {
        let setup = &self.shared.setup;
        let main = setup.main.trail();
        let record = self.shared.record();
        let trail = Some((main.trail_id(), main.epoch()));
        look(&Main { dir: &setup.dir, trail, record: Some(&record) }, &setup.mirror)
            .map_err(|refused| End::Refused(refused.to_string()))
    }

    /// Takes a mirror as it is; a standby that is to be the mirror from now on becomes one.
    fn adopt(&self, mut of: MirrorOf) -> io::Result<MirrorOf> {
        let mirror = &self.shared.setup.mirror;
        if of.copy.is_empty() {
            of.copy = new_copy();
        }
        of.main.clone_from(&self.shared.setup.dir);
        self.shared.write_of(of.clone())?;
        StandbyFile::remove(mirror).map_err(io::Error::other)?;
        if self.shared.record().copy != of.copy && !self.shared.begin_copy(&of.copy) {
            return Err(io::Error::other("it cannot be written down which copy is followed"));
        }
        Ok(of)
    }

    /// Makes the directory a copy of the databases as they are.
    fn copy(&self, runtime: &Runtime, why: &str) -> Result<MirrorOf, End> {
        let setup = &self.shared.setup;
        let away = |error: io::Error| End::Away(error.to_string());
        // What is there is not touched before its disk takes something again: it may be a last resort.
        std::fs::create_dir_all(&setup.mirror).and_then(|()| probe(&setup.mirror)).map_err(away)?;
        setup.notify.tell(&format!("the mirror {} is copied: {why}", setup.mirror.display()));
        self.shared.set_phase(Phase::Copying { compared_bytes: 0, total_bytes: 0 });
        let copy = new_copy();
        if !self.shared.begin_copy(&copy) {
            return Err(End::Away("it cannot be written down that a copy begins".to_owned()));
        }
        let of = MirrorOf::begin(&setup.dir, &copy, setup.away);
        self.shared.write_of(of.clone()).and_then(|()| make_way(&setup.mirror)).map_err(away)?;
        StandbyFile::remove(&setup.mirror).map_err(|error| End::Away(error.to_string()))?;
        let announce = |anchor: Tip| {
            let (anchor_lsn, anchor_checksum) = (anchor.lsn.0, anchor.checksum);
            self.shared.write_of(MirrorOf { state: CopyState::Following, anchor_lsn, anchor_checksum, ..of.clone() })
        };
        let told = parking_lot::Mutex::new(Instant::now());
        let progress = |done| self.tell_progress(done, &told);
        let to = CopyTo { dir: &setup.mirror, name: NAME };
        let copied = runtime.block_on(async {
            let inside = Inside { hub: self.hub.clone() };
            tokio::select! {
                copied = copy_over(&inside, to, &announce, &progress) => Some(copied),
                () = stopped(self.stop.clone()) => None,
            }
        });
        match copied {
            None => Err(End::Stopped),
            Some(Err(error)) => Err(End::Away(format!("the copy has failed: {error}"))),
            Some(Ok(copied)) => {
                tracing::info!(bytes = copied.sent_bytes, "the mirror is copied");
                MirrorOf::read(&setup.mirror).map_err(away)?.ok_or_else(|| End::Away("it was removed".to_owned()))
            }
        }
    }

    fn tell_progress(&self, done: Progress, told: &parking_lot::Mutex<Instant>) {
        let Progress { compared_bytes, total_bytes, round, .. } = done;
        self.shared.set_phase(Phase::Copying { compared_bytes, total_bytes });
        let mut told = told.lock();
        if told.elapsed() >= TELL_EVERY {
            *told = Instant::now();
            let doing = if round == 0 { "copied" } else { "verified" };
            tracing::info!("the mirror: {compared_bytes} of {total_bytes} bytes {doing}");
        }
    }

    async fn follow(&self, engine: &Engine, sink: &Arc<Sink>, broken: &Broken) -> End {
        let (stop, stopping) = watch::channel(false);
        let follower = Follower {
            standby: sink.clone(),
            connect: Inside { hub: self.hub.clone() },
            options: link_options(),
            blocking: Blocking::Threads,
            instance: draw_instance(),
            stop: stopping,
        };
        let mut following = std::pin::pin!(follow(follower));
        let why = tokio::select! {
            ended = &mut following => return self.ended_as(ended),
            () = broken.told.notified() => End::Stopped,
            end = applies(engine) => end,
            () = stopped(self.stop.clone()) => {
                // The end of the trail is shipped first: the hub was told to stop.
                self.let_arrive(engine).await;
                End::Stopped
            }
        };
        stop.send_replace(true);
        // What was received is written first, unless the disk hangs.
        drop(tokio::time::timeout(LET_GO_MAX, following).await);
        why
    }

    fn ended_as(&self, ended: Ended) -> End {
        match ended {
            Ended::Stopped => End::Stopped,
            Ended::CutBack(tip) => End::CutBack(tip),
            Ended::Refused(refusal) if refusal.reason == Reason::Gone => End::Gone,
            Ended::Refused(refusal) => {
                let mirror = self.shared.setup.mirror.clone();
                MirrorRefused::Parted { mirror, why: refusal.message }.into()
            }
            Ended::Failed(LinkError::Receive(error @ ReceiveError::Full { .. })) => End::Away(error.to_string()),
            Ended::Failed(error) => End::Failed(error.to_string()),
        }
    }

    /// Waits until the mirror has all that is durable here and shows it, so that the next start finds nothing to redo.
    async fn let_arrive(&self, engine: &Engine) {
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

/// Both ends are in this process and nothing is lost between them: only a disk is slow.
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

/// Forgets what the trail is kept for: there is no mirror any more.
pub fn release_slot(main: &Engine) -> io::Result<bool> {
    main.release_slot(SLOT)
}

fn new_copy() -> String {
    format!("{:016x}", draw_instance())
}

async fn stopped(mut stop: watch::Receiver<bool>) {
    if stop.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Ends when nothing more can be applied: the trail would grow for ever.
async fn applies(engine: &Engine) -> End {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if let Some(why) = engine.apply_failure() {
            return End::Failed(why);
        }
    }
}

/// Another process may have it, or its disk may not be there; anything else is wrong with what stands in it.
fn cannot_open(error: OpenError) -> End {
    match error {
        OpenError::Trail(TrailError::InUse { .. }) => End::Away(error.to_string()),
        OpenError::Io { .. } | OpenError::Trail(TrailError::Io { .. }) => End::Away(error.to_string()),
        other => End::Failed(other.to_string()),
    }
}

/// Whether the disk takes something, and gives it back.
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
        if back == BYTES { Ok(()) } else { Err(io::Error::other("its disk gives back other bytes than were written")) }
    };
    probed().map_err(|e| io::Error::new(e.kind(), format!("{}: its disk does not take a probe: {e}", dir.display())))
}

/// Ends an engine: cleanly, or, where its disk has failed, without another write and no longer than it may take.
fn let_go(engine: Engine, cleanly: bool) {
    let (done, ended) = std::sync::mpsc::channel();
    let spawned = std::thread::Builder::new().name("mirror end".into()).spawn(move || {
        if cleanly && let Err(error) = engine.close() {
            tracing::warn!("the mirror was not closed cleanly, its next start recovers it: {error}");
        }
        drop(engine);
        // Nobody waits any more when it took too long.
        done.send(()).unwrap_or_default();
    });
    if spawned.is_ok() && ended.recv_timeout(LET_GO_MAX + APPLY_MAX).is_err() {
        tracing::warn!("the mirror's disk does not answer: what was open there stays open");
    }
}

impl From<MirrorRefused> for End {
    fn from(refused: MirrorRefused) -> End {
        End::Refused(refused.to_string())
    }
}

/// Whether a server may start with this mirror, before anything is opened.
pub fn check(main: &Path, mirror: &Path, record: Option<&Record>) -> Result<(), MirrorRefused> {
    look(&Main { dir: main, trail: trail_of(main)?, record }, mirror).map(drop)
}
