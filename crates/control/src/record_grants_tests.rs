//! Record 2: leases by grants. Its ending entries, what changes only with an epoch, and its form.

use super::*;
use crate::lease::LEASE_MS_BY_GRANTS;

fn node(name: &str) -> NodeId {
    name.parse().unwrap()
}

fn founding(version: u16, lease: LeaseTerms) -> Command {
    let members = BTreeMap::from([(node("a"), Role::Data), (node("b"), Role::Data), (node("w"), Role::Witness)]);
    Command::Found { version, group: 7, members, lease, pulse_key: None }
}

fn depose(epoch: u32, successor: &str) -> Command {
    Command::Depose { expected_epoch: Epoch(epoch), successor: node(successor), accept_loss: false, seen: None }
}

fn promote(epoch: u32, name: &str, waited_ms: u64, becomes: Option<Becomes>) -> Command {
    Command::Promote {
        node: node(name),
        expected_epoch: Epoch(epoch),
        epoch_at_least: Epoch(0),
        waited_ms,
        accept_loss: false,
        attempt: 100 + u64::from(epoch),
        compared: BTreeSet::new(),
        becomes,
    }
}

fn hand_over(epoch: u32, by: &str, successor: &str) -> Command {
    Command::HandOver { epoch: Epoch(epoch), by: node(by), successor: node(successor) }
}

fn renew(epoch: u32) -> Command {
    Command::RenewLease { epoch: Epoch(epoch), by: node("a"), positions: BTreeMap::new() }
}

fn grow(epoch: u32, by: &str, new: &str) -> Command {
    Command::GrowSyncSet { epoch: Epoch(epoch), by: node(by), node: node(new), change: 1 }
}

fn tell(epoch: u32, lsn: u64) -> Command {
    Command::TellPositions { epoch: Epoch(epoch), by: node("a"), positions: BTreeMap::from([(node("a"), lsn)]) }
}

fn by_grants(lease_ms: u32) -> Option<Becomes> {
    Some(Becomes { version: 2, lease: LeaseTerms::by_grants(lease_ms) })
}

fn after(commands: &[Command]) -> Option<Record> {
    let mut record = None;
    for command in commands {
        apply(&mut record, command).unwrap_or_else(|refusal| panic!("{command:?}: {refusal}"));
    }
    record
}

/// Master a at epoch 1 under record 2, b in the sync set.
fn serving() -> Vec<Command> {
    vec![founding(2, LeaseTerms::by_grants(600)), depose(0, "a"), promote(0, "a", 0, None), grow(1, "a", "b")]
}

fn with(mut commands: Vec<Command>, more: &[Command]) -> Vec<Command> {
    commands.extend_from_slice(more);
    commands
}

#[test]
fn the_decision_table_of_record_2() {
    let deposed = with(serving(), &[depose(1, "b")]);
    let handed = with(serving(), &[hand_over(1, "a", "b")]);
    let to_itself = with(serving(), &[hand_over(1, "a", "a")]);
    let old =
        vec![founding(1, LeaseTerms::default()), depose(0, "a"), promote(0, "a", 0, None), grow(1, "a", "b"), renew(1)];
    let needs = |needed, found| Some(Refusal::OtherRecord { needed, found });
    let table = [
        (&serving(), renew(1), needs(1, 2)),
        (&old, hand_over(1, "a", "b"), needs(2, 1)),
        (&old, tell(1, 5), None),
        (&serving(), tell(1, 5), None),
        (&serving(), hand_over(1, "b", "b"), Some(Refusal::NotMaster { by: node("b") })),
        (&serving(), hand_over(0, "a", "b"), Some(Refusal::StaleEpoch { expected: 0, found: 1 })),
        (&serving(), hand_over(1, "a", "w"), Some(Refusal::NotData(node("w")))),
        (&serving()[..3].to_vec(), hand_over(1, "a", "b"), Some(Refusal::NotInSyncSet(node("b")))),
        // No renewal has ever been counted, and the lease has to be waited out all the same.
        (&deposed, promote(1, "b", 612, None), Some(Refusal::TooEarly { missing_ms: 1 })),
        (&deposed, promote(1, "b", 613, None), None),
        (&deposed, tell(1, 5), Some(Refusal::Deposed { successor: node("b") })),
        (&handed, promote(1, "b", 0, None), None),
        (&handed, hand_over(1, "a", "b"), None),
        (&handed, tell(1, 5), Some(Refusal::Released)),
        (&to_itself, promote(1, "a", 0, None), None),
        // The successor does not take over: the master takes the database back, without a wait.
        (&with(handed.clone(), &[depose(1, "a")]), promote(1, "a", 0, None), None),
        // The master was deposed and had closed its page: the wait is over.
        (&with(deposed.clone(), &[hand_over(1, "a", "a")]), promote(1, "b", 0, None), None),
        (
            &with(deposed.clone(), &[hand_over(1, "a", "a")]),
            promote(1, "a", 0, None),
            Some(Refusal::OtherSuccessor(node("b"))),
        ),
    ];
    for (commands, command, refusal) in table {
        let before = after(commands);
        let mut record = before.clone();
        assert_eq!(apply(&mut record, &command).err(), refusal, "{command:?} on {before:?}");
        assert!(refusal.is_none() || record == before, "a refused command changes nothing");
    }
}

/// Rule C19: an epoch has one kind of lease, of one length.
#[test]
fn version_and_lease_terms_change_only_with_an_epoch() {
    let old = [
        founding(1, LeaseTerms::default()),
        depose(0, "a"),
        promote(0, "a", 0, None),
        grow(1, "a", "b"),
        renew(1),
        depose(1, "a"),
    ];
    let mut record = after(&old);
    let early = apply(&mut record, &promote(1, "a", 613, by_grants(600)));
    assert_eq!(
        early,
        Err(Refusal::TooEarly { missing_ms: 3_667 - 613 }),
        "the old lease is waited out by the old terms"
    );
    apply(&mut record, &promote(1, "a", 3_667, by_grants(600))).unwrap();
    let now = record.clone().unwrap();
    assert_eq!((now.version, now.lease, now.epoch), (2, LeaseTerms::by_grants(600), Epoch(2)));
    assert!(now.sync_set.contains(node("b")), "the master handed over to itself");
    for lease_ms in LEASE_MS_BY_GRANTS {
        let mut record = record.clone();
        apply(&mut record, &hand_over(2, "a", "b")).unwrap();
        apply(&mut record, &promote(2, "b", 0, by_grants(lease_ms))).unwrap();
        assert_eq!(record.unwrap().lease.lease_ms, lease_ms);
    }
    apply(&mut record, &hand_over(2, "a", "b")).unwrap();
    let before = record.clone();
    let back = Becomes { version: 1, lease: LeaseTerms::default() };
    let newer = Becomes { version: 3, lease: LeaseTerms::by_grants(600) };
    let odd = Becomes { version: 2, lease: LeaseTerms::by_grants(700) };
    for becomes in [back, newer, odd] {
        let refused = apply(&mut record, &promote(2, "b", 0, Some(becomes)));
        assert!(matches!(refused, Err(Refusal::BadTerms(_))), "{refused:?}");
        assert_eq!(record, before);
    }
}

#[test]
fn ending_entries() {
    let ends = [depose(3, "b"), hand_over(3, "a", "b"), Command::Release { epoch: Epoch(3), by: node("a") }];
    assert!(ends.iter().all(|command| command.ends() == Some(Epoch(3))));
    assert!([promote(3, "b", 0, None), renew(3), tell(3, 1), Command::Look].iter().all(|other| other.ends().is_none()));
}

#[test]
fn golden_record_2() {
    let text = serde_json::to_string(&after(&with(serving(), &[depose(1, "b")])).unwrap()).unwrap();
    assert_eq!(
        text,
        r#"{"version":2,"group":7,"revision":5,"epoch":1,"master":"a","mastership":{"deposed":{"successor":"b","wait":true}},"sync_set":["a","b"],"members":{"a":"data","b":"data","w":"witness"},"lease":{"lease_ms":600,"drift_percent":1},"master_since":1,"attempt":100,"sync_change":1}"#
    );
    let read: Record = serde_json::from_str(&text).unwrap();
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
}

#[test]
fn golden_commands_of_record_2() {
    let golden = [
        (hand_over(1, "a", "b"), r#"{"hand_over":{"epoch":1,"by":"a","successor":"b"}}"#),
        (tell(1, 5), r#"{"tell_positions":{"epoch":1,"by":"a","positions":{"a":5}}}"#),
        (
            promote(1, "b", 5, by_grants(600)),
            r#"{"promote":{"node":"b","expected_epoch":1,"epoch_at_least":0,"waited_ms":5,"accept_loss":false,"attempt":101,"becomes":{"version":2,"lease":{"lease_ms":600,"drift_percent":1}}}}"#,
        ),
    ];
    for (command, text) in golden {
        assert_eq!(serde_json::to_string(&command).unwrap(), text);
        assert_eq!(serde_json::from_str::<Command>(text).unwrap(), command);
    }
}
