use super::super::pulse::{Answers, Report};
use super::super::voters::NodeSet;
use super::*;

const MS: u64 = 1_000_000;

fn ms(ms: u64) -> Moment {
    Moment(ms * MS)
}

fn at(index: u64) -> LogPosition {
    LogPosition { index, ..LogPosition::default() }
}

fn voters(sets: [u16; 2]) -> Voters {
    Voters { at: at(1), sets: sets.map(NodeSet) }
}

fn answer(sequence: u64, ending: u64, age_ms: u64) -> Pulse {
    Pulse {
        answers: Some(Answers { incarnation: 9, sequence, granted: false }),
        report: Some(Report { ending: at(ending), age_ns: age_ms * MS }),
        ..Pulse::default()
    }
}

/// Committed at 2,000 ms by entry 8; the next pulse is number 50.
fn wait() -> Wait {
    Wait::new(Some(at(8)), &LeaseTerms::by_grants(600), 9, 50, ms(2_000))
}

#[test]
fn it_counts_from_the_commit_or_from_the_youngest_grant_of_a_majority() {
    let three = voters([0b111, 0]);
    let mut wait = wait();
    assert!(!wait.is_over(&three, ms(2_612)) && wait.is_over(&three, ms(2_613)));
    wait.answered(1, &answer(50, 8, 590), ms(2_001));
    assert_eq!(wait.waited_ns(&three, ms(2_001)), MS, "one of three");
    wait.answered(2, &answer(50, 8, 580), ms(2_002));
    assert_eq!(wait.waited_ns(&three, ms(2_002)), 580 * MS, "the younger of the two");
    wait.answered(0, &answer(51, 8, 10), ms(2_003));
    assert_eq!(wait.waited_ns(&three, ms(2_002)), 580 * MS, "a majority without the third is enough");
    assert!(!wait.is_over(&three, ms(2_034)) && wait.is_over(&three, ms(2_035)));
    let joint = voters([0b111, 0b001]);
    assert_eq!(wait.waited_ns(&joint, ms(2_003)), 10 * MS, "of both sets");
}

/// Rules C2 and C4.
#[test]
fn reports_of_another_entry_or_from_before_the_commit_do_not_count() {
    let three = voters([0b111, 0]);
    let mut wait = wait();
    let none = [
        answer(50, 7, 590),
        answer(49, 8, 590),
        Pulse { answers: Some(Answers { incarnation: 8, sequence: 50, granted: false }), ..answer(50, 8, 590) },
        Pulse { answers: None, ..answer(50, 8, 590) },
        Pulse { report: None, ..answer(50, 8, 590) },
    ];
    for other in none {
        wait.answered(1, &other, ms(2_001));
        wait.answered(2, &other, ms(2_001));
    }
    assert_eq!(wait.waited_ns(&three, ms(2_001)), MS);
    let mut unknown = Wait::new(None, &LeaseTerms::by_grants(600), 9, 50, ms(2_000));
    unknown.answered(1, &answer(50, 8, 590), ms(2_001));
    unknown.answered(2, &answer(50, 8, 590), ms(2_001));
    assert_eq!(unknown.waited_ns(&three, ms(2_001)), MS, "the entry is in a snapshot");
}

#[test]
fn a_grant_from_before_this_run_counts_from_its_beginning() {
    let three = voters([0b111, 0]);
    let mut wait = Wait::new(Some(at(8)), &LeaseTerms::by_grants(600), 9, 50, ms(100));
    wait.answered(1, &answer(50, 8, 590), ms(101));
    wait.answered(2, &answer(50, 8, 590), ms(101));
    assert_eq!(wait.waited_ns(&three, ms(101)), 101 * MS);
    assert!(!wait.is_over(&voters([0, 0]), ms(712)), "without voters nothing shortens it");
}
