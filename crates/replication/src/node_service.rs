//! Answers the requests of other nodes and of commands.
//!
//! | request | to a master | to a standby |
//! |---|---|---|
//! | the trail | sent; what is recycled, from the archive | sent, as far as it is durable at its own master |
//! | a base copy | sent | refused, naming its master |
//! | a dump | sent | sent: what its readers see |
//! | the status | sent | sent |
//! | a promotion | answered: it is the master already | done, where it is safe |
//! | to stop, to start | shipping stops, for one standby or all | following stops |
//!
//! With a control plane the group decides (module [`crate::control`]). Without one, a promotion is safe when the old master is
//! shown to be stopped: its address refuses connections, and so does the address of the standby in between, where this one
//! follows another standby. A master that answers, or a machine that does not answer at all, proves nothing; then the operator
//! has to accept explicitly that each server may have acknowledged what the other does not have (guarantee 6).
//!
//! A promotion that would fail is refused before any node is deposed: on a standby whose base copy is not complete, or whose
//! databases cannot apply changes.

use crate::accepted_loss::AcceptedLoss;
use crate::archive_source::ArchiveSource;
use crate::base_copy::begin_copy;
use crate::control::Control;
use crate::following::Following;
use crate::identity::identity;
use crate::identity_file::IdentityFile;
use crate::kept_copies::KeptCopies;
use crate::masterships::Masterships;
use crate::mirror_view::MIRROR_SLOT;
use crate::notify::Notify;
use crate::promoting::Promoting;
use crate::rejoin_command::rejoin_command;
use crate::replaced::Replaced;
use crate::role::{Promotion, RoleEvent};
use crate::status::ReplicationStatus;
use crate::sync_watch::InSync;
use holdfast_control::{Basis, ControlError, Position};
use holdfast_engine::{Engine, RESTORING};
use holdfast_standby::base_copy::BaseCopy;
use holdfast_standby::message::Wants;
use holdfast_standby::{Archived, Identity, LinkServer, Mastership, Peer, Reached, Reason, Refusal};
use holdfast_trail::Trail;
use holdfast_types::{Epoch, Level, Lsn, SqlResult};
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender as Sender;

/// How long a connection to the old master's address may take.
const PROBE_MAX: Duration = Duration::from_secs(2);

/// How long the answer to a promotion may take.
const PROMOTION_MAX: Duration = Duration::from_secs(600);

/// Begins to send a dump's copy: of which engine, the server's name and its data directory. What a dump is made of is
/// decided by `holdfast_dump`, which is above this crate.
pub type BeginDump = fn(&Engine, &str, &Path) -> SqlResult<Box<dyn BaseCopy>>;

/// This node's side of the links of other nodes and of commands.
pub struct NodeService {
    pub name: String,
    pub engine: Engine,
    pub status: Arc<ReplicationStatus>,
    pub events: Sender<RoleEvent>,
    pub notify: Notify,
    /// Set on a standby.
    pub following: Option<Arc<Following>>,
    pub control: Option<Arc<Control>>,
    pub in_sync: Arc<InSync>,
    pub archive: Option<Arc<ArchiveSource>>,
    pub dir: PathBuf,
    pub masterships: Arc<Masterships>,
    /// What stays outside of the data directory, without the standbys that are registered.
    pub identity_file: IdentityFile,
    pub copies: Arc<KeptCopies>,
    pub begin_dump: BeginDump,
    /// One promotion at a time.
    pub promoting: Promoting,
}

impl NodeService {
    /// Brings the file next to the data directory up to date.
    pub fn keep_identity(&self) {
        let names = self.engine.slots().into_iter().map(|slot| slot.name);
        self.identity_file.keep(&self.dir, names.filter(|name| name != MIRROR_SLOT).collect());
    }

    fn refuse_on_standby(&self) -> Result<(), Refusal> {
        let Some(following) = &self.following else { return Ok(()) };
        let message = format!("{} is a standby itself", self.name);
        let advice = format!("Ask its master at {}, or promote it first", following.master());
        Err(Refusal::new(Reason::NotMaster, message, advice))
    }
}

impl LinkServer for NodeService {
    fn name(&self) -> &str {
        &self.name
    }

    fn identity(&self) -> Identity {
        identity(&self.engine)
    }

    fn trail(&self) -> &Trail {
        self.engine.trail()
    }

    fn admit(&self, _: &Peer, _: &str, wants: &Wants) -> Result<(), Refusal> {
        match wants {
            Wants::BaseCopy => self.refuse_on_standby(),
            Wants::Follow(_)
            | Wants::Status
            | Wants::Promote { .. }
            | Wants::Stop { .. }
            | Wants::Start { .. }
            | Wants::Forget { .. }
            | Wants::Dump => Ok(()),
        }
    }

    fn follows(&self) -> Option<String> {
        self.following.as_ref().map(|following| following.root())
    }

    fn masterships(&self) -> Vec<Mastership> {
        self.masterships.list()
    }

    fn is_member(&self, standby: &str) -> bool {
        self.following.is_none() && self.control.as_ref().is_some_and(|control| control.is_member(standby))
    }

    fn fell_back(&self, standby: &str) -> Result<(), Refusal> {
        tracing::warn!(standby, "the standby comes back with less than it has confirmed: its disk may have lost data");
        let Some(control) = self.control.as_ref().filter(|_| self.following.is_none()) else { return Ok(()) };
        let epoch = self.engine.trail().epoch();
        let shrunk = tokio::task::block_in_place(|| Handle::current().block_on(control.shrink(epoch, standby)));
        shrunk.map_err(|error| {
            let message = format!("the control plane has not taken {standby} out of the sync set yet: {error}");
            Refusal::new(Reason::Stopped, message, "It tries again by itself")
        })
    }

    fn archived(&self) -> Option<Arc<dyn Archived>> {
        self.archive.clone().map(|archive| archive as Arc<dyn Archived>)
    }

    fn durable(&self) -> Lsn {
        let durable = self.engine.trail().durable();
        // What a standby forwards may be applied only when its own master has made it durable.
        self.following.as_ref().map_or(durable, |following| following.master_durable().min(durable))
    }

    fn may_ship(&self) -> bool {
        self.following.is_some() || self.control.as_ref().is_none_or(|control| control.holds_lease())
    }

    fn in_sync(&self, in_sync: bool) {
        self.in_sync.set(in_sync);
    }

    fn deposed(&self, by: Epoch) {
        if self.following.is_some() || self.engine.is_deposed() {
            return;
        }
        self.engine.depose("another server has become the master");
        // Waiting clients get no outcome: only the new master knows it.
        self.engine.stop_waiting();
        if let Some(control) = &self.control {
            let epoch = self.engine.trail().epoch();
            tokio::task::block_in_place(|| control.release_lease(&Handle::current(), epoch));
        }
        self.notify.warn(&format!(
            "{} was deposed: another server is the master of epoch {by}. {0} acknowledges nothing from now on; stop it and \
             bring it back with: {1}",
            self.name,
            rejoin_command(None, &self.dir, &self.name)
        ));
    }

    fn rolled_back(&self, standby: &str, refusal: &Refusal) {
        // The standby reports it again with each new link.
        if self.following.is_some() || self.engine.is_deposed() {
            return;
        }
        self.engine.depose(&format!("it lacks acknowledged commits that standby {standby} has"));
        self.engine.stop_waiting();
        self.notify.warn(&format!(
            "{} acknowledges nothing and answers no reads from now on: standby {standby} has acknowledged commits that this \
             server lacks. {standby} reports: {refusal}",
            self.name
        ));
    }

    fn hold(&self, standby: &str, from: Lsn, begins: bool) -> Result<(), Refusal> {
        if self.archive.is_some() && from < self.engine.trail().first() {
            // It catches up from the archive: the trail keeps nothing for it until it has reached the trail's first segment.
            return Ok(());
        }
        let held = match begins {
            true => self.engine.register_slot(standby, from),
            false => self.engine.hold_slot(standby, from),
        };
        held.map_err(|error| {
            let message = format!("the trail cannot be kept for {standby}: {error}");
            Refusal::new(Reason::Failed, message, "See the master's log; its data directory must be writable")
        })?;
        if begins {
            self.keep_identity();
        }
        Ok(())
    }

    fn forget(&self, standby: &str) -> Result<bool, Refusal> {
        if standby == MIRROR_SLOT {
            let advice = "To run without a mirror, remove the setting mirror and restart the server";
            return Err(Refusal::new(Reason::NotAdmitted, format!("{standby} is this server's mirror"), advice));
        }
        let forgotten = self.engine.release_slot(standby).map_err(|error| {
            let message = format!("the list of standbys cannot be written: {error}");
            Refusal::new(Reason::Failed, message, "See the server's log; its data directory must be writable")
        })?;
        self.keep_identity();
        Ok(forgotten)
    }

    fn reached(&self, reached: Reached) {
        self.engine.reached(Level::Warm, reached.warm);
        self.engine.reached(Level::Hot, reached.hot);
        self.engine.reached(Level::Commit, reached.commit);
    }

    fn base_copy(&self, standby: &str) -> Result<Box<dyn BaseCopy>, Refusal> {
        // Waits for a checkpoint or a VACUUM under way; other links continue.
        let begin = || tokio::task::block_in_place(|| begin_copy(&self.engine));
        self.copies.take(standby, begin).map_err(|error| {
            let message = format!("a base copy cannot begin: {error}");
            Refusal::new(Reason::Failed, message, "See the master's log")
        })
    }

    fn dump(&self, name: &str) -> Result<Box<dyn BaseCopy>, Refusal> {
        // A deposed master may show what its successor does not have.
        if let Some(why) = self.engine.gate().held.filter(|_| self.following.is_none()) {
            let message = format!("{} acknowledges nothing: {why}", self.name);
            return Err(Refusal::new(Reason::NotMaster, message, "Take the dump from the master, or from a standby"));
        }
        let begin = || tokio::task::block_in_place(|| (self.begin_dump)(&self.engine, &self.name, &self.dir));
        self.copies.take(name, begin).map_err(|error| {
            let message = format!("a dump cannot begin: {error}");
            Refusal::new(Reason::Failed, message, "See the server's log")
        })
    }

    fn status(&self) -> String {
        self.status.json()
    }

    fn follow_on(&self, follow: bool) -> Option<Result<String, Refusal>> {
        let following = self.following.as_ref()?;
        following.pause(!follow);
        let (name, master, has) = (&self.name, following.master(), self.engine.trail().durable());
        Some(Ok(match follow {
            true => format!("{name} follows {master} again, from LSN {has}"),
            false => format!(
                "{name} no longer follows {master}; it has everything up to LSN {has} and continues to answer reads"
            ),
        }))
    }

    fn promote(&self, accept_divergence: bool) -> Result<String, Refusal> {
        let Some(following) = &self.following else { return self.is_master_already() };
        self.can_be_promoted(following)?;
        let _promoting = self.promoting.begin()?;
        // Read now: what the group does next may end the link.
        let accepted_loss = accept_divergence.then(|| {
            let epoch = self.engine.trail().epoch();
            AcceptedLoss::new(&following.master(), &following.root(), epoch, following.linked())
        });
        let mut epoch = None;
        if let Some(control) = &self.control {
            let trail = self.engine.trail();
            let end = Position { epoch: trail.epoch(), lsn: trail.durable().0 };
            let agreed = tokio::task::block_in_place(|| {
                Handle::current().block_on(control.promote(end, accept_divergence, Basis::Asked))
            });
            epoch = Some(agreed.map_err(|error| Refusal::new(Reason::NotSafe, error.to_string(), advice_for(&error)))?);
        } else if !accept_divergence {
            if following.is_grouped() {
                let message = format!(
                    "{} has followed a master that belongs to a control plane, and does not belong to it itself",
                    self.name
                );
                let advice = "Promote a member of the group, or add the control_* settings here. With --accept-divergence \
                              it becomes a master that the group does not know: stop the group's master first";
                return Err(Refusal::new(Reason::NotSafe, message, advice));
            }
            self.has_followed(following)?;
            tokio::task::block_in_place(|| {
                check_stopped(&following.master())?;
                let root = following.root();
                if root == following.master() { Ok(()) } else { check_stopped(&root) }
            })?;
        }
        let failed = |why: String| Refusal::new(Reason::Failed, why, "See the standby's log");
        let (reply, answer) = std::sync::mpsc::channel();
        let stopping = || failed("the server is stopping".to_owned());
        // In a chain, the node that it follows is not the master.
        let is_replaced = self.control.is_none() && following.root() == following.master();
        let name = following.node_there().unwrap_or_default();
        let replaced = is_replaced.then(|| Replaced { address: following.master(), name });
        let promotion = Promotion { epoch, accepted_loss, replaced, reply };
        self.events.send(RoleEvent::Promote(promotion)).map_err(|_| stopping())?;
        self.promoting.role_ends();
        match tokio::task::block_in_place(|| answer.recv_timeout(PROMOTION_MAX)) {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(why)) => Err(failed(why)),
            Err(RecvTimeoutError::Timeout) => {
                Err(failed("the promotion has not ended yet; see holdfast standby status".to_owned()))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(failed("the server changed its role meanwhile; see holdfast standby status".to_owned()))
            }
        }
    }
}

impl NodeService {
    fn is_master_already(&self) -> Result<String, Refusal> {
        let epoch = self.engine.trail().epoch();
        match self.engine.gate().held {
            None => Ok(format!("{} is the master already, epoch {epoch}", self.name)),
            Some(why) => {
                let message =
                    format!("{} was the master of epoch {epoch} and acknowledges nothing any more: {why}", self.name);
                let command = rejoin_command(None, &self.dir, &self.name);
                let advice = format!("Stop it and bring it back with: {command}");
                Err(Refusal::new(Reason::NotMaster, message, advice))
            }
        }
    }

    /// Without a control plane only the link to the master shows that this directory has what was acknowledged.
    fn has_followed(&self, following: &Following) -> Result<(), Refusal> {
        if following.has_followed() {
            return Ok(());
        }
        let (name, from) = (&self.name, following.master());
        let message = format!(
            "{name} has not followed {from} since it started, so nothing shows that it has what was acknowledged: the master may \
             have continued without it, or this directory may have been put back from an older copy"
        );
        let advice = format!(
            "Start the server at {from} and let {name} catch up. If that server is lost for good, promote {name} with \
             --accept-divergence: what it lacks is then lost"
        );
        Err(Refusal::new(Reason::NotSafe, message, advice))
    }

    /// Refuses a promotion that cannot succeed, before any node is deposed for it.
    pub(crate) fn can_be_promoted(&self, following: &Following) -> Result<(), Refusal> {
        let refuse = |message: String, advice: &str| Err(Refusal::new(Reason::NotSafe, message, advice));
        if self.dir.join(RESTORING).exists() {
            let message = "this server shows a moment of the past, for reading only".to_owned();
            return refuse(message, "Make a server of that moment with holdfast restore --data");
        }
        if !following.is_whole() {
            let message =
                format!("the base copy of {} is not complete: its databases are not consistent yet", self.name);
            return refuse(message, "Promote another standby, or let this one follow until its base copy is complete");
        }
        if let Some(why) = self.engine.apply_failure() {
            let message = format!("{} cannot apply what it has received: {why}", self.name);
            return refuse(
                message,
                "Promote another standby; this one needs a new base copy (holdfast standby create)",
            );
        }
        Ok(())
    }
}

/// What the operator can do when the control plane does not promote.
fn advice_for(error: &ControlError) -> &'static str {
    match error {
        ControlError::Behind { .. } => {
            "Promote that node, or accept with --accept-divergence that what only it has is lost"
        }
        ControlError::Parted { .. } => {
            "Compare both with holdfast standby status; --accept-divergence accepts that what only the other node has is lost"
        }
        ControlError::NotCompared { .. } => {
            "Start one of them and try again, or accept with --accept-divergence that what only they have is lost"
        }
        _ => {
            "A promotion needs a majority of the control plane, with this standby in its sync set (see holdfast standby status). \
             --accept-divergence accepts that what the standby may lack is lost"
        }
    }
}

/// Checks that no server runs at the old master's address. Only a refused connection proves that: the machine answers, and
/// no process listens.
fn check_stopped(master: &str) -> Result<(), Refusal> {
    let not_safe = |why: String| {
        let advice = "Stop the old master first; or, if it cannot come back and acknowledge anything, promote with \
                      --accept-divergence: what it acknowledged at level local and did not ship is then lost";
        Err(Refusal::new(Reason::NotSafe, why, advice))
    };
    if master.is_empty() {
        return not_safe("the master at the end of the chain is not known".to_owned());
    }
    let addresses = match master.to_socket_addrs() {
        Ok(addresses) => addresses.collect::<Vec<_>>(),
        Err(error) => return not_safe(format!("the old master's address {master} cannot be found: {error}")),
    };
    for address in addresses {
        match TcpStream::connect_timeout(&address, PROBE_MAX) {
            Ok(_) => return not_safe(format!("the master at {master} still takes connections")),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => {
                return not_safe(format!(
                    "the master at {master} may still run, nothing shows that it is stopped: {error}"
                ));
            }
        }
    }
    Ok(())
}
