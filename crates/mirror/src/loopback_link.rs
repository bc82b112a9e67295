//! The link between this server as a master and the mirror's engine as its standby, within the process.
//!
//! It is the same protocol as between nodes ([`holdfast_standby`]), over a stream in memory and with a hub of its own: so the
//! mirror does not count for levels, and commits wait for it at any level.

use crate::directory::{MirrorRefused, NAME};
use crate::state::MirrorState;
use holdfast_engine::Engine;
use holdfast_replication::{MIRROR_SLOT, begin_copy, identity};
use holdfast_standby::base_copy::BaseCopy;
use holdfast_standby::identity::Tip;
use holdfast_standby::link::take_preamble;
use holdfast_standby::message::Wants;
use holdfast_standby::receive::Connect;
use holdfast_standby::{Hub, Identity, LinkPhase, LinkServer, Peer, Reached, Reason, Refusal, Standby};
use holdfast_trail::{ReceiveError, Shipped, Trail};
use holdfast_types::{Epoch, Lsn};
use parking_lot::Mutex;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::DuplexStream;
use tokio::sync::{Notify, watch};

/// Bytes in transit between the two ends.
const DUPLEX_BYTES: usize = 1 << 20;

/// Why following has to end; the first reason counts.
#[derive(Default)]
pub struct EndSignal {
    why: Mutex<Option<FollowEnd>>,
    pub raised: Notify,
}

/// How following ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FollowEnd {
    Stopped,
    /// What the main disk never made durable has to be cut off.
    CutBack(Tip),
    /// What the mirror needs is recycled: it has to be copied again.
    Gone,
    /// It may pass; what the mirror has is still trusted.
    Away(String),
    /// Its disk failed, or its content is damaged.
    Failed(String),
    Refused(String),
}

impl EndSignal {
    /// Ends following for this reason, if there is none yet.
    pub fn raise(&self, end: FollowEnd) {
        self.why.lock().get_or_insert(end);
        self.raised.notify_one();
    }

    pub fn why(&self) -> Option<FollowEnd> {
        self.why.lock().clone()
    }
}

/// This server as the master of its mirror.
pub struct LoopbackMaster {
    pub name: String,
    pub engine: Engine,
    /// The data directory, and the mirror's.
    pub dir: PathBuf,
    pub mirror: PathBuf,
    /// How to end the mirror that follows now.
    pub end: Mutex<Arc<EndSignal>>,
}

impl LinkServer for LoopbackMaster {
    fn name(&self) -> &str {
        &self.name
    }

    fn identity(&self) -> Identity {
        identity(&self.engine)
    }

    fn trail(&self) -> &Trail {
        self.engine.trail()
    }

    fn deposed(&self, by: Epoch) {
        let (main, mirror) = (self.dir.clone(), self.mirror.clone());
        self.end.lock().raise(MirrorRefused::Promoted { main, mirror, epoch: by }.into());
    }

    /// The mirror's side of the link ends with the refusal, and then nothing is acknowledged.
    fn rolled_back(&self, _: &str, _: &Refusal) {}

    fn admit(&self, _: &Peer, _: &str, _: &Wants) -> Result<(), Refusal> {
        Ok(())
    }

    fn hold(&self, _: &str, from: Lsn, begins: bool) -> Result<(), Refusal> {
        let held = match begins {
            true => self.engine.register_slot(MIRROR_SLOT, from),
            false => self.engine.hold_slot(MIRROR_SLOT, from),
        };
        held.map_err(|error| failed(format!("the trail cannot be kept for it: {error}")))
    }

    /// The mirror reports by itself what it has: [`LoopbackStandby::receive`].
    fn reached(&self, _: Reached) {}

    fn in_sync(&self, _: bool) {}

    fn base_copy(&self, _: &str) -> Result<Box<dyn BaseCopy>, Refusal> {
        begin_copy(&self.engine).map_err(|error| failed(format!("a base copy cannot begin: {error}")))
    }

    fn status(&self) -> String {
        String::new()
    }

    fn promote(&self, _: bool) -> Result<String, Refusal> {
        Err(failed("the mirror's link cannot promote a server".to_owned()))
    }
}

fn failed(why: String) -> Refusal {
    Refusal::new(Reason::Failed, why, "See the server's log")
}

/// The mirror's engine as a standby.
pub struct LoopbackStandby {
    engine: Engine,
    shared: Arc<MirrorState>,
    anchor: Option<Tip>,
    applied: watch::Sender<Lsn>,
    /// Following has ended: what the mirror has no longer counts.
    over: AtomicBool,
}

impl LoopbackStandby {
    pub fn new(engine: Engine, shared: Arc<MirrorState>, anchor: Option<Tip>) -> Arc<LoopbackStandby> {
        let (applied, _) = watch::channel(engine.applied());
        shared.applied(engine.applied());
        let (sender, state) = (applied.clone(), shared.clone());
        engine.on_applied(Arc::new(move |lsn| {
            state.applied(lsn);
            sender.send_replace(lsn);
        }));
        Arc::new(LoopbackStandby { engine, shared, anchor, applied, over: AtomicBool::new(false) })
    }

    /// Ends following: what still arrives no longer counts.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
    }
}

impl Standby for LoopbackStandby {
    fn name(&self) -> &str {
        NAME
    }

    fn identity(&self) -> Identity {
        identity(&self.engine)
    }

    fn trail(&self) -> &Trail {
        self.engine.trail()
    }

    fn anchor(&self) -> Option<Tip> {
        self.anchor.filter(|anchor| self.engine.trail().tip().0 < anchor.lsn)
    }

    fn settled(&self) -> Lsn {
        self.engine.settled()
    }

    fn receive(&self, boxcars: &[Shipped]) -> Result<(), ReceiveError> {
        self.engine.receive(boxcars)?;
        if let Some(last) = boxcars.last().filter(|_| !self.over.load(Ordering::Acquire)) {
            self.shared.received(last.end);
        }
        Ok(())
    }

    fn allow_apply(&self, lsn: Lsn) {
        self.engine.allow_apply(lsn);
    }

    fn applied(&self) -> watch::Receiver<Lsn> {
        self.applied.subscribe()
    }

    fn changed(&self, phase: &LinkPhase) {
        match phase {
            LinkPhase::Following { from, .. } => self.shared.follows(*from),
            LinkPhase::Waiting { why, .. } => tracing::warn!("the mirror's link has ended: {why}"),
            LinkPhase::Connecting | LinkPhase::Pairing { .. } => {}
        }
    }
}

/// Connects the mirror to this server's hub.
pub struct LoopbackConnector {
    pub hub: Arc<Hub>,
}

impl Connect for LoopbackConnector {
    type Stream = DuplexStream;

    async fn connect(&self) -> io::Result<DuplexStream> {
        let (ours, mut theirs) = tokio::io::duplex(DUPLEX_BYTES);
        let hub = self.hub.clone();
        tokio::spawn(async move {
            if take_preamble(&mut theirs).await.is_ok() {
                let peer = Peer { address: "this server".to_owned(), certificate: None };
                // The hub has logged why the link ended.
                drop(hub.serve(theirs, peer).await);
            }
        });
        Ok(ours)
    }
}
