//! What other nodes may have of this one.
//!
//! | wanted | of a master | of a standby |
//! |---|---|---|
//! | the trail | given; what is recycled, from the archive | the same, as far as it is durable at its own master |
//! | a base copy | given | refused: it names its master |
//! | the status | given | given |
//! | a promotion | it is the master already | done, where it is safe |
//! | to stop, to start | shipping stops, for one standby or all | following stops |
//!
//! With a control plane the group decides (module [`super::control`]). Without, a promotion is safe when the old master
//! is shown to be stopped: its address refuses connections, and so does that of the standby in between, where this one
//! follows another standby. A master that answers, or a machine that says nothing at all, is no proof; then the operator
//! has to accept in so many words that both may have acknowledged what the other does not know (guarantee 6).
//!
//! What would fail is refused before anybody is deposed: a base copy that is not whole, databases that cannot be applied
//! to.

use super::{Control, Event, Following, FromArchive, GivenUp, InSync, Notify, Standings};
use holdfast_control::ControlError;
use holdfast_engine::Engine;
use holdfast_standby::base_copy::BaseCopy;
use holdfast_standby::message::Wants;
use holdfast_standby::{Archived, Identity, Master, Peer, Reached, Reason, Refusal};
use holdfast_trail::Trail;
use holdfast_types::{Epoch, Level, Lsn};
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender as Sender;

/// How long the old master's address is tried.
const PROBE_MAX: Duration = Duration::from_secs(2);

/// How long a promotion may take before its caller is told to look for himself.
const PROMOTION_MAX: Duration = Duration::from_secs(600);

/// See the module.
pub struct Asked {
    pub name: String,
    pub engine: Engine,
    pub standings: Arc<Standings>,
    pub events: Sender<Event>,
    pub notify: Notify,
    /// Of a standby: how it follows its master.
    pub following: Option<Arc<Following>>,
    pub control: Option<Arc<Control>>,
    pub in_sync: Arc<InSync>,
    pub archive: Option<Arc<FromArchive>>,
}

impl Asked {
    fn refuse_on_standby(&self) -> Result<(), Refusal> {
        let Some(following) = &self.following else { return Ok(()) };
        let message = format!("{} is a standby itself", self.name);
        let advice = format!("Ask its master at {}, or promote it first", following.master());
        Err(Refusal::new(Reason::NotMaster, message, advice))
    }
}

impl Master for Asked {
    fn name(&self) -> &str {
        &self.name
    }

    fn identity(&self) -> Identity {
        super::following::identity(&self.engine)
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
            | Wants::Forget { .. } => Ok(()),
        }
    }

    fn follows(&self) -> Option<String> {
        self.following.as_ref().map(|following| following.root())
    }

    fn is_member(&self, standby: &str) -> bool {
        self.following.is_none() && self.control.as_ref().is_some_and(|control| control.is_member(standby))
    }

    fn fell_back(&self, standby: &str) -> Result<(), Refusal> {
        tracing::warn!(standby, "it comes back with less than it has confirmed: has its disk lost something?");
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
        // What a standby hands on may be applied only when its own master has made it durable.
        self.following.as_ref().map_or(durable, |following| following.master_durable().min(durable))
    }

    fn in_sync(&self, in_sync: bool) {
        self.in_sync.set(in_sync);
    }

    fn deposed(&self, by: Epoch) {
        if self.following.is_some() {
            return;
        }
        self.engine.depose("another server has become the master");
        // Whoever waits is not told how it ended: that is for the new master to say.
        self.engine.stop_waiting();
        if let Some(control) = &self.control {
            let epoch = self.engine.trail().epoch();
            tokio::task::block_in_place(|| control.give_up(&Handle::current(), epoch));
        }
        self.notify.tell(&format!(
            "{} was deposed: there is a master of epoch {by}. It acknowledges nothing from now on; stop it and bring it back \
             with: holdfast rejoin",
            self.name
        ));
    }

    fn hold(&self, standby: &str, from: Lsn, begins: bool) -> Result<(), Refusal> {
        if self.archive.is_some() && from < self.engine.trail().first() {
            // It catches up from the archive; there is nothing to keep for it before it has come as far as the trail.
            return Ok(());
        }
        let held = match begins {
            true => self.engine.register_slot(standby, from),
            false => self.engine.hold_slot(standby, from),
        };
        held.map_err(|error| {
            let message = format!("the trail cannot be kept for {standby}: {error}");
            Refusal::new(Reason::Failed, message, "See the master's log; its data directory must be writable")
        })
    }

    fn forget(&self, standby: &str) -> Result<bool, Refusal> {
        if standby == crate::mirror::SLOT {
            let advice = "Leave out the setting mirror to go on without one";
            return Err(Refusal::new(Reason::NotAdmitted, format!("{standby} is this server's mirror"), advice));
        }
        self.engine.release_slot(standby).map_err(|error| {
            let message = format!("the list of standbys cannot be written: {error}");
            Refusal::new(Reason::Failed, message, "See the server's log; its data directory must be writable")
        })
    }

    fn reached(&self, reached: Reached) {
        self.engine.reached(Level::Warm, reached.warm);
        self.engine.reached(Level::Hot, reached.hot);
        self.engine.reached(Level::Commit, reached.commit);
    }

    fn base_copy(&self, _: &str) -> Result<Box<dyn BaseCopy>, Refusal> {
        // A checkpoint or a VACUUM under way is waited for; other links go on.
        tokio::task::block_in_place(|| super::copying::begin(&self.engine)).map_err(|error| {
            let message = format!("a base copy cannot begin: {error}");
            Refusal::new(Reason::Failed, message, "See the master's log")
        })
    }

    fn status(&self) -> String {
        self.standings.json()
    }

    fn follow_on(&self, follow: bool) -> Option<Result<String, Refusal>> {
        let following = self.following.as_ref()?;
        following.pause(!follow);
        let (name, master, has) = (&self.name, following.master(), self.engine.trail().durable());
        Some(Ok(match follow {
            true => format!("{name} follows {master} again, from LSN {has}"),
            false => format!(
                "{name} follows {master} no more; it has everything up to LSN {has} and goes on answering reads"
            ),
        }))
    }

    fn promote(&self, accept_divergence: bool) -> Result<String, Refusal> {
        let Some(following) = &self.following else { return self.is_master_already() };
        self.can_be_promoted(following)?;
        // As it is now: what the group does next may end the link.
        let given_up = accept_divergence.then(|| GivenUp::of(following, self.engine.trail().epoch()));
        let mut epoch = None;
        if let Some(control) = &self.control {
            let at_least = Epoch(self.engine.trail().epoch().0 + 1);
            let agreed = tokio::task::block_in_place(|| {
                Handle::current().block_on(control.promote(at_least, accept_divergence))
            });
            epoch = Some(agreed.map_err(|error| Refusal::new(Reason::NotSafe, error.to_string(), way_out(&error)))?);
        } else if !accept_divergence {
            if following.is_grouped() {
                let message = format!("{} has followed a master of a control plane and takes no part in it", self.name);
                let advice = "Promote a member of the group; or give this one the control_* lines. With --accept-divergence \
                              it becomes a master that the group does not know of: stop the group's first";
                return Err(Refusal::new(Reason::NotSafe, message, advice));
            }
            tokio::task::block_in_place(|| {
                is_stopped(following.master())?;
                let root = following.root();
                if root == following.master() { Ok(()) } else { is_stopped(&root) }
            })?;
        }
        let failed = |why: String| Refusal::new(Reason::Failed, why, "See the standby's log");
        let (reply, answer) = std::sync::mpsc::channel();
        let stopping = || failed("the server is stopping".to_owned());
        self.events.send(Event::Promote { epoch, given_up, reply }).map_err(|_| stopping())?;
        match tokio::task::block_in_place(|| answer.recv_timeout(PROMOTION_MAX)) {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(why)) => Err(failed(why)),
            Err(RecvTimeoutError::Timeout) => Err(failed("the promotion has not ended yet".to_owned())),
            Err(RecvTimeoutError::Disconnected) => {
                Err(failed("the server changed its role meanwhile; ask for its status".to_owned()))
            }
        }
    }
}

impl Asked {
    fn is_master_already(&self) -> Result<String, Refusal> {
        let epoch = self.engine.trail().epoch();
        match self.engine.gate().held {
            None => Ok(format!("{} is the master already, epoch {epoch}", self.name)),
            Some(why) => {
                let message = format!("{} was the master of epoch {epoch} and acknowledges nothing: {why}", self.name);
                let advice = "Stop it and bring it back with: holdfast rejoin";
                Err(Refusal::new(Reason::NotMaster, message, advice))
            }
        }
    }

    /// Nobody is deposed for a promotion that cannot succeed.
    fn can_be_promoted(&self, following: &Following) -> Result<(), Refusal> {
        let refuse = |message: String, advice: &str| Err(Refusal::new(Reason::NotSafe, message, advice));
        if !following.is_whole() {
            let message = format!("the base copy of {} is not whole: its databases are not of one moment", self.name);
            return refuse(message, "Promote another standby, or let this one follow until it is whole");
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
fn way_out(error: &ControlError) -> &'static str {
    match error {
        ControlError::Behind { .. } => "Promote that one; what only it has is given up with --accept-divergence",
        ControlError::Parted { .. } => {
            "Look at both of them with holdfast standby status; what only the other one has is given up with \
             --accept-divergence"
        }
        ControlError::NotCompared { .. } => {
            "Start one of them and try again; what only they have is given up with --accept-divergence"
        }
        _ => {
            "A majority of the control plane has to be there, and this standby in its sync set (holdfast standby status \
             shows it); what the standby may lack is given up with --accept-divergence"
        }
    }
}

/// Is it certain that nothing serves at the old master's address? Only a refused connection says so: the machine is
/// there, and nobody listens.
fn is_stopped(master: &str) -> Result<(), Refusal> {
    let not_safe = |why: String| {
        let advice = "Stop the old master first; or, if it cannot come back and acknowledge anything, promote with \
                      --accept-divergence: what it acknowledged at level cold and did not ship is then not here";
        Err(Refusal::new(Reason::NotSafe, why, advice))
    };
    if master.is_empty() {
        return not_safe("it is not known who the master at the end of the chain is".to_owned());
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
                return not_safe(format!("nothing shows that the master at {master} is stopped: {error}"));
            }
        }
    }
    Ok(())
}
