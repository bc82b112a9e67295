//! Histories of a master and a standby, by seed: appends, links that are cut, held and refused, crashes of both. After
//! each history the standby has the master's bytes; during it every acknowledgement was true.

use std::time::Duration;

use holdfast_seams::testing::{FaultDisk, Seeded};
use holdfast_types::Lsn;

use super::net::{Direction, Net};
use super::nodes::{MasterNode, StandbyNode, link_options, shipped};
use crate::link_server::LinkServer;
use crate::receive::Ended;
use crate::standby::Standby;
use crate::sync_set::Reached;

const STEPS: u64 = 40;

/// Counts of what happened in a history, so that a test can check that it has tested something.
#[derive(Default, Debug)]
struct Counts {
    appended: u64,
    cuts: u64,
    holds: u64,
    master_crashes: u64,
    standby_crashes: u64,
    cut_back: u64,
}

struct History {
    random: Seeded,
    net: Net,
    master_disk: FaultDisk,
    master: std::sync::Arc<MasterNode>,
    serving: tokio::task::JoinHandle<()>,
    standby_disk: FaultDisk,
    standby: std::sync::Arc<StandbyNode>,
    stop: tokio::sync::watch::Sender<bool>,
    following: tokio::task::JoinHandle<Ended>,
    instance: u64,
    /// What earlier masters may have acknowledged.
    reached: Reached,
    counts: Counts,
}

impl History {
    fn new(seed: u64) -> History {
        let (master_disk, standby_disk) = (FaultDisk::new(seed), FaultDisk::new(seed ^ 1));
        let net = Net::new(seed ^ 2);
        let master = MasterNode::open(&master_disk);
        master.append(100);
        let (_, serving) = master.serve(&net);
        StandbyNode::found(&standby_disk, master.trail());
        let standby = StandbyNode::open(&standby_disk, "b", Lsn(0)).unwrap();
        let (stop, following) = standby.follow(&net, 1);
        History {
            random: Seeded::new(seed ^ 3),
            net,
            master_disk,
            master,
            serving,
            standby_disk,
            standby,
            stop,
            following,
            instance: 1,
            reached: Reached::default(),
            counts: Counts::default(),
        }
    }

    async fn step(&mut self) {
        match self.random.below(20) {
            0..=9 => self.append(),
            10 | 11 => {
                self.counts.cuts += 1;
                self.net.cut();
            }
            12 => {
                self.counts.holds += 1;
                let direction = if self.random.one_in(2) { Direction::There } else { Direction::Back };
                let held = self.random.one_in(2);
                self.net.hold(direction, held);
            }
            13 => {
                let unreachable = self.random.one_in(2);
                self.net.set_unreachable(unreachable);
            }
            14 => self.crash_standby().await,
            15 => self.crash_master().await,
            _ => self.net.heal(),
        }
        let pause_ms = [0, 1, 5, 200, 7_000][self.random.below(5) as usize];
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        self.check();
        self.mend().await;
    }

    fn append(&mut self) {
        for _ in 0..1 + self.random.below(8) {
            let bytes = 1 + self.random.below(12_000) as usize;
            self.counts.appended += u64::from(self.master.append(bytes).is_some());
        }
    }

    /// What this master and earlier ones may have acknowledged: durable there, and at its level on the standby.
    fn acknowledged(&self) -> Reached {
        let (reached, end) = (*self.master.reached.lock(), self.master.trail().durable());
        let Reached { warm, hot, commit } = reached;
        self.reached.max(Reached { warm: warm.min(end), hot: hot.min(end), commit: commit.min(end) })
    }

    /// Checks what must hold at every moment.
    fn check(&self) {
        let (reached, end) = (self.acknowledged(), self.standby.trail().durable());
        assert!(reached.hot <= end, "hot up to {}, durable at the standby up to {end}", reached.hot);
        assert!(reached.commit <= self.standby.applied_lsn());
        let durable = self.master.trail().durable();
        assert!(self.standby.applied_lsn() <= durable, "applied what the master may lose");
    }

    /// The standby loses power. What it had acknowledged as durable must be there afterwards.
    async fn crash_standby(&mut self) {
        self.counts.standby_crashes += 1;
        self.following.abort();
        let _ = (&mut self.following).await;
        self.standby_disk.cut_power();
        self.reopen_standby();
    }

    fn reopen_standby(&mut self) {
        let applied = self.standby.applied_lsn();
        // On a disk without power, closing only returns an error.
        let _ = self.standby.trail().close();
        self.standby_disk.restore_power();
        self.standby = StandbyNode::open(&self.standby_disk, "b", applied).unwrap();
        self.instance += 1;
        (self.stop, self.following) = self.standby.follow(&self.net, self.instance);
    }

    /// The master loses power in the middle of a write that is being shipped, and starts again in the next epoch.
    async fn crash_master(&mut self) {
        self.counts.master_crashes += 1;
        self.master_disk.cut_power_after(1 + self.random.below(3));
        self.append();
        // Messages in transit may still arrive.
        tokio::time::sleep(Duration::from_millis(self.random.below(5))).await;
        self.serving.abort();
        let _ = (&mut self.serving).await;
        self.net.cut();
        self.reached = self.acknowledged();
        let _ = self.master.trail().close();
        self.master_disk.cut_power();
        self.master_disk.restore_power();
        self.master = MasterNode::open(&self.master_disk);
        (_, self.serving) = self.master.serve(&self.net);
    }

    /// Acts as a node does when following has ended.
    async fn mend(&mut self) {
        while self.following.is_finished() {
            match (&mut self.following).await.unwrap() {
                Ended::CutBack(tip) => {
                    self.counts.cut_back += 1;
                    assert!(self.standby.applied_lsn() <= tip.lsn);
                    assert!(self.acknowledged().hot <= tip.lsn, "what was acknowledged is cut");
                    let applied = self.standby.applied_lsn();
                    self.close_standby();
                    StandbyNode::cut_back(&self.standby_disk, tip);
                    self.standby = StandbyNode::open(&self.standby_disk, "b", applied).unwrap();
                    self.instance += 1;
                    (self.stop, self.following) = self.standby.follow(&self.net, self.instance);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn close_standby(&mut self) {
        self.standby.trail().close().unwrap();
    }

    /// Repairs everything and waits until the standby has everything.
    async fn settle(&mut self) {
        self.net.heal();
        self.master.append(100);
        for _ in 0..10_000 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            self.mend().await;
            if self.standby.trail().tip() == self.master.trail().tip()
                && self.standby.applied_lsn() == self.master.trail().durable()
                && self.master.reached.lock().commit == self.master.trail().durable()
            {
                return;
            }
        }
        panic!(
            "the standby stays at {:?}, the master is at {:?}; {:?}",
            self.standby.trail().tip(),
            self.master.trail().tip(),
            self.standby.phases.lock().last()
        );
    }
}

async fn history(seed: u64) -> Counts {
    let mut history = History::new(seed);
    for _ in 0..STEPS {
        history.step().await;
    }
    history.settle().await;
    assert_eq!(shipped(history.standby.trail()), shipped(history.master.trail()), "seed {seed}");
    // An orderly end: everything is acknowledged, and no standby is connected.
    history.stop.send(true).unwrap();
    let ended = (&mut history.following).await.unwrap();
    assert!(matches!(ended, Ended::Stopped), "{ended:?}");
    history.serving.abort();
    history.counts
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(test)
}

#[test]
fn after_any_history_the_standby_has_the_masters_bytes() {
    let seeds: u64 = std::env::var("HOLDFAST_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(20);
    let first: u64 = std::env::var("HOLDFAST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let mut total = Counts::default();
    for seed in first..first + seeds {
        let counts = std::panic::catch_unwind(|| run(history(seed)));
        let counts = counts.unwrap_or_else(|_| panic!("seed {seed} failed; HOLDFAST_SEED={seed} HOLDFAST_SEEDS=1"));
        total.appended += counts.appended;
        total.cuts += counts.cuts;
        total.holds += counts.holds;
        total.master_crashes += counts.master_crashes;
        total.standby_crashes += counts.standby_crashes;
        total.cut_back += counts.cut_back;
    }
    println!("{seeds} histories: {total:?}");
    if seeds >= 20 {
        assert!(total.cut_back > 0 && total.master_crashes > 0 && total.standby_crashes > 0, "{total:?}");
    }
}

/// Both sides notice a dead link within the allowed silence, and the standby no longer counts.
#[test]
fn a_held_link_is_given_up_and_made_again() {
    run(async {
        let mut history = History::new(7);
        history.settle().await;
        let (hub, serving) = history.master.serve(&history.net);
        history.serving.abort();
        history.net.cut();
        history.settle().await;
        assert!(hub.is_in_sync() && hub.standbys().len() == 1);
        history.net.hold(Direction::There, true);
        let allowed = link_options().silence_max + Duration::from_secs(1);
        tokio::time::sleep(allowed).await;
        assert!(!hub.is_in_sync() && hub.standbys().is_empty(), "nothing comes from the standby any more");
        let reached = hub.reached();
        history.append();
        assert_eq!(hub.reached(), reached, "commits wait");
        history.settle().await;
        assert!(hub.is_in_sync() && hub.reached().commit > reached.commit);
        assert_eq!(
            history.master.in_sync.lock()[..].last_chunk(),
            Some(&[true, false, true]),
            "it was reported to the master"
        );
        serving.abort();
    });
}

/// A stop by the master sends everything first; the standby stays disconnected until it may follow again.
#[test]
fn an_orderly_stop_from_the_master_loses_nothing() {
    run(async {
        let mut history = History::new(11);
        let (hub, serving) = history.master.serve(&history.net);
        history.serving.abort();
        history.net.cut();
        history.settle().await;
        history.append();
        hub.stop(Some("b"));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(history.standby.trail().tip(), history.master.trail().tip());
        assert!(hub.standbys().is_empty());
        history.append();
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(hub.standbys().is_empty() && history.standby.trail().tip() != history.master.trail().tip());
        hub.start(Some("b"));
        history.settle().await;
        serving.abort();
    });
}

/// What was received is written even if the link ends before that: the master may never return.
#[test]
fn what_was_acknowledged_as_received_is_on_the_disk_soon_after_the_master_died() {
    run(async {
        let (net, master) = (Net::new(5), MasterNode::open(&FaultDisk::new(5)));
        let (_, serving) = master.serve(&net);
        let disk = FaultDisk::new(6);
        StandbyNode::found(&disk, master.trail());
        let mut standby = std::sync::Arc::into_inner(StandbyNode::open(&disk, "b", Lsn(0)).unwrap()).unwrap();
        standby.writes_take = Duration::from_secs(1);
        let standby = std::sync::Arc::new(standby);
        let (_stop, _following) = standby.follow(&net, 1);
        tokio::time::sleep(Duration::from_millis(100)).await;
        (0..5).for_each(|_| _ = master.append(5000).unwrap());
        tokio::time::sleep(Duration::from_millis(500)).await;
        let received = master.reached.lock().warm;
        assert!(received == master.trail().durable() && standby.trail().durable() < received, "received, not written");
        serving.abort();
        net.cut();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(standby.trail().durable() >= received);
    });
}
