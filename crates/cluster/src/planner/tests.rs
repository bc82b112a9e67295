use super::*;
use holdfast_control::{LeaseTerms, RECORD_VERSION_GRANTS, apply};

fn node(name: &str) -> NodeId {
    name.parse().unwrap()
}

fn set(names: &str) -> BTreeSet<NodeId> {
    names.chars().map(|name| node(&name.to_string())).collect()
}

/// The data nodes of `names` and the witness w; a is the master of epoch 1, all data nodes are in the sync set.
fn founded(names: &str) -> Record {
    let data = set(names).into_iter().map(|node| (node, Role::Data));
    let members = data.chain([(node("w"), Role::Witness)]).collect();
    let (version, lease) = (RECORD_VERSION_GRANTS, LeaseTerms::by_grants(600));
    let mut record = None;
    apply(&mut record, &Command::Found { version, group: 7, members, lease, pulse_key: None }).unwrap();
    let mut record = record.unwrap();
    done(
        &mut record,
        &Command::Depose { expected_epoch: Epoch(0), successor: node("a"), accept_loss: false, seen: None },
    );
    done(&mut record, &promote("a", Epoch(0)));
    for (change, name) in (1..).zip(names.chars().skip(1)) {
        let (epoch, by, node) = (Epoch(1), node("a"), node(&name.to_string()));
        done(&mut record, &Command::GrowSyncSet { epoch, by, node, change });
    }
    record
}

fn promote(name: &str, expected_epoch: Epoch) -> Command {
    Command::Promote {
        node: node(name),
        expected_epoch,
        epoch_at_least: Epoch(0),
        waited_ms: 613,
        accept_loss: false,
        attempt: u64::from(expected_epoch.0) + 1,
        compared: BTreeSet::new(),
        becomes: None,
    }
}

fn applied(record: &Record, command: &Command) -> Result<Record, String> {
    let mut next = Some(record.clone());
    apply(&mut next, command).map_err(|refusal| format!("{command:?}: {refusal}"))?;
    Ok(next.unwrap())
}

fn done(record: &mut Record, command: &Command) {
    *record = applied(record, command).unwrap();
}

const GOOD: NodeState = NodeState {
    is_up: true,
    quiet_ms: 0,
    counts_silence_of: None,
    server_ready: true,
    disk_moves: true,
    clock_off: false,
    tip: Some(Position { epoch: Epoch(1), lsn: 100 }),
};
const GONE: NodeState = NodeState { is_up: false, quiet_ms: 650, ..GOOD };
const SILENT: NodeState = NodeState { counts_silence_of: Some(Epoch(1)), ..GOOD };

/// Everything is well; all members vote.
fn view<'a>(record: &'a Record, order: &'a [NodeId]) -> View<'a> {
    let nodes = record.members.keys().map(|node| (*node, GOOD)).collect();
    let voters = [record.members.keys().copied().collect(), BTreeSet::new()];
    let unfit = BTreeMap::new();
    View { record, order, nodes, unfit, voters, named_ms: 0, is_frozen: false, restarts_first: None, giving_up: None }
}

fn with(mut view: View<'_>, states: &[(&str, NodeState)]) -> Step {
    view.nodes.extend(states.iter().map(|(name, state)| (node(name), *state)));
    plan(&view).step
}

fn depose_for_b() -> Step {
    Step::Depose { successor: node("b") }
}

#[test]
fn a_master_that_a_majority_does_not_hear_is_deposed() {
    let (record, order) = (founded("ab"), [node("a"), node("b")]);
    let view = || view(&record, &order);
    assert_eq!(with(view(), &[]), Step::Nothing);
    let dead = [("a", GONE), ("b", SILENT), ("w", SILENT)];
    assert_eq!(with(view(), &dead), depose_for_b());
    let frozen = View { is_frozen: true, ..view() };
    assert_eq!(with(frozen, &dead), Step::Nothing, "C14");
    // C6: one voter alone, of an older epoch, no longer heard, or that has no vote.
    assert_eq!(with(view(), &[("a", GONE), ("b", SILENT)]), Step::Nothing);
    let of_another = NodeState { counts_silence_of: Some(Epoch(2)), ..GOOD };
    assert_eq!(with(view(), &[("a", GONE), ("b", SILENT), ("w", of_another)]), Step::Nothing);
    let not_heard = NodeState { is_up: false, ..SILENT };
    assert_eq!(with(view(), &[("a", GONE), ("b", SILENT), ("w", not_heard)]), Step::Nothing);
    let voters = [set("abw"), set("ab")];
    assert_eq!(with(View { voters, ..view() }, &dead), Step::Nothing, "of both sets");
    assert_eq!(with(View { voters: [set(""), set("")], ..view() }, &dead), Step::Nothing);
}

#[test]
fn only_a_node_that_can_take_over_is_named() {
    let (mut record, order) = (founded("ab"), [node("a"), node("b")]);
    let dead = |b: NodeState| [("a", GONE), ("b", b), ("w", SILENT)];
    let flaws = [
        NodeState { server_ready: false, ..SILENT },
        NodeState { disk_moves: false, ..SILENT },
        NodeState { clock_off: true, ..SILENT },
    ];
    for b in flaws {
        assert_eq!(with(view(&record, &order), &dead(b)), Step::Nothing, "{b:?}");
    }
    let (epoch, by) = (Epoch(1), node("a"));
    done(&mut record, &Command::ShrinkSyncSet { epoch, by, node: node("b"), change: 2 });
    assert_eq!(with(view(&record, &order), &dead(SILENT)), Step::Nothing, "C5");
    let mut shown = view(&record, &order);
    shown.nodes.extend(dead(SILENT).map(|(name, state)| (node(name), state)));
    let text = plan(&shown).to_string();
    let lines = "a is silent, and no other node can take its place\n  a: it is the master\n  \
                 b: it is not in the sync set: it may lack acknowledged commits\n";
    assert_eq!(text, lines);
}

#[test]
fn the_highest_tip_then_the_order_decides() {
    let (record, order) = (founded("abc"), [node("a"), node("c"), node("b")]);
    let at = |lsn| NodeState { tip: Some(Position { epoch: Epoch(1), lsn }), ..SILENT };
    let dead = |b, c| [("a", GONE), ("b", at(b)), ("c", at(c)), ("w", SILENT)];
    let to = |name| Step::Depose { successor: node(name) };
    assert_eq!(with(view(&record, &order), &dead(7, 7)), to("c"));
    assert_eq!(with(view(&record, &order), &dead(8, 7)), to("b"));
    let without = NodeState { tip: None, ..SILENT };
    assert_eq!(with(view(&record, &order), &[("a", GONE), ("b", at(1)), ("c", without), ("w", SILENT)]), to("b"));
}

#[test]
fn in_a_quorum_a_successor_is_compared() {
    let (mut record, order) = (founded("abc"), [node("a"), node("b"), node("c")]);
    let (epoch, by) = (Epoch(1), node("a"));
    done(&mut record, &Command::NameQuorum { epoch, by, standbys: set("bc"), needed: 1, change: 3 });
    let at = |lsn| NodeState { tip: Some(Position { epoch, lsn }), ..SILENT };
    let dead = |b: NodeState, c: NodeState| [("a", GONE), ("b", b), ("c", c), ("w", SILENT)];
    let to = |name| Step::Depose { successor: node(name) };
    assert_eq!(with(view(&record, &order), &dead(at(6), at(7))), to("c"));
    let hung = NodeState { disk_moves: false, ..at(7) };
    assert_eq!(with(view(&record, &order), &dead(at(6), hung)), Step::Nothing, "c has more, and cannot take over");
    assert_eq!(with(view(&record, &order), &dead(at(6), GONE)), Step::Nothing, "what c has is not known");
}

#[test]
fn a_master_gives_up_only_for_a_node_that_can_take_over() {
    let (record, order) = (founded("ab"), [node("a"), node("b")]);
    let giving = |why| View { giving_up: Some(why), ..view(&record, &order) };
    let (b, a) = (Step::HandOver { successor: node("b") }, Step::HandOver { successor: node("a") });
    let hung = NodeState { disk_moves: false, ..GOOD };
    let all = [
        GivingUp::ServerEnded,
        GivingUp::ServerHangs { ms: 600 },
        GivingUp::DiskHangs { ms: 600 },
        GivingUp::ClockOff,
        GivingUp::Asked { to: None },
        GivingUp::Asked { to: Some(node("b")) },
    ];
    for why in all {
        assert_eq!(with(giving(why), &[]), b, "{why}");
        let restarts = if why == GivingUp::ServerEnded { a } else { Step::Nothing };
        assert_eq!(with(giving(why), &[("b", hung)]), restarts, "C8: {why}");
        assert_eq!(with(View { is_frozen: true, ..giving(why) }, &[]), restarts, "C14: {why}");
    }
    assert_eq!(with(giving(GivingUp::Asked { to: Some(node("w")) }), &[]), Step::Nothing, "it has no data");
    assert_eq!(with(giving(GivingUp::Asked { to: Some(node("a")) }), &[]), Step::Nothing, "it is the master");
}

#[test]
fn a_successor_that_is_not_promoted_is_replaced() {
    let (mut record, order) = (founded("abc"), [node("a"), node("b"), node("c")]);
    let command = depose_for_b().command(&record).unwrap();
    done(&mut record, &command);
    let named = |named_ms| View { named_ms, ..view(&record, &order) };
    let c = Step::Depose { successor: node("c") };
    assert_eq!(with(named(1_999), &[("a", GONE)]), Step::Nothing);
    assert_eq!(with(named(2_000), &[("a", GONE)]), c);
    assert_eq!(with(named(100), &[("a", GONE), ("b", GONE)]), c);
    let lately = NodeState { quiet_ms: 599, ..GONE };
    assert_eq!(with(named(100), &[("a", GONE), ("b", lately)]), Step::Nothing);
    let back = Step::Depose { successor: node("a") };
    assert_eq!(with(named(100), &[("b", GONE), ("c", GONE)]), back, "the last master runs");
    assert_eq!(with(named(9_000), &[("a", GONE), ("c", GONE)]), Step::Nothing, "there is no other");
}

#[test]
fn after_crashes_that_followed_the_load_the_last_master_restarts_in_place_first() {
    let (mut record, order) = (founded("ab"), [node("a"), node("b")]);
    done(&mut record, &Command::Release { epoch: Epoch(1), by: node("a") });
    let restarts_first = Some(RestartsFirst { takeovers: 3, pause_ms: 5_000 });
    let crashed = || View { restarts_first, ..view(&record, &order) };
    let no_server = NodeState { server_ready: false, tip: None, ..GOOD };
    assert_eq!(with(crashed(), &[("a", no_server)]), Step::Nothing);
    let why = plan(&crashed()).why;
    assert!(why.contains("after 3 takeovers") && why.contains("a starts again in place first"), "{why}");
    assert_eq!(with(crashed(), &[("a", GONE)]), depose_for_b(), "nothing starts it again");
    assert_eq!(with(view(&record, &order), &[("a", no_server)]), depose_for_b());
    // A master that falls silent was not seen to crash.
    let silent = founded("ab");
    let view = View { restarts_first, ..view(&silent, &order) };
    assert_eq!(with(view, &[("a", GONE), ("b", SILENT), ("w", SILENT)]), depose_for_b());
}

#[test]
fn a_frozen_cluster_names_no_node() {
    let (mut record, order) = (founded("ab"), [node("a"), node("b")]);
    done(&mut record, &Command::Release { epoch: Epoch(1), by: node("a") });
    let frozen = View { is_frozen: true, ..view(&record, &order) };
    let plan = plan(&frozen);
    assert_eq!(plan.step, Step::Nothing);
    assert!(plan.why.contains("frozen by command") && plan.why.contains("a takes it again"), "{plan}");
    let mut named = record.clone();
    done(&mut named, &depose_for_b().command(&record).unwrap());
    let late = View { is_frozen: true, named_ms: 9_000, ..view(&named, &order) };
    assert_eq!(with(late, &[("b", GONE)]), Step::Nothing, "a failover that began ends, with the node that was named");
}

#[test]
fn a_switchover_names_a_node_that_is_close_behind() {
    let (record, order) = (founded("ab"), [node("a"), node("b")]);
    let at = |lsn| Some(Position { epoch: Epoch(1), lsn });
    let with_b = |b: NodeState| {
        let mut view = view(&record, &order);
        view.nodes.insert(node("b"), b);
        view
    };
    let asked = |b, tip, to: Option<&str>| switchover(&with_b(b), tip, to);
    for to in [None, Some("b")] {
        assert_eq!(asked(GOOD, at(100), to), Ok(node("b")));
        assert_eq!(asked(GOOD, at(100 + (1 << 20)), to), Ok(node("b")));
        let behind = "b cannot take over: it lacks the last 1048577 bytes of the master's trail; the limit is 1048576";
        assert_eq!(asked(GOOD, at(101 + (1 << 20)), to), Err(behind.to_owned()));
        let silent = "b cannot take over: it was not heard for 650 ms";
        assert_eq!(asked(GONE, at(100), to), Err(silent.to_owned()));
        let unknown = "a does not answer, so that it is unknown how much another node lacks";
        assert_eq!(asked(GOOD, None, to), Err(unknown.to_owned()));
    }
    let refused = |to: &str| asked(GOOD, at(100), Some(to)).unwrap_err();
    assert_eq!(refused("a"), "a is the master already");
    assert_eq!(refused("w"), "w is the witness: it has no data");
    assert_eq!(refused("x"), "x is not a node of the cluster; its nodes with data are a, b");
    let mut alone = record.clone();
    done(&mut alone, &Command::ShrinkSyncSet { epoch: Epoch(1), by: node("a"), node: node("b"), change: 2 });
    let why = switchover(&view(&alone, &order), at(100), None).unwrap_err();
    assert_eq!(why, "b cannot take over: it is not in the sync set: it may lack acknowledged commits");
    let mut deposed = record.clone();
    done(&mut deposed, &depose_for_b().command(&record).unwrap());
    let why = switchover(&view(&deposed, &order), at(100), None).unwrap_err();
    assert_eq!(why, "b is being promoted in place of a already");
    // Of several the one that has most.
    let three = founded("abc");
    let order = [node("a"), node("b"), node("c")];
    let mut view = view(&three, &order);
    assert_eq!(switchover(&view, at(100), None), Ok(node("b")));
    view.nodes.insert(node("c"), NodeState { tip: at(101), ..GOOD });
    assert_eq!(switchover(&view, at(100), None), Ok(node("c")));
}

#[test]
fn a_mastership_that_was_given_up_is_taken() {
    let (mut record, order) = (founded("ab"), [node("a"), node("b")]);
    done(&mut record, &Command::Release { epoch: Epoch(1), by: node("a") });
    let stopping = NodeState { server_ready: false, ..GOOD };
    assert_eq!(with(view(&record, &order), &[("a", stopping)]), depose_for_b());
    assert_eq!(with(view(&record, &order), &[("a", stopping), ("b", GONE)]), Step::Nothing);
}

/// Numbers that look random, the same in every run.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn state(&mut self) -> NodeState {
        NodeState {
            is_up: !self.one_in(3),
            quiet_ms: self.below(1_200),
            counts_silence_of: (!self.one_in(3)).then(|| Epoch(self.below(3) as u32)),
            server_ready: !self.one_in(4),
            disk_moves: !self.one_in(4),
            clock_off: self.one_in(6),
            tip: (!self.one_in(6)).then(|| Position { epoch: Epoch(1), lsn: self.below(3) }),
        }
    }

    /// A record that commands have led to.
    fn record(&mut self) -> Record {
        let mut record = founded(if self.one_in(2) { "ab" } else { "abc" });
        let (epoch, by) = (Epoch(1), node("a"));
        let standbys: BTreeSet<NodeId> = record.sync_set.members().iter().copied().filter(|node| *node != by).collect();
        if self.one_in(3) {
            let needed = 1 + self.below(standbys.len() as u64) as usize;
            done(&mut record, &Command::NameQuorum { epoch, by, standbys: standbys.clone(), needed, change: 5 });
        }
        for node in standbys {
            if self.one_in(4) {
                done(&mut record, &Command::ShrinkSyncSet { epoch, by, node, change: 6 });
            }
        }
        let members: Vec<NodeId> = record.sync_set.members().iter().copied().collect();
        let successor = members[self.below(members.len() as u64) as usize];
        match self.below(8) {
            0 => {
                done(&mut record, &Command::Depose { expected_epoch: epoch, successor, accept_loss: false, seen: None })
            }
            1 => done(&mut record, &Command::HandOver { epoch, by, successor }),
            2 => done(&mut record, &Command::Release { epoch, by }),
            _ => {}
        }
        record
    }

    fn giving_up(&mut self) -> Option<GivingUp> {
        match self.below(12) {
            0 => Some(GivingUp::ServerEnded),
            1 => Some(GivingUp::ServerHangs { ms: 600 }),
            2 => Some(GivingUp::DiskHangs { ms: 600 }),
            3 => Some(GivingUp::ClockOff),
            4 => Some(GivingUp::Asked { to: None }),
            5 => Some(GivingUp::Asked { to: Some(node("b")) }),
            _ => None,
        }
    }

    fn view<'a>(&mut self, record: &'a Record, order: &'a [NodeId]) -> View<'a> {
        let nodes = record.members.keys().map(|node| (*node, self.state())).collect();
        let joint = if self.one_in(5) { set("ab") } else { set("") };
        View {
            nodes,
            voters: [record.members.keys().copied().collect(), joint],
            named_ms: self.below(4_000),
            is_frozen: self.one_in(6),
            giving_up: self.giving_up(),
            ..view(record, order)
        }
    }
}

fn successor_of(step: Step) -> Option<NodeId> {
    match step {
        Step::Nothing => None,
        Step::Depose { successor } | Step::HandOver { successor } => Some(successor),
    }
}

/// C5, C6, C8, C9, C14 and C17, for 100,000 random views.
#[test]
fn every_plan_keeps_the_rules() {
    let mut draw = Draw(1);
    let (order, mut steps) = ([node("b"), node("a"), node("c")], [0_u32; 3]);
    for round in 0..100_000 {
        let record = draw.record();
        let view = draw.view(&record, &order);
        let plan = plan(&view);
        let Some(successor) = successor_of(plan.step) else {
            steps[0] += 1;
            continue;
        };
        steps[if matches!(plan.step, Step::Depose { .. }) { 1 } else { 2 }] += 1;
        let told = || format!("round {round}: {plan}\n{view:#?}");
        let state = view.nodes[&successor];
        let is_serving = matches!(record.mastership, Mastership::Serving { .. });
        assert!(record.sync_set.contains(successor), "C5: {}", told());
        let restarts = view.giving_up == Some(GivingUp::ServerEnded) && record.master == Some(successor);
        assert!(restarts || state.is_up && state.server_ready, "{}", told());
        assert!(restarts || state.disk_moves && !state.clock_off, "C8, C9: {}", told());
        assert!(restarts || !is_serving || !view.is_frozen, "C14: {}", told());
        if let Step::Depose { .. } = plan.step
            && is_serving
        {
            let silent =
                |node: &&NodeId| view.nodes[node].is_up && view.nodes[node].counts_silence_of == Some(Epoch(1));
            let sets = view.voters.iter().filter(|set| !set.is_empty());
            sets.for_each(|set| assert!(set.iter().filter(silent).count() * 2 > set.len(), "C6: {}", told()));
        }
        // The record takes it, and it is the last step: nothing follows unless something else happens.
        let next =
            applied(&record, &plan.step.command(&record).unwrap()).unwrap_or_else(|why| panic!("{why} {}", told()));
        let lost = !state.is_up;
        let after = super::plan(&View { record: &next, named_ms: 0, giving_up: None, ..view.clone() });
        assert!(after.step == Step::Nothing || lost, "C17: then {}; {}", after.step, told());
        // One owner: no other node can be promoted now.
        for other in record.members.keys().filter(|other| **other != successor) {
            assert!(applied(&next, &promote(other.as_str(), Epoch(1))).is_err(), "C17: {other}; {}", told());
        }
    }
    assert!(steps.iter().all(|count| *count > 3_000), "each kind of step is tried: {steps:?}");
}

/// Two nodes that both take themselves for Raft's leader, with different views: one successor comes of both.
#[test]
fn two_planners_name_one_owner() {
    let mut draw = Draw(2);
    let order = [node("a"), node("b"), node("c")];
    let mut both = 0;
    for _ in 0..100_000 {
        let record = draw.record();
        let steps = [draw.view(&record, &order), draw.view(&record, &order)].map(|view| plan(&view).step);
        let mut now = record.clone();
        let mut named = None;
        for step in steps {
            // The log has one order; what a HandOver finds decided stays.
            if let Some(next) = step.command(&record).and_then(|command| applied(&now, &command).ok()) {
                now = next;
                named = match now.mastership {
                    Mastership::Deposed { successor, .. } => Some(successor),
                    Mastership::Free { successor } => successor,
                    Mastership::Serving { .. } => None,
                };
            }
        }
        both += u32::from(steps.iter().all(|step| *step != Step::Nothing));
        let owners = record.members.keys().filter(|node| applied(&now, &promote(node.as_str(), Epoch(1))).is_ok());
        let owners: Vec<NodeId> = owners.copied().collect();
        assert!(owners.len() <= 1, "{steps:?}: {owners:?}");
        assert!(named.is_none() || owners.iter().all(|owner| Some(*owner) == named), "{steps:?}");
    }
    assert!(both > 3_000, "{both}");
}
