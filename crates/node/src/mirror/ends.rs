//! The two ends of the link within the process: this server as a master, the mirror's engine as its standby.
//!
//! It is the link of other nodes ([`holdfast_standby`]) over a stream in memory, with a hub of its own: so the mirror
//! counts for no level, and commits wait for it whatever their level is.

use super::place::{MirrorRefused, NAME};
use super::state::Shared;
use crate::replication::{begin_copy, identity};
use holdfast_engine::Engine;
use holdfast_standby::base_copy::BaseCopy;
use holdfast_standby::identity::Tip;
use holdfast_standby::link::take_preamble;
use holdfast_standby::message::Wants;
use holdfast_standby::receive::Connect;
use holdfast_standby::{Hub, Identity, Master, Peer, Phase as LinkPhase, Reached, Reason, Refusal, Standby};
use holdfast_trail::{ReceiveError, Shipped, Trail};
use holdfast_types::{Epoch, Lsn};
use parking_lot::Mutex;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::DuplexStream;
use tokio::sync::{Notify, watch};

/// What the main directory's trail is kept under for the mirror: no standby can have that name.
pub const SLOT: &str = ".mirror";

/// Bytes on their way between the two ends.
const DUPLEX_BYTES: usize = 1 << 20;

/// Why a mirror cannot go on, told by whoever notices first.
#[derive(Default)]
pub struct Broken {
    why: Mutex<Option<End>>,
    pub told: Notify,
}

/// How following ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    Stopped,
    /// What the main disk never made durable is to be cut off.
    CutBack(Tip),
    /// What the mirror needs is recycled: it is copied anew.
    Gone,
    /// It may pass; what the mirror has stays believed.
    Away(String),
    /// Its disk failed, or what is on it is damaged.
    Failed(String),
    Refused(String),
}

impl Broken {
    /// The first reason is the one that counts.
    pub fn tell(&self, end: End) {
        self.why.lock().get_or_insert(end);
        self.told.notify_one();
    }

    pub fn why(&self) -> Option<End> {
        self.why.lock().clone()
    }
}

/// This server, asked by its mirror.
pub struct Source {
    pub name: String,
    pub engine: Engine,
    /// The data directory, and the mirror's.
    pub dir: PathBuf,
    pub mirror: PathBuf,
    /// Of the mirror that follows at the moment.
    pub broken: Mutex<Arc<Broken>>,
}

impl Master for Source {
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
        self.broken.lock().tell(MirrorRefused::Promoted { main, mirror, epoch: by }.into());
    }

    fn admit(&self, _: &Peer, _: &str, _: &Wants) -> Result<(), Refusal> {
        Ok(())
    }

    fn hold(&self, _: &str, from: Lsn, begins: bool) -> Result<(), Refusal> {
        let held = match begins {
            true => self.engine.register_slot(SLOT, from),
            false => self.engine.hold_slot(SLOT, from),
        };
        held.map_err(|error| failed(format!("the trail cannot be kept for it: {error}")))
    }

    /// The mirror tells for itself what it has: [`Sink::receive`].
    fn reached(&self, _: Reached) {}

    fn in_sync(&self, _: bool) {}

    fn base_copy(&self, _: &str) -> Result<Box<dyn BaseCopy>, Refusal> {
        begin_copy(&self.engine).map_err(|error| failed(format!("a base copy cannot begin: {error}")))
    }

    fn status(&self) -> String {
        String::new()
    }

    fn promote(&self, _: bool) -> Result<String, Refusal> {
        Err(failed("this is the link of the mirror".to_owned()))
    }
}

fn failed(why: String) -> Refusal {
    Refusal::new(Reason::Failed, why, "See the log of the server")
}

/// The mirror's engine as the link sees it.
pub struct Sink {
    engine: Engine,
    shared: Arc<Shared>,
    anchor: Option<Tip>,
    applied: watch::Sender<Lsn>,
    /// What the mirror has counts no more.
    over: AtomicBool,
}

impl Sink {
    pub fn new(engine: Engine, shared: Arc<Shared>, anchor: Option<Tip>) -> Arc<Sink> {
        let (applied, _) = watch::channel(engine.applied());
        shared.applied(engine.applied());
        let (told, tell) = (applied.clone(), shared.clone());
        engine.on_applied(Arc::new(move |lsn| {
            tell.applied(lsn);
            told.send_replace(lsn);
        }));
        Arc::new(Sink { engine, shared, anchor, applied, over: AtomicBool::new(false) })
    }

    /// Nothing that still comes counts.
    pub fn end(&self) {
        self.over.store(true, Ordering::Release);
    }
}

impl Standby for Sink {
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

/// Reaches this server's hub for the mirror.
pub struct Inside {
    pub hub: Arc<Hub>,
}

impl Connect for Inside {
    type Stream = DuplexStream;

    async fn connect(&self) -> io::Result<DuplexStream> {
        let (ours, mut theirs) = tokio::io::duplex(DUPLEX_BYTES);
        let hub = self.hub.clone();
        tokio::spawn(async move {
            if take_preamble(&mut theirs).await.is_ok() {
                let peer = Peer { address: "this server".to_owned(), certificate: None };
                // What ended it has been logged.
                drop(hub.serve(theirs, peer).await);
            }
        });
        Ok(ours)
    }
}
