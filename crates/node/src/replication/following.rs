//! A standby follows its master: the link's runtime takes boxcars in, the engine applies them.

use super::{Event, Notify, StandbyFile};
use holdfast_engine::Engine;
use holdfast_standby::identity::Tip;
use holdfast_standby::receive::{Blocking, Connect, Follower};
use holdfast_standby::{Ended, Identity, LinkOptions, Phase, Standby, follow};
use holdfast_trail::boxcar::FORMAT_VERSION;
use holdfast_trail::{ReceiveError, Shipped, Trail};
use holdfast_types::Lsn;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedSender as Sender;
use tokio::sync::watch;

/// What must fit between two nodes.
pub fn identity(engine: &Engine) -> Identity {
    let trail = engine.trail();
    Identity {
        trail_id: trail.trail_id(),
        format: FORMAT_VERSION,
        segment_bytes: trail.segment_bytes(),
        epoch: trail.epoch(),
    }
}

/// The engine of a standby as the link sees it.
pub struct Following {
    engine: Engine,
    file: StandbyFile,
    applied: watch::Sender<Lsn>,
    phase: Mutex<Phase>,
    /// Everything below is durable at the master, as far as it has said.
    told: Mutex<Lsn>,
    /// Received and not applied: where each boxcar ends, and when the master wrote it, in milliseconds since 1970.
    unapplied: Mutex<VecDeque<(Lsn, u64)>>,
    notify: Notify,
}

/// Boxcars whose time is remembered; with more the oldest are forgotten, and the lag in time is told too short.
const UNAPPLIED_MAX: usize = 100_000;

impl Following {
    pub fn new(engine: Engine, file: StandbyFile, notify: Notify) -> Arc<Following> {
        let (applied, _) = watch::channel(engine.applied());
        let told = applied.clone();
        engine.on_applied(Arc::new(move |lsn| _ = told.send_replace(lsn)));
        Arc::new(Following {
            engine,
            file,
            applied,
            phase: Mutex::new(Phase::Connecting),
            told: Mutex::default(),
            unapplied: Mutex::default(),
            notify,
        })
    }

    pub fn master(&self) -> &str {
        &self.file.from
    }

    pub fn phase(&self) -> Phase {
        self.phase.lock().clone()
    }

    /// Milliseconds of the master's work that have been received and not applied.
    pub fn behind_ms(&self) -> u64 {
        let applied = self.engine.applied();
        let mut unapplied = self.unapplied.lock();
        while unapplied.front().is_some_and(|(end, _)| *end <= applied) {
            unapplied.pop_front();
        }
        let written = |boxcar: Option<&(Lsn, u64)>| boxcar.map_or(0, |(_, written_ms)| *written_ms);
        written(unapplied.back()).saturating_sub(written(unapplied.front()))
    }

    /// Everything below is durable at the master, as far as this node knows.
    pub fn master_durable(&self) -> Lsn {
        *self.told.lock()
    }
}

impl Standby for Following {
    fn name(&self) -> &str {
        &self.file.name
    }

    fn identity(&self) -> Identity {
        identity(&self.engine)
    }

    fn trail(&self) -> &Trail {
        self.engine.trail()
    }

    fn anchor(&self) -> Option<Tip> {
        let (lsn, checksum) = (Lsn(self.file.anchor_lsn), self.file.anchor_checksum);
        (self.engine.trail().tip().0 < lsn).then_some(Tip { lsn, checksum })
    }

    fn receive(&self, boxcars: &[Shipped]) -> Result<(), ReceiveError> {
        self.engine.receive(boxcars)?;
        let mut unapplied = self.unapplied.lock();
        unapplied.extend(boxcars.iter().map(|b| (b.end, b.written_unix_ms())));
        let surplus = unapplied.len().saturating_sub(UNAPPLIED_MAX);
        unapplied.drain(..surplus);
        Ok(())
    }

    fn allow_apply(&self, lsn: Lsn) {
        {
            let mut told = self.told.lock();
            *told = lsn.max(*told);
        }
        self.engine.allow_apply(lsn);
    }

    fn applied(&self) -> watch::Receiver<Lsn> {
        self.applied.subscribe()
    }

    fn changed(&self, phase: &Phase) {
        let before = std::mem::replace(&mut *self.phase.lock(), phase.clone());
        let follows = |phase: &Phase| matches!(phase, Phase::Following { .. });
        match phase {
            Phase::Following { master, from } if !follows(&before) => {
                self.notify.tell(&format!("standby {} follows {master} from LSN {from}", self.file.name));
            }
            Phase::Waiting { why, .. } if follows(&before) => {
                self.notify
                    .tell(&format!("standby {} has lost its master at {}: {why}", self.file.name, self.file.from));
            }
            _ => {}
        }
    }
}

/// A master reached over TCP.
#[derive(Clone, Debug)]
pub struct Tcp {
    /// Host and port.
    pub address: String,
}

impl Connect for Tcp {
    type Stream = TcpStream;

    async fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

/// Follows until `stop`; how it ended, otherwise, is told as an event.
pub async fn follow_master(
    following: Arc<Following>,
    options: LinkOptions,
    instance: u64,
    stop: watch::Receiver<bool>,
    events: Sender<Event>,
) {
    let connect = Tcp { address: following.file.from.clone() };
    let follower =
        Follower { standby: following.clone(), connect, options, blocking: Blocking::Threads, instance, stop };
    let ended = follow(follower).await;
    match &ended {
        Ended::Stopped => return,
        Ended::CutBack(tip) => {
            tracing::info!(%tip, "what the master never made durable is cut off this standby's trail")
        }
        Ended::Refused(refusal) => following.notify.tell(&format!("standby {}: {refusal}", following.file.name)),
        Ended::Failed(error) => following.notify.tell(&format!("standby {} has stopped: {error}", following.file.name)),
    }
    let why = match &ended {
        Ended::Refused(refusal) => refusal.to_string(),
        Ended::Failed(error) => error.to_string(),
        Ended::Stopped | Ended::CutBack(_) => String::new(),
    };
    *following.phase.lock() = Phase::Waiting { why, pause: std::time::Duration::MAX };
    // An error means that the server is stopping.
    drop(events.send(Event::FollowingEnded(ended)));
}
