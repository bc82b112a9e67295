//! What each command does to the record, and that no order of commands makes two masters of an epoch.

use super::*;
use holdfast_seams::testing::Seeded;

fn node(name: &str) -> NodeId {
    name.parse().unwrap()
}

fn founding() -> Command {
    let members = BTreeMap::from([(node("a"), Role::Data), (node("b"), Role::Data), (node("w"), Role::Witness)]);
    Command::Found {
        version: 1,
        group: 7,
        members,
        lease: LeaseTerms { lease_ms: 3_000, drift_percent: 10 },
        pulse_key: None,
    }
}

fn depose(epoch: u32, successor: &str) -> Command {
    Command::Depose { expected_epoch: Epoch(epoch), successor: node(successor), accept_loss: false, seen: None }
}

fn promote(epoch: u32, name: &str, waited_ms: u64) -> Command {
    Command::Promote {
        node: node(name),
        expected_epoch: Epoch(epoch),
        epoch_at_least: Epoch(0),
        waited_ms,
        accept_loss: false,
        attempt: 100 + u64::from(epoch),
        compared: BTreeSet::new(),
        becomes: None,
    }
}

fn renew(epoch: u32, by: &str) -> Command {
    Command::RenewLease { epoch: Epoch(epoch), by: node(by), positions: BTreeMap::new() }
}

fn release(epoch: u32, by: &str) -> Command {
    Command::Release { epoch: Epoch(epoch), by: node(by) }
}

fn shrink(epoch: u32, by: &str, out: &str) -> Command {
    Command::ShrinkSyncSet { epoch: Epoch(epoch), by: node(by), node: node(out), change: 2 }
}

fn grow(epoch: u32, by: &str, new: &str) -> Command {
    Command::GrowSyncSet { epoch: Epoch(epoch), by: node(by), node: node(new), change: 1 }
}

fn nodes(names: &str) -> BTreeSet<NodeId> {
    names.chars().map(|name| node(&name.to_string())).collect()
}

fn quorum(epoch: u32, by: &str, standbys: &str, needed: usize) -> Command {
    Command::NameQuorum { epoch: Epoch(epoch), by: node(by), standbys: nodes(standbys), needed, change: 1 }
}

/// It has all that these have.
fn promote_after(epoch: u32, name: &str, waited_ms: u64, have: &str) -> Command {
    let mut command = promote(epoch, name, waited_ms);
    if let Command::Promote { compared, .. } = &mut command {
        *compared = nodes(have);
    }
    command
}

/// Master a at epoch 1 with a lease; each commit is at b or at c.
fn serving_with_quorum() -> Vec<Command> {
    let members = nodes("abc").into_iter().map(|node| (node, Role::Data)).collect();
    let Command::Found { version, group, lease, .. } = founding() else { unreachable!() };
    let found = Command::Found { version, group, members, lease, pulse_key: None };
    vec![found, depose(0, "a"), promote(0, "a", 0), quorum(1, "a", "bc", 1), renew(1, "a")]
}

/// The record after commands that must all be accepted.
fn after(commands: &[Command]) -> Option<Record> {
    let mut record = None;
    for command in commands {
        apply(&mut record, command).unwrap_or_else(|refusal| panic!("{command:?}: {refusal}"));
    }
    record
}

/// Master a at epoch 1 with a lease, b in the sync set.
fn serving() -> Vec<Command> {
    vec![founding(), depose(0, "a"), promote(0, "a", 0), grow(1, "a", "b"), renew(1, "a")]
}

fn with(mut commands: Vec<Command>, more: &[Command]) -> Vec<Command> {
    commands.extend_from_slice(more);
    commands
}

/// The whole table: in which state which command is refused, and why.
#[test]
fn the_decision_table() {
    let none = vec![];
    let new = vec![founding()];
    let named = with(new.clone(), &[depose(0, "a")]);
    let deposed = with(serving(), &[depose(1, "b")]);
    let released = with(serving(), &[release(1, "a")]);
    let unrenewed = with(new.clone(), &[depose(0, "a"), promote(0, "a", 0), depose(1, "a")]);
    let stale = |expected, found| Some(Refusal::StaleEpoch { expected, found });
    let taken_over = Some(Refusal::Deposed { successor: node("b") });
    let out_of_sync = Some(Refusal::NotInSyncSet(node("b")));
    let table = [
        (&none, renew(0, "a"), Some(Refusal::NotFounded)),
        (&none, Command::Look, Some(Refusal::NotFounded)),
        (&none, founding(), None),
        (&deposed, Command::Look, None),
        (&new, founding(), None),
        (&new, promote(0, "a", 9_999), Some(Refusal::NotDeposed)),
        (&new, depose(0, "w"), Some(Refusal::NotData(node("w")))),
        (&new, depose(0, "x"), Some(Refusal::NotData(node("x")))),
        (&new, depose(1, "a"), stale(1, 0)),
        (&named, promote(0, "b", 0), Some(Refusal::OtherSuccessor(node("a")))),
        (&named, promote(0, "a", 0), None),
        (&named, depose(0, "b"), None),
        (&serving(), promote(1, "b", 9_999), Some(Refusal::NotDeposed)),
        (&serving(), renew(1, "a"), None),
        (&serving(), renew(1, "b"), Some(Refusal::NotMaster { by: node("b") })),
        (&serving(), renew(0, "a"), stale(0, 1)),
        (&serving(), shrink(1, "a", "b"), None),
        (&serving(), shrink(1, "a", "a"), Some(Refusal::MasterStays)),
        (&serving(), shrink(1, "b", "a"), Some(Refusal::NotMaster { by: node("b") })),
        (&serving(), grow(1, "a", "w"), Some(Refusal::NotData(node("w")))),
        (&serving(), grow(1, "a", "b"), None),
        (&with(serving(), &[shrink(1, "a", "b")]), grow(1, "a", "b"), Some(Refusal::Superseded)),
        (&with(serving(), &[shrink(1, "a", "b")]), shrink(1, "a", "b"), None),
        (&with(serving(), &[shrink(1, "a", "b")]), depose(1, "b"), out_of_sync),
        (&deposed, renew(1, "a"), taken_over.clone()),
        (&deposed, shrink(1, "a", "b"), taken_over.clone()),
        (&deposed, grow(1, "a", "b"), taken_over),
        (&deposed, promote(1, "b", 3_666), Some(Refusal::TooEarly { missing_ms: 1 })),
        (&deposed, promote(1, "b", 3_667), None),
        (&deposed, promote(1, "a", 3_667), Some(Refusal::OtherSuccessor(node("b")))),
        (&deposed, promote(0, "b", 3_667), stale(0, 1)),
        (&with(deposed.clone(), &[release(1, "a")]), promote(1, "b", 0), None),
        (&released, renew(1, "a"), Some(Refusal::Released)),
        (&released, release(1, "a"), None),
        (&released, release(1, "b"), Some(Refusal::NotMaster { by: node("b") })),
        (&released, promote(1, "b", 9_999), Some(Refusal::NotDeposed)),
        (&with(released.clone(), &[depose(1, "b")]), promote(1, "b", 0), None),
        (&unrenewed, promote(1, "a", 0), None),
    ];
    for (commands, command, refusal) in table {
        let before = after(commands);
        let mut record = before.clone();
        assert_eq!(apply(&mut record, &command).err(), refusal, "{command:?} on {before:?}");
        assert!(refusal.is_none() || record == before, "a refused command changes nothing");
    }
}

/// A promotion out of a quorum, where each commit is at one of b and c.
#[test]
fn the_decision_table_of_a_quorum() {
    let deposed = with(serving_with_quorum(), &[depose(1, "b")]);
    let released = with(serving_with_quorum(), &[release(1, "a"), depose(1, "b")]);
    let without_c = with(serving_with_quorum(), &[shrink(1, "a", "c"), depose(1, "b")]);
    let alone = with(serving_with_quorum(), &[shrink(1, "a", "c"), shrink(1, "a", "b")]);
    let all = with(serving_with_quorum(), &[quorum(1, "a", "bc", 2), depose(1, "b")]);
    let again = with(serving_with_quorum(), &[depose(1, "a"), promote(1, "a", 4_000), depose(2, "c")]);
    let not_compared = |name| Some(Refusal::NotCompared(node(name)));
    let bad = |needed, standbys| Some(Refusal::BadQuorum { needed, standbys });
    let table = [
        (&deposed, promote(1, "b", 4_000), not_compared("b")),
        (&deposed, promote_after(1, "b", 4_000, "b"), not_compared("b")),
        (&deposed, promote_after(1, "b", 4_000, "c"), None),
        (&deposed, promote_after(1, "b", 4_000, "a"), None),
        (&deposed, promote_after(1, "b", 3_666, "c"), Some(Refusal::TooEarly { missing_ms: 1 })),
        (&released, promote(1, "b", 0), not_compared("b")),
        (&released, promote_after(1, "b", 0, "c"), None),
        (&without_c, promote_after(1, "b", 4_000, "c"), not_compared("b")),
        (&without_c, promote_after(1, "b", 4_000, "a"), None),
        (&without_c, depose(1, "c"), Some(Refusal::NotInSyncSet(node("c")))),
        (&alone, depose(1, "b"), Some(Refusal::NotInSyncSet(node("b")))),
        (&all, promote(1, "b", 4_000), None),
        // The last master's set is kept, and so is its quorum.
        (&again, promote(2, "c", 4_000), not_compared("c")),
        (&again, promote_after(2, "c", 4_000, "b"), None),
        (&serving_with_quorum(), quorum(1, "b", "ac", 1), Some(Refusal::NotMaster { by: node("b") })),
        (&serving_with_quorum(), quorum(0, "a", "bc", 1), Some(Refusal::StaleEpoch { expected: 0, found: 1 })),
        (&serving_with_quorum(), quorum(1, "a", "bx", 1), Some(Refusal::NotData(node("x")))),
        (&serving_with_quorum(), quorum(1, "a", "bc", 0), bad(0, 2)),
        (&serving_with_quorum(), quorum(1, "a", "bc", 3), bad(3, 2)),
        (&serving_with_quorum(), quorum(1, "a", "ab", 1), bad(1, 2)),
        (&with(serving_with_quorum(), &[shrink(1, "a", "c")]), quorum(1, "a", "bc", 1), Some(Refusal::Superseded)),
        (&deposed, quorum(1, "a", "bc", 1), Some(Refusal::Deposed { successor: node("b") })),
    ];
    for (commands, command, refusal) in table {
        let before = after(commands);
        let mut record = before.clone();
        assert_eq!(apply(&mut record, &command).err(), refusal, "{command:?} on {before:?}");
        assert!(refusal.is_none() || record == before, "a refused command changes nothing");
    }
    let mut lossy = promote(1, "b", 4_000);
    if let Command::Promote { accept_loss, .. } = &mut lossy {
        *accept_loss = true;
    }
    assert_eq!(apply(&mut after(&deposed), &lossy), Ok(()), "the loss is accepted");
}

#[test]
fn another_group_and_bad_terms_are_refused() {
    let Command::Found { version, members, lease, .. } = founding() else { unreachable!() };
    let other = Command::Found { version, group: 8, members: members.clone(), lease, pulse_key: None };
    assert_eq!(apply(&mut after(&[founding()]), &other), Err(Refusal::OtherGroup));
    let hasty = LeaseTerms { lease_ms: 1, ..lease };
    let hasty = Command::Found { version, group: 8, members: members.clone(), lease: hasty, pulse_key: None };
    assert!(matches!(apply(&mut None, &hasty), Err(Refusal::Unusable(_))));
    let newer = Command::Found { version: 3, group: 8, members, lease, pulse_key: None };
    assert!(matches!(apply(&mut None, &newer), Err(Refusal::Unusable(_))));
}

#[test]
fn a_successor_starts_alone_in_the_sync_set_and_a_promotion_sent_twice_is_one() {
    let commands = with(serving(), &[depose(1, "b"), promote(1, "b", 4_000)]);
    let once = after(&commands);
    assert_eq!(after(&with(commands, &[promote(1, "b", 4_000)])), once);
    let record = once.unwrap();
    assert_eq!((record.epoch, record.master), (Epoch(2), Some(node("b"))));
    assert_eq!(record.sync_set, SyncMembers::all(nodes("b")));
    assert!(record.is_served_by(node("b"), Epoch(2)) && !record.is_served_by(node("a"), Epoch(2)));
}

/// A master that starts again, orderly or not, acknowledged nothing meanwhile, and nobody else did.
#[test]
fn a_master_that_is_promoted_again_keeps_its_sync_set() {
    let both = SyncMembers::all(nodes("ab"));
    let again = [depose(1, "a"), promote(1, "a", 4_000)];
    for commands in [with(serving(), &again), with(with(serving(), &[release(1, "a")]), &again)] {
        let record = after(&commands).unwrap();
        assert_eq!((record.epoch, &record.sync_set), (Epoch(2), &both));
        after(&with(commands, &[depose(2, "b")]));
    }
    // What was taken out before stays out, and a successor's set is its own.
    let record = after(&with(with(serving(), &[shrink(1, "a", "b")]), &again)).unwrap();
    assert_eq!(record.sync_set, SyncMembers::all(nodes("a")));
    let back = [depose(1, "b"), promote(1, "b", 4_000), grow(2, "b", "a"), depose(2, "a"), promote(2, "a", 0)];
    let record = after(&with(serving(), &back)).unwrap();
    assert_eq!((record.epoch, record.sync_set), (Epoch(3), SyncMembers::all(nodes("a"))));
}

#[test]
fn the_epoch_is_above_the_trails_and_never_wraps() {
    let mut record = after(&[founding(), depose(0, "a")]);
    let mut command = promote(0, "a", 0);
    if let Command::Promote { epoch_at_least, .. } = &mut command {
        *epoch_at_least = Epoch(u32::MAX);
    }
    apply(&mut record, &command).unwrap();
    assert_eq!(record.as_ref().unwrap().epoch, Epoch(u32::MAX));
    apply(&mut record, &depose(u32::MAX, "a")).unwrap();
    assert_eq!(apply(&mut record, &promote(u32::MAX, "a", 0)), Err(Refusal::NoEpochLeft));
}

/// Any commands in any order: what must hold of every step.
#[test]
fn random_commands_keep_the_rules() {
    for seed in 0..300 {
        let mut random = Seeded::new(seed);
        let quorums = seed % 2 == 1;
        let mut record = after(&if quorums { serving_with_quorum() } else { serving() });
        for attempt in 1_000..1_200 {
            let before = record.clone().unwrap();
            let epoch = before.epoch.0.saturating_sub(u32::from(random.one_in(6)));
            let names = if quorums { ["a", "b", "c"] } else { ["a", "b", "w"] };
            let [name, other] = [0; 2].map(|_| names[random.below(3) as usize]);
            let command = match random.below(8) {
                0 => depose(epoch, name),
                1 => Command::Promote {
                    node: node(name),
                    expected_epoch: Epoch(epoch),
                    epoch_at_least: Epoch(0),
                    waited_ms: random.below(8_000),
                    accept_loss: random.one_in(4),
                    attempt,
                    compared: random.one_in(2).then(|| node(other)).into_iter().collect(),
                    becomes: None,
                },
                7 => {
                    let standbys = ["bc", "ac", "ab"][random.below(3) as usize];
                    quorum(epoch, name, standbys, 1 + random.below(2) as usize)
                }
                2 => release(epoch, name),
                3 => shrink(epoch, name, other),
                4 => grow(epoch, name, other),
                _ => renew(epoch, name),
            };
            let accepted = apply(&mut record, &command).is_ok();
            let now = record.clone().unwrap();
            assert!(now.epoch >= before.epoch && now.revision >= before.revision, "seed {seed}");
            assert_eq!(now == before, now.revision == before.revision, "seed {seed}");
            let same_master = now.epoch > before.epoch || now.master == before.master;
            assert!(same_master, "seed {seed}: an epoch has one master");
            assert!(now.master.is_none_or(|master| now.sync_set.contains(master)), "seed {seed}");
            if let (Command::Promote { node, accept_loss: false, compared, .. }, true) = (&command, accepted) {
                assert!(now == before || before.has_everything(*node, compared), "seed {seed}");
            }
            if let (Command::RenewLease { by, .. }, true) = (&command, accepted) {
                assert!(before.is_served_by(*by, before.epoch), "seed {seed}");
            }
        }
    }
}

#[test]
fn golden_record() {
    let text = serde_json::to_string(&after(&with(serving(), &[depose(1, "b")])).unwrap()).unwrap();
    assert_eq!(
        text,
        r#"{"version":1,"group":7,"revision":6,"epoch":1,"master":"a","mastership":{"deposed":{"successor":"b","wait":true}},"sync_set":["a","b"],"members":{"a":"data","b":"data","w":"witness"},"lease":{"lease_ms":3000,"drift_percent":10},"master_since":1,"attempt":100,"sync_change":1}"#
    );
    let read: Record = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
}

#[test]
fn golden_record_of_a_quorum() {
    let text = serde_json::to_string(&after(&serving_with_quorum()).unwrap()).unwrap();
    assert_eq!(
        text,
        r#"{"version":1,"group":7,"revision":5,"epoch":1,"master":"a","mastership":{"serving":{"renewals":1}},"sync_set":{"members":["a","b","c"],"needed":1},"members":{"a":"data","b":"data","c":"data"},"lease":{"lease_ms":3000,"drift_percent":10},"master_since":1,"attempt":100,"sync_change":1}"#
    );
    let read: Record = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
}

/// A record that is not frozen has the bytes that it had before the field was there.
#[test]
fn golden_record_that_is_frozen() {
    let text = serde_json::to_string(&after(&with(serving(), &[Command::Freeze { frozen: true }])).unwrap()).unwrap();
    assert!(text.ends_with(r#""attempt":100,"sync_change":1,"frozen":true}"#), "{text}");
    let read: Record = serde_json::from_str(&text).unwrap();
    assert!(read.frozen && serde_json::to_string(&read).unwrap() == text);
    let thawed = after(&with(serving(), &[Command::Freeze { frozen: true }, Command::Freeze { frozen: false }]));
    assert!(!serde_json::to_string(&thawed.unwrap()).unwrap().contains("frozen"));
}

#[test]
fn a_freeze_outlasts_masters_and_stops_what_was_decided_before_it() {
    let mut record = after(&serving());
    let seen = Some(record.as_ref().unwrap().revision);
    let depose = Command::Depose { expected_epoch: Epoch(1), successor: node("b"), accept_loss: false, seen };
    apply(&mut record, &Command::Freeze { frozen: true }).unwrap();
    assert!(matches!(apply(&mut record, &depose), Err(Refusal::Moved { .. })));
    // The same again changes nothing.
    let frozen = record.clone();
    apply(&mut record, &Command::Freeze { frozen: true }).unwrap();
    assert_eq!(record, frozen);
    // A person may, and the next master finds it frozen.
    apply(
        &mut record,
        &Command::Depose { expected_epoch: Epoch(1), successor: node("b"), accept_loss: false, seen: None },
    )
    .unwrap();
    apply(&mut record, &promote(1, "b", 1_000_000)).unwrap();
    assert!(record.unwrap().frozen);
    assert_eq!(apply(&mut None, &Command::Freeze { frozen: true }), Err(Refusal::NotFounded));
}

#[test]
fn golden_commands() {
    let golden = [
        (
            founding(),
            r#"{"found":{"version":1,"group":7,"members":{"a":"data","b":"data","w":"witness"},"lease":{"lease_ms":3000,"drift_percent":10}}}"#,
        ),
        (depose(1, "b"), r#"{"depose":{"expected_epoch":1,"successor":"b","accept_loss":false}}"#),
        (
            promote(1, "b", 5),
            r#"{"promote":{"node":"b","expected_epoch":1,"epoch_at_least":0,"waited_ms":5,"accept_loss":false,"attempt":101}}"#,
        ),
        (
            promote_after(1, "b", 5, "c"),
            r#"{"promote":{"node":"b","expected_epoch":1,"epoch_at_least":0,"waited_ms":5,"accept_loss":false,"attempt":101,"compared":["c"]}}"#,
        ),
        (quorum(1, "a", "bc", 1), r#"{"name_quorum":{"epoch":1,"by":"a","standbys":["b","c"],"needed":1,"change":1}}"#),
        (renew(1, "a"), r#"{"renew_lease":{"epoch":1,"by":"a"}}"#),
        (release(1, "a"), r#"{"release":{"epoch":1,"by":"a"}}"#),
        (shrink(1, "a", "b"), r#"{"shrink_sync_set":{"epoch":1,"by":"a","node":"b","change":2}}"#),
        (Command::Look, r#""look""#),
        (Command::Freeze { frozen: true }, r#"{"freeze":{"frozen":true}}"#),
        (grow(1, "a", "b"), r#"{"grow_sync_set":{"epoch":1,"by":"a","node":"b","change":1}}"#),
    ];
    for (command, text) in golden {
        assert_eq!(serde_json::to_string(&command).unwrap(), text);
        assert_eq!(serde_json::from_str::<Command>(text).unwrap(), command);
    }
}

#[test]
fn a_depose_that_no_person_asked_for_counts_for_the_record_it_was_decided_on_only() {
    let mut record = after(&[founding(), depose(0, "a"), promote(0, "a", 0), grow(1, "a", "b")]);
    let seen = record.as_ref().unwrap().revision;
    let automatic =
        |seen| Command::Depose { expected_epoch: Epoch(1), successor: node("b"), accept_loss: false, seen: Some(seen) };
    // A renewal alone shows that the master serves.
    apply(&mut record, &renew(1, "a")).unwrap();
    let refused = apply(&mut record, &automatic(seen));
    assert_eq!(refused, Err(Refusal::Moved { seen, found: seen + 1 }));
    assert_eq!(record.as_ref().unwrap().successor(), None);
    apply(&mut record, &automatic(seen + 1)).unwrap();
    assert_eq!(record.as_ref().unwrap().successor(), Some(node("b")));
}

fn has(epoch: u32, by: &str, positions: &[(&str, u64)]) -> Command {
    let positions = positions.iter().map(|(of, lsn)| (node(of), *lsn)).collect();
    Command::TellPositions { epoch: Epoch(epoch), by: node(by), positions }
}

#[test]
fn positions_never_go_back_after_a_start_of_the_same_master() {
    let known = |record: &Option<Record>, of: &str| record.as_ref().unwrap().positions[&node(of)];
    let before = after(&with(serving(), &[has(1, "a", &[("a", 100), ("b", 90)])]));
    let mut started = before.clone();
    for command in [release(1, "a"), depose(1, "a"), promote(1, "a", 0)] {
        apply(&mut started, &command).unwrap();
    }
    assert_eq!(started.as_ref().unwrap().epoch, Epoch(2));
    // The master has less than it had: its directory was put back.
    let refused = apply(&mut started.clone(), &has(2, "a", &[("a", 99)])).unwrap_err();
    assert!(matches!(refused, Refusal::WentBack { .. }), "{refused}");
    let mut renewal = renew(2, "a");
    if let Command::RenewLease { positions, .. } = &mut renewal {
        *positions = BTreeMap::from([(node("a"), 99)]);
    }
    let refused = apply(&mut started.clone(), &renewal).unwrap_err();
    assert!(refused.to_string().contains("LSN 99 of epoch 2") && refused.to_string().contains("LSN 100 of epoch 1"));
    // A standby that has not confirmed everything again is known by what it had.
    apply(&mut started, &has(2, "a", &[("a", 100), ("b", 80)])).unwrap();
    assert_eq!(known(&started, "a"), Position { epoch: Epoch(2), lsn: 100 });
    assert_eq!(known(&started, "b"), Position { epoch: Epoch(1), lsn: 90 });
    // A renewal that hung arrives late.
    apply(&mut started, &has(2, "a", &[("a", 120), ("b", 110)])).unwrap();
    apply(&mut started, &has(2, "a", &[("a", 110), ("b", 95)])).unwrap();
    assert_eq!((known(&started, "a").lsn, known(&started, "b").lsn), (120, 110));
    // What was lost with the operator's consent counts no longer.
    for command in [release(2, "a"), depose(2, "a")] {
        apply(&mut started, &command).unwrap();
    }
    let mut accepted = promote(2, "a", 0);
    if let Command::Promote { accept_loss, .. } = &mut accepted {
        *accept_loss = true;
    }
    assert_eq!(started.as_ref().unwrap().accepted, Epoch(0));
    apply(&mut started, &accepted).unwrap();
    assert_eq!(started.as_ref().unwrap().accepted, Epoch(3));
    apply(&mut started, &has(3, "a", &[("a", 50)])).unwrap();
    assert_eq!(known(&started, "a"), Position { epoch: Epoch(3), lsn: 50 });
}
