use super::super::log::{Applied, Meaning};
use super::super::voters::{LogPosition, NodeSet, Voters};
use super::*;

const MS: u64 = 1_000_000;

fn node(name: &str) -> crate::id::NodeId {
    name.parse().unwrap()
}

fn at(index: u64) -> LogPosition {
    LogPosition { term: 1, leader: node("w"), index }
}

fn ms(ms: u64) -> Moment {
    Moment(ms * MS)
}

/// Voter b (slot 1) of a, b, w; a is master of epoch 4 by entry 7; the voters are of entry 1.
fn story() -> (Voter, VoterLog, Applied) {
    let roster = Roster::new(["a", "b", "w"].map(node)).unwrap();
    let log = VoterLog::default();
    let applied = Applied {
        cluster: 3,
        record_version: 2,
        epoch: Epoch(4),
        stage: Stage::Serving,
        lease_ms: 600,
        master: Some(0),
        successor: None,
        votes: true,
    };
    let sets = [NodeSet(0b111), NodeSet(0)];
    log.installed(at(6), Voters { at: at(1), sets }, Applied { votes: true, ..Applied::default() });
    log.appended(at(7), Meaning::Other);
    log.applied(at(7), Meaning::Other, false, applied);
    let mut voter = Voter::new(1, roster, ms(1_000));
    voter.look(&log, ms(1_000));
    (voter, log, applied)
}

fn pulse(sequence: u64) -> Pulse {
    Pulse {
        cluster: 3,
        node: node("a"),
        incarnation: 9,
        sequence,
        epoch: Epoch(4),
        asks: true,
        lease_left_ms: 575,
        heard: NodeSet(0b110),
        voters_at: at(1),
        ..Pulse::default()
    }
}

#[test]
fn the_table_of_grants() {
    let (voter, log, applied) = story();
    let ask = |pulse: Pulse| voter.clone().ask(&pulse, &log, ms(1_010));
    let under = |changed: Applied| {
        let (mut voter, log, _) = story();
        log.applied(at(8), Meaning::Other, false, changed);
        voter.look(&log, ms(1_010));
        voter.ask(&pulse(1), &log, ms(1_010))
    };
    assert_eq!(ask(pulse(1)), Ok(()));
    let table = [
        (ask(Pulse { cluster: 4, ..pulse(1) }), NotGranted::NotAsked),
        (ask(Pulse { asks: false, ..pulse(1) }), NotGranted::NotAsked),
        (ask(Pulse { node: node("w"), ..pulse(1) }), NotGranted::NotMaster),
        (ask(Pulse { node: node("x"), ..pulse(1) }), NotGranted::NotMaster),
        (ask(Pulse { epoch: Epoch(3), ..pulse(1) }), NotGranted::NotMaster),
        (ask(Pulse { epoch: Epoch(5), ..pulse(1) }), NotGranted::NotMaster),
        (ask(Pulse { voters_at: at(2), ..pulse(1) }), NotGranted::OtherVoters),
        (ask(Pulse { heard: NodeSet(0b100), ..pulse(1) }), NotGranted::Unheard),
        (under(Applied { votes: false, ..applied }), NotGranted::NoVote),
        (under(Applied { record_version: 1, ..applied }), NotGranted::NotMaster),
        (under(Applied { stage: Stage::Deposed, ..applied }), NotGranted::NotMaster),
        (under(Applied { stage: Stage::Free, ..applied }), NotGranted::NotMaster),
        (under(Applied { epoch: Epoch(5), ..applied }), NotGranted::NotMaster),
    ];
    for (number, (given, why)) in table.into_iter().enumerate() {
        assert_eq!(given, Err(why), "row {number}");
    }
}

/// Rule C1: from the moment at which the entry is handed to the journal, before it is written; until Raft cuts it off.
#[test]
fn an_ending_entry_stops_grants_when_it_is_appended_and_a_truncation_reopens_them() {
    let (mut voter, log, applied) = story();
    log.appended(at(8), Meaning::Ends(Epoch(4)));
    assert_eq!(voter.ask(&pulse(1), &log, ms(1_020)), Err(NotGranted::LogMoves), "seen between two turns");
    voter.look(&log, ms(1_025));
    assert_eq!(voter.ask(&pulse(2), &log, ms(1_025)), Err(NotGranted::Ended));
    assert_eq!(voter.report(ms(1_030)), None, "not durable yet");
    log.durable(8);
    voter.look(&log, ms(1_050));
    let report = voter.report(ms(1_050)).unwrap();
    assert_eq!((report.ending, report.age_ns), (at(8), 30 * MS), "a grant that was not sent counts");
    log.truncated(8);
    voter.look(&log, ms(1_075));
    assert_eq!((voter.ask(&pulse(3), &log, ms(1_075)), voter.report(ms(1_080))), (Ok(()), None));
    // One for an epoch that is over, and one that is refused when it is applied, end nothing.
    log.appended(at(8), Meaning::Ends(Epoch(3)));
    voter.look(&log, ms(1_100));
    assert_eq!(voter.ask(&pulse(4), &log, ms(1_100)), Ok(()));
    log.appended(at(9), Meaning::Ends(Epoch(4)));
    log.applied(at(9), Meaning::Ends(Epoch(4)), true, applied);
    voter.look(&log, ms(1_125));
    assert_eq!(voter.ask(&pulse(5), &log, ms(1_125)), Ok(()));
    assert_eq!(voter.view.committed_ending, None);
}

#[test]
fn a_committed_end_is_named_and_a_second_one_takes_its_place() {
    let (mut voter, log, applied) = story();
    let deposed = Applied { stage: Stage::Deposed, successor: Some(1), ..applied };
    for index in [8, 9] {
        log.appended(at(index), Meaning::Ends(Epoch(4)));
        log.durable(index);
        log.applied(at(index), Meaning::Ends(Epoch(4)), false, deposed);
        let view = *voter.look(&log, ms(2_000));
        assert_eq!((view.committed_ending, view.durable_ending), (Some(at(index)), Some(at(index))));
        assert_eq!((view.applied.stage, view.applied.successor), (Stage::Deposed, Some(1)));
    }
    log.applied(at(10), Meaning::Other, false, Applied { epoch: Epoch(5), master: Some(1), ..applied });
    let view = *voter.look(&log, ms(2_100));
    assert_eq!((view.committed_ending, view.durable_ending, view.ended), (None, None, Epoch(0)));
}

/// Rule C2: nothing has to survive a restart.
#[test]
fn a_run_begins_with_what_counts_as_a_grant() {
    let (mut voter, log, _) = story();
    log.appended(at(8), Meaning::Ends(Epoch(4)));
    log.durable(8);
    voter.look(&log, ms(1_300));
    assert_eq!(voter.report(ms(1_300)).unwrap().age_ns, 300 * MS, "it granted nothing in this run");
}

/// Rule C19.
#[test]
fn a_change_of_voters_counts_as_a_grant() {
    let (mut voter, log, _) = story();
    log.appended(at(8), Meaning::Voters([NodeSet(0b111), NodeSet(0b011)]));
    voter.look(&log, ms(1_400));
    assert_eq!(voter.granted, ms(1_400));
    assert_eq!(voter.ask(&pulse(1), &log, ms(1_400)), Err(NotGranted::OtherVoters));
    assert_eq!(voter.ask(&Pulse { voters_at: at(8), ..pulse(2) }, &log, ms(1_420)), Ok(()));
    log.truncated(8);
    voter.look(&log, ms(1_500));
    assert_eq!((voter.granted, voter.view.voters.at), (ms(1_500), at(1)));
}

#[test]
fn silence_is_a_lease_without_a_granted_pulse_that_reports_a_lease() {
    let (mut voter, log, applied) = story();
    assert!(!voter.is_silent(ms(1_599)) && voter.is_silent(ms(1_600)));
    assert_eq!(voter.ask(&pulse(1), &log, ms(1_550)), Ok(()));
    assert!(!voter.is_silent(ms(2_149)) && voter.is_silent(ms(2_150)));
    // It sends, and hears no grants.
    for sequence in 2..30 {
        let now = 1_550 + 25 * sequence;
        assert_eq!(voter.ask(&Pulse { lease_left_ms: 0, ..pulse(sequence) }, &log, ms(now)), Ok(()));
    }
    assert!(voter.is_silent(ms(2_300)));
    assert_eq!(voter.ask(&pulse(1), &log, ms(2_310)), Ok(()), "a copy that comes late");
    assert!(voter.is_silent(ms(2_310)));
    assert_eq!(voter.ask(&Pulse { incarnation: 10, ..pulse(1) }, &log, ms(2_320)), Ok(()));
    assert!(!voter.is_silent(ms(2_320)), "a new run of the master's node");
    // A new mastership begins without a lease, and is given the time of one.
    log.applied(at(9), Meaning::Other, false, Applied { epoch: Epoch(5), ..applied });
    voter.look(&log, ms(3_000));
    assert!(!voter.is_silent(ms(3_599)) && voter.is_silent(ms(3_600)));
    log.applied(at(10), Meaning::Other, false, Applied { epoch: Epoch(5), stage: Stage::Deposed, ..applied });
    voter.look(&log, ms(3_700));
    assert!(!voter.is_silent(ms(9_000)), "it is deposed already");
}
