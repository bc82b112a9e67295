//! One member of the group: opens its directory, and runs its tasks on a thread of its own.
//!
//! The thread keeps the control plane apart from the server's load: its syncs block no other thread, and no other
//! work delays its answers. When its disk fails, or a task of it panics, [`Machinery::on_failure`] is called, which ends
//! the process: a member that no longer votes must not be taken for one that does (guarantee 5).

use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use holdfast_seams::{Disk, DiskLock};
use holdfast_types::Epoch;
use openraft::AsyncRuntime;
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};

use crate::applied::{Applied, TURN};
use crate::clock::{BootClock, LeaseClock};
use crate::core::{Core, Holding};
use crate::error::ControlError;
use crate::failover;
use crate::grant::Roster;
use crate::grants::Grants;
use crate::handle::{ControlHandle, Job};
use crate::id::{DiskId, NodeId};
use crate::journal::Journal;
use crate::leads;
use crate::lease::{Lease, LeaseTerms};
use crate::machine::{Machine, Published};
use crate::members;
use crate::peers::{Known, Peers};
use crate::raft::{Raft, Runtime, settings};
use crate::record::{RECORD_VERSION, RECORD_VERSION_GRANTS, Role};
use crate::server::Server;
use crate::sight::Planner;
use crate::starts::Starts;
use crate::storage::LogStore;
use crate::trail_tip::{LinkSlot, TrailSlot};
use crate::transport::Transport;
use crate::voter_feed::VoterFeed;

/// The configuration of a member. `members` and, when the group is founded, `lease` must be the same on all members.
#[derive(Clone, Debug)]
pub struct Config {
    pub node: NodeId,
    /// The directory of its journal and snapshot; it is created if it does not exist.
    pub dir: PathBuf,
    /// Three, one of them at most a witness; or one alone.
    pub members: BTreeMap<NodeId, Role>,
    /// Taken into the record by the founding; later changes have no effect.
    pub lease: LeaseTerms,
    /// The group is founded with leases that voters grant by their answers to pulses: this process has a pulse thread
    /// ([`ControlHandle::grants`]).
    pub by_pulses: bool,
    /// Where this node takes the links of other nodes, HOST:PORT: the members tell each other, so that a standby finds the
    /// master. `None`: it takes none, or is a witness.
    pub link: Option<String>,
}

impl Config {
    fn check(&self) -> Result<(), ControlError> {
        let wrong = |why: String| Err(ControlError::Members(why));
        if !self.members.contains_key(&self.node) {
            return wrong(format!("{} is not among the members", self.node));
        }
        if !matches!(self.members.len(), 1 | 3) {
            return wrong(format!("there are {}; three (or one) are required", self.members.len()));
        }
        let data = self.members.values().filter(|role| **role == Role::Data).count();
        if data * 2 < self.members.len() {
            return wrong(format!("{data} of {} hold data; at most one member may be a witness", self.members.len()));
        }
        self.lease.flaw_under(self.record_version()).map_or(Ok(()), wrong)
    }

    /// The version of the record that the group is founded with.
    pub fn record_version(&self) -> u16 {
        if self.by_pulses { RECORD_VERSION_GRANTS } else { RECORD_VERSION }
    }
}

/// The machine below: real, or simulated.
#[derive(Clone)]
pub struct Machinery {
    pub disk: Arc<dyn Disk>,
    pub transport: Arc<dyn Transport>,
    pub clock: Arc<dyn LeaseClock>,
    /// Random numbers that differ between nodes and starts.
    pub random: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Chooses the successor of a silent master; `None`: no node is named without a command.
    pub planner: Option<Planner>,
    /// Called with the reason when the member can take part no more, once, on its thread. What was being written may or
    /// may not be on the disk, and only a new start reads that: the process has to end.
    pub on_failure: Arc<dyn Fn(&ControlError) + Send + Sync>,
}

impl Machinery {
    /// This machine's clock and random numbers; a failure aborts the process. A directory that is older than it was is no
    /// failure of this machine: the process then ends with exit code 1.
    pub fn real(disk: Arc<dyn Disk>, transport: Arc<dyn Transport>) -> Machinery {
        let on_failure = Arc::new(|error: &ControlError| match error {
            ControlError::RolledBack { .. } => std::process::exit(1),
            _ => std::process::abort(),
        });
        let (clock, random) = (Arc::new(BootClock), Arc::new(os_random));
        Machinery { disk, transport, clock, random, planner: None, on_failure }
    }
}

/// From the kernel; it is there on every Linux, and without it no two numbers could be trusted to differ.
fn os_random() -> u64 {
    let mut bytes = [0; 8];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if let Err(error) = read {
        tracing::error!("/dev/urandom: {error}");
        std::process::abort();
    }
    u64::from_le_bytes(bytes)
}

/// An opened member that does not run yet.
pub struct Member {
    config: Config,
    machinery: Machinery,
    journal: Journal,
    machine: Machine,
    published: Published,
    applied: Applied,
    starts: Arc<Starts>,
    holding: Arc<Holding>,
    trail: TrailSlot,
    link: LinkSlot,
    grants: Arc<Grants>,
    feed: VoterFeed,
    jobs: mpsc::UnboundedReceiver<Job>,
    _lock: Box<dyn DiskLock>,
    #[cfg(test)]
    pub sabotage: crate::simulation::Sabotage,
}

impl Member {
    /// Opens the directory; the handle works from when the member runs.
    pub fn open(config: Config, machinery: Machinery) -> Result<(Member, ControlHandle), ControlError> {
        config.check()?;
        let (disk, dir) = (&machinery.disk, &config.dir);
        disk.create_dir(dir).map_err(ControlError::io("create", dir))?;
        let lock_path = dir.join("lock");
        let lock = disk.lock(&lock_path).map_err(ControlError::io("lock", &lock_path))?;
        let lock = lock.ok_or(ControlError::InUse(lock_path))?;
        let journal = Journal::open(disk.clone(), dir, config.node, DiskId((machinery.random)()))?;
        let starts = Starts::open(disk.clone(), dir, journal.disk_id(), (machinery.random)())?;
        let published = Published::new();
        let applied = Applied::new(machinery.clock.clone());
        let too_many = || ControlError::Members(format!("there are {}; three are required", config.members.len()));
        let grants = Arc::new(Grants::new(Roster::new(config.members.keys().copied()).ok_or_else(too_many)?));
        let feed = VoterFeed::new(config.node, journal.disk_id(), grants.roster, grants.log.clone());
        let machine = Machine::open(disk.clone(), dir, published.clone(), applied.clone(), feed.clone())?;
        if journal.content.purged > machine.applied() {
            let what = "the journal continues after the end of the snapshot".to_owned();
            return Err(ControlError::Damage { file: dir.join("snapshot"), offset: 0, what });
        }
        // Before the first pulse is answered.
        let behind = machine.applied().map_or(0, |applied| applied.index + 1);
        feed.replayed(journal.content.entries.range(behind..).map(|(_, entry)| entry));
        starts.met().iter().for_each(|(node, start)| grants.note_start(*node, start));
        let never = Lease::new(Epoch(0), machinery.clock.clone());
        let holding = Arc::new(Holding {
            lease: Mutex::new(never),
            held: watch::Sender::new(false),
            leader: Mutex::default(),
            sync_changes: AtomicU64::new(0),
        });
        let (sender, jobs) = mpsc::unbounded_channel();
        let (trail, link) = (TrailSlot::default(), LinkSlot::default());
        link.set(config.link.clone());
        let handle = ControlHandle {
            jobs: sender,
            published: published.clone(),
            holding: holding.clone(),
            trail: trail.clone(),
            link: link.clone(),
            grants: grants.clone(),
            incarnation: starts.own().mark,
        };
        let member = Member {
            config,
            machinery,
            journal,
            machine,
            published,
            applied,
            starts: Arc::new(starts),
            holding,
            trail,
            link,
            grants,
            feed,
            jobs,
            _lock: lock,
            #[cfg(test)]
            sabotage: crate::simulation::Sabotage::None,
        };
        Ok((member, handle))
    }

    /// Takes part until every handle is gone. An error: its disk has failed, or Raft.
    pub async fn run(self) -> Result<(), ControlError> {
        #[cfg(test)]
        let leads_on = self.sabotage == crate::simulation::Sabotage::ResumesLeading;
        #[cfg(not(test))]
        let leads_on = false;
        let Member {
            config,
            machinery,
            mut journal,
            machine,
            published,
            applied,
            starts,
            holding,
            trail,
            link,
            grants,
            feed,
            mut jobs,
            _lock,
            ..
        } = self;
        let disk = journal.disk_id();
        if !leads_on {
            journal.lead_no_longer();
        }
        let store = LogStore::new(journal, machine.covered(), feed);
        let peers = Peers::new(
            config.node,
            config.members.clone(),
            machinery.transport.clone(),
            published.clone(),
            Known { starts: starts.clone(), grants: grants.clone(), log: store.clone() },
            #[cfg(test)]
            self.sabotage,
        );
        let stopped = |error: &dyn std::fmt::Display| ControlError::Stopped(error.to_string());
        let settings = Arc::new(settings().validate().map_err(|error| stopped(&error))?);
        #[cfg(test)]
        let machine = machine.sabotaged(self.sabotage);
        let raft = Raft::new(config.node, settings, peers.clone(), store, machine).await;
        let raft = raft.map_err(|error| stopped(&error))?;
        peers.set_raft(raft.clone());
        let greeting = peers.clone();
        let core = Arc::new(Core {
            me: config.node,
            disk,
            members: config.members.clone(),
            record_version: config.record_version(),
            terms: config.lease,
            grants,
            clock: machinery.clock,
            random: machinery.random,
            raft: raft.clone(),
            peers: peers.clone(),
            published: published.clone(),
            holding,
            trail: trail.clone(),
            applied: applied.clone(),
            planner: machinery.planner,
            watching: Mutex::default(),
            #[cfg(test)]
            sabotage: self.sabotage,
        });
        let server = Server {
            me: config.node,
            disk,
            members: config.members,
            link,
            raft: raft.clone(),
            peers,
            published,
            trail,
            refused: Mutex::default(),
            starts,
            explain: Arc::new({
                let core = core.clone();
                move || {
                    let core = core.clone();
                    Box::pin(async move { failover::explain(&core).await })
                }
            }),
            #[cfg(test)]
            sabotage: self.sabotage,
        };
        let serve_jobs = async {
            while let Some(job) = jobs.recv().await {
                drop(Runtime::spawn(job(core.clone())));
            }
        };
        let ended = tokio::select! {
            () = Arc::new(server).run(machinery.transport) => Ok(()),
            () = members::keep(core.clone()) => Ok(()),
            () = failover::keep(core.clone()) => Ok(()),
            () = leads::keep(core.clone()) => Ok(()),
            () = watch_time(&applied) => Ok(()),
            () = serve_jobs => Ok(()),
            () = greeting.announce() => Ok(()),
            why = greeting.rolled_back() => Err(ControlError::RolledBack { dir: config.dir, why }),
            why = raft_stops(&raft) => Err(ControlError::Stopped(why)),
        };
        if ended.is_ok() {
            // No receiver is left for the report of a task that panicked.
            let _ = raft.shutdown().await;
        }
        ended
    }
}

/// Looks at the clock in turns, for what counts watched time only.
async fn watch_time(applied: &Applied) {
    loop {
        applied.watched().now_ns();
        tokio::time::sleep(TURN).await;
    }
}

/// Waits until Raft has stopped, and says why.
async fn raft_stops(raft: &Raft) -> String {
    let mut metrics = raft.metrics();
    match metrics.wait_for(|metrics| metrics.running_state.is_err()).await {
        Ok(metrics) => metrics.running_state.as_ref().map_or_else(ToString::to_string, |()| String::new()),
        // Raft's task is gone.
        Err(_) => "Raft's task has panicked; see the log".to_owned(),
    }
}

/// Starts a member on a thread of its own.
pub struct ControlNode;

impl ControlNode {
    /// Opens the directory, starts the thread and returns; the group is reached in the background.
    pub fn start(config: Config, machinery: Machinery) -> Result<ControlHandle, ControlError> {
        let dir = config.dir.clone();
        let (member, handle) = Member::open(config, machinery)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ControlError::io("start the control plane of", &dir))?;
        let on_failure = member.machinery.on_failure.clone();
        let run = move || {
            if let Err(error) = runtime.block_on(member.run()) {
                tracing::error!("the process ends: {error}");
                on_failure(&error);
            }
        };
        let thread = std::thread::Builder::new().name("control".to_owned());
        thread.spawn(run).map_err(ControlError::io("start the control plane of", &dir))?;
        Ok(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::ControlPlane;
    use crate::transport::TcpTransport;
    use holdfast_seams::testing::FaultDisk;
    use std::sync::mpsc;
    use std::time::Duration;

    /// A group of one, on a disk that fails.
    #[test]
    fn a_failed_sync_ends_the_member_and_is_told() {
        let disk = FaultDisk::new(1);
        let a: NodeId = "a".parse().unwrap();
        let transport = TcpTransport::bind("127.0.0.1:0", BTreeMap::new(), None).unwrap();
        let mut machinery = Machinery::real(Arc::new(disk.clone()), Arc::new(transport));
        let (sender, failed) = mpsc::channel();
        machinery.on_failure = Arc::new(move |error| sender.send(error.to_string()).unwrap());
        let members = BTreeMap::from([(a, Role::Data)]);
        let config = Config {
            node: a,
            dir: "/control".into(),
            members,
            lease: LeaseTerms::default(),
            by_pulses: false,
            link: None,
        };
        let control = ControlNode::start(config, machinery).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { while control.look().await.is_err() {} });
        assert!(failed.try_recv().is_err(), "so far all is well");
        disk.fail_sync(1);
        let asked = runtime.block_on(control.look());
        let why = failed.recv_timeout(Duration::from_secs(60)).unwrap();
        assert!(why.contains("the control plane of this node has stopped"), "{why}");
        assert!(asked.is_err(), "{asked:?}");
        let refused = runtime.block_on(control.look()).unwrap_err();
        assert!(matches!(refused, ControlError::Stopped(_)), "{refused}");
    }
}
