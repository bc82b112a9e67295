//! Which of the other nodes with data count as lost, by their pulses: the master's server waits for none of them longer than the
//! group needs to take them out of the sync set. `standby_timeout_ms` is for groups without pulses, and for a standby whose node is
//! there while its server is not.
//!
//! | the other node | it counts as |
//! |---|---|
//! | no pulse of it came for the time of a lease | lost |
//! | its pulses say that a sync of its trail has been under way for that long | lost |
//! | neither, for [`PROBATION`] | there again |
//!
//! A link that flaps would otherwise let commits wait for the time of a lease each time.
//!
//! Failure: time counts only while this supervisor runs, so neither its own freeze nor its start makes a node lost. A node that is
//! wrongly lost returns to the sync set when it has everything; a node that is wrongly there costs `standby_timeout_ms`.

use super::Supervisor;
use super::events::Kind;
use holdfast_control::grant::Seen;
use holdfast_control::{ControlPlane, Grants, NodeId, Role};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the pulses are looked at.
const LOOK: Duration = Duration::from_millis(25);
/// What a look adds at most to the time for which a node was never heard.
const LOOK_MAX: Duration = Duration::from_millis(50);
/// How long a node that was lost has to be there before it counts again.
const PROBATION: Duration = Duration::from_secs(1);

/// What pulses say of one node now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sign {
    Silent { ms: u64 },
    DiskHangs,
    There,
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sign::Silent { ms } => write!(f, "no pulse came for {ms} ms"),
            Sign::DiskHangs => write!(f, "a sync of its trail does not return"),
            Sign::There => write!(f, "it is there again"),
        }
    }
}

/// One node.
#[derive(Clone, Copy, Default)]
struct Judged {
    is_lost: bool,
    /// Since when it has been there, of one that counts as lost.
    there_since: Option<Instant>,
}

impl Judged {
    /// Returns whether it is lost now or there again, if that has changed.
    fn judge(&mut self, sign: Sign, now: Instant) -> Option<bool> {
        let was_lost = self.is_lost;
        if sign != Sign::There {
            (self.is_lost, self.there_since) = (true, None);
        } else if was_lost {
            let since = *self.there_since.get_or_insert(now);
            self.is_lost = now.duration_since(since) < PROBATION;
        }
        (self.is_lost != was_lost).then_some(self.is_lost)
    }
}

/// All other nodes with data.
struct Others {
    me: NodeId,
    data: Vec<NodeId>,
    judged: BTreeMap<NodeId, Judged>,
    /// The time of all looks, for nodes that were never heard.
    watched: Duration,
    looked: Option<Instant>,
}

/// What was noticed at a look.
#[derive(PartialEq, Eq, Debug)]
struct Change {
    node: NodeId,
    is_lost: bool,
    sign: Sign,
}

impl Others {
    fn new(me: NodeId, data: Vec<NodeId>) -> Others {
        Others { me, data, judged: BTreeMap::new(), watched: Duration::ZERO, looked: None }
    }

    /// Without leases by pulses there are none, and no node is lost.
    fn forget(&mut self) {
        (self.watched, self.looked) = (Duration::ZERO, None);
        self.judged.clear();
    }

    fn look(&mut self, grants: &Grants, seen: &Seen, lease: Duration, now: Instant) -> Vec<Change> {
        let passed = self.looked.replace(now).map_or(Duration::ZERO, |looked| now.duration_since(looked).min(LOOK_MAX));
        self.watched += passed;
        let mut changes = Vec::new();
        for node in self.data.iter().copied().filter(|node| *node != self.me) {
            let sign = sign(grants, seen, node, lease, self.watched);
            if let Some(is_lost) = self.judged.entry(node).or_default().judge(sign, now) {
                changes.push(Change { node, is_lost, sign });
            }
        }
        changes
    }

    fn lost(&self) -> BTreeSet<NodeId> {
        self.judged.iter().filter(|(_, judged)| judged.is_lost).map(|(node, _)| *node).collect()
    }
}

/// `watched`: for how long a node that was never heard could have been.
fn sign(grants: &Grants, seen: &Seen, node: NodeId, lease: Duration, watched: Duration) -> Sign {
    let Some(slot) = grants.roster.slot(node) else { return Sign::There };
    let quiet = seen.quiet_ms[slot].map_or(watched, |ms| Duration::from_millis(ms.into()));
    if quiet >= lease {
        Sign::Silent { ms: quiet.as_millis() as u64 }
    } else if seen.heard.contains(slot) && !seen.disk_moves.contains(slot) {
        Sign::DiskHangs
    } else {
        Sign::There
    }
}

/// Looks at the pulses as long as the supervisor runs.
pub async fn keep(supervisor: Arc<Supervisor>) {
    let grants = supervisor.control.grants();
    let nodes = supervisor.cluster.nodes.iter();
    let data = nodes.filter(|(_, found)| found.role == Role::Data).map(|(node, _)| *node).collect();
    let mut others = Others::new(supervisor.node, data);
    loop {
        tokio::time::sleep(LOOK).await;
        let is_by_pulses = supervisor.control.record().is_some_and(|record| record.is_by_pulses());
        if !is_by_pulses {
            others.forget();
            continue;
        }
        for Change { node, is_lost, sign } in
            others.look(&grants, &grants.seen.look(), supervisor.lease_time(), Instant::now())
        {
            match is_lost {
                true => supervisor.events.warn(Kind::NodeLost, format!("{node} counts as lost: {sign}")),
                false => supervisor.events.add(Kind::NodeBack, format!("{node}: {sign}")),
            }
        }
        let lost = others.lost();
        supervisor.lost.send_if_modified(|known| std::mem::replace(known, lost.clone()) != lost);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_control::grant::{NodeSet, Roster};

    const LEASE: Duration = Duration::from_millis(600);

    fn node(name: &str) -> NodeId {
        name.parse().unwrap()
    }

    struct Bench {
        grants: Grants,
        others: Others,
        seen: Seen,
        now: Instant,
    }

    impl Bench {
        /// a, which looks, and b; both were heard.
        fn new() -> Bench {
            let names = ["a", "b", "w"].map(node);
            let grants = Grants::new(Roster::new(names).unwrap());
            let all = NodeSet::of(0..3);
            let mut seen = Seen { heard: all, disk_moves: all, ..Seen::default() };
            seen.quiet_ms[1] = Some(3);
            let others = Others::new(node("a"), vec![node("a"), node("b")]);
            Bench { grants, others, seen, now: Instant::now() }
        }

        /// After so many milliseconds; what has changed of b.
        fn look(&mut self, ms: u64) -> Option<(bool, Sign)> {
            self.now += Duration::from_millis(ms);
            let changes = self.others.look(&self.grants, &self.seen, LEASE, self.now);
            assert!(changes.iter().all(|change| change.node == node("b")), "{changes:?}");
            changes.first().map(|change| (change.is_lost, change.sign))
        }

        fn quiet(&mut self, ms: Option<u32>) {
            self.seen.quiet_ms[1] = ms;
            let heard = ms.is_some_and(|ms| ms < 100);
            self.seen.heard = NodeSet::of((0..3).filter(|slot| *slot != 1 || heard));
        }
    }

    #[test]
    fn a_silent_node_is_lost_after_a_lease_and_there_again_after_a_probation() {
        let mut bench = Bench::new();
        assert_eq!(bench.look(25), None);
        bench.quiet(Some(599));
        assert_eq!(bench.look(25), None);
        bench.quiet(Some(600));
        assert_eq!(bench.look(25), Some((true, Sign::Silent { ms: 600 })));
        assert_eq!(bench.others.lost(), BTreeSet::from([node("b")]));
        bench.quiet(Some(20));
        assert_eq!(bench.look(25), None);
        assert_eq!(bench.look(900), None, "on probation");
        // It flaps: the probation begins again.
        bench.quiet(Some(700));
        assert_eq!(bench.look(25), None);
        bench.quiet(Some(20));
        assert_eq!(bench.look(25), None);
        assert_eq!(bench.look(999), None);
        assert_eq!(bench.look(1), Some((false, Sign::There)));
        assert_eq!(bench.others.lost(), BTreeSet::new());
    }

    #[test]
    fn a_node_whose_disk_hangs_is_lost() {
        let mut bench = Bench::new();
        bench.seen.disk_moves = NodeSet::of([0, 2]);
        assert_eq!(bench.look(25), Some((true, Sign::DiskHangs)));
        bench.seen.disk_moves = NodeSet::of(0..3);
        assert_eq!(bench.look(25), None);
        assert_eq!(bench.look(1_000), Some((false, Sign::There)));
        // What a node said last does not count when it is silent.
        (bench.seen.disk_moves, bench.seen.heard) = (NodeSet::of([0, 2]), NodeSet::of([0, 2]));
        bench.seen.quiet_ms[1] = Some(150);
        assert_eq!(bench.look(25), None);
    }

    #[test]
    fn a_node_that_was_never_heard_is_lost_after_a_lease_of_watched_time() {
        let mut bench = Bench::new();
        bench.quiet(None);
        assert_eq!(bench.look(0), None);
        // This supervisor itself was stopped: a look adds 50 ms.
        assert_eq!(bench.look(60_000), None);
        for _ in 0..10 {
            assert_eq!(bench.look(50), None);
        }
        assert_eq!(bench.look(50), Some((true, Sign::Silent { ms: 600 })));
        bench.others.forget();
        assert_eq!(bench.others.lost(), BTreeSet::new());
        assert_eq!(bench.look(50), None);
    }
}
