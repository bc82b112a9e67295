use super::super::pulse::Answers;
use super::super::voters::{LogPosition, NodeSet};
use super::*;

const MS: u64 = 1_000_000;

fn reading(ms: u64) -> Reading {
    Reading { boot_ns: ms * MS, raw_ns: (ms + 7_000) * MS }
}

fn voters(index: u64, sets: [u16; 2]) -> Voters {
    Voters { at: LogPosition { index, ..LogPosition::default() }, sets: sets.map(NodeSet) }
}

fn answer(epoch: u32, incarnation: u64, sequence: u64, granted: bool) -> Pulse {
    Pulse { epoch: Epoch(epoch), answers: Some(Answers { incarnation, sequence, granted }), ..Pulse::default() }
}

/// Master in slot 0 of three voters; pulse n was sent at 25 n ms.
fn story(pulses: u64) -> (Holder, SentPulses) {
    let (mut holder, mut sent) = (Holder::new(Epoch(4), 600, Reading::default()), SentPulses::new(9));
    holder.set_voters(voters(1, [0b111, 0]), &sent);
    for number in 1..=pulses {
        sent.next(reading(25 * number));
    }
    (holder, sent)
}

#[test]
fn it_runs_from_the_sending_of_the_pulse_that_a_majority_granted() {
    let (mut holder, sent) = story(4);
    assert!(!holder.granted(0, 4, &sent), "one of three");
    assert!(holder.answered(1, &answer(4, 9, 2, true), &sent));
    assert_eq!(holder.end(), reading(650), "a and b granted pulse 2 or a later one");
    assert!(!holder.answered(1, &answer(4, 9, 1, true), &sent), "a grant that is late");
    assert!(holder.answered(2, &answer(4, 9, 3, true), &sent));
    assert_eq!(holder.end(), reading(675));
    assert!(holder.is_valid(reading(674)) && !holder.is_valid(reading(675)));
    let (slewed, slept) = (Reading { boot_ns: 0, ..reading(675) }, Reading { raw_ns: 0, ..reading(675) });
    assert!(!holder.is_valid(slewed) && !holder.is_valid(slept), "the larger of two clocks counts");
    assert_eq!((holder.left_ms(reading(100)), holder.left_ms(reading(675))), (575, 0));
}

#[test]
fn what_is_no_grant_of_this_run_and_epoch_changes_nothing() {
    let (mut holder, sent) = story(4);
    holder.granted(0, 4, &sent);
    let others = [
        answer(4, 8, 4, true),
        answer(3, 9, 4, true),
        answer(4, 9, 4, false),
        answer(4, 9, 5, true),
        answer(4, 9, 0, true),
        Pulse { epoch: Epoch(4), ..Pulse::default() },
    ];
    assert!(others.iter().all(|other| !holder.answered(1, other, &sent)));
    assert!(!holder.answered(9, &answer(4, 9, 4, true), &sent), "no slot of the group");
    assert_eq!(holder.end(), Reading::default());
    assert!(holder.answered(1, &answer(4, 9, 4, true), &sent));
}

#[test]
fn a_closed_lease_stays_closed() {
    let (mut holder, mut sent) = story(4);
    holder.granted(0, 4, &sent);
    holder.granted(1, 4, &sent);
    assert!(holder.is_valid(reading(110)));
    holder.close();
    let later = sent.next(reading(120));
    assert!(!holder.granted(0, later, &sent) && !holder.granted(1, later, &sent));
    assert!(!holder.is_valid(reading(121)) && holder.end() == Reading::default());
}

#[test]
fn a_standstill_voids_what_was_asked_before_it() {
    let (mut holder, mut sent) = story(4);
    holder.granted(0, 4, &sent);
    holder.granted(1, 4, &sent);
    holder.stood_still(&sent);
    assert!(!holder.is_valid(reading(110)));
    assert!(!holder.granted(1, 4, &sent) && !holder.granted(2, 3, &sent), "granted before, answered after");
    let later = sent.next(reading(125));
    assert!(!holder.granted(0, later, &sent) && holder.granted(1, later, &sent));
    assert_eq!(holder.end(), reading(725));
}

#[test]
fn grants_of_two_voter_sets_are_not_mixed() {
    let (mut holder, mut sent) = story(4);
    holder.granted(0, 4, &sent);
    holder.set_voters(voters(2, [0b111, 0b011]), &sent);
    assert!(!holder.granted(1, 4, &sent), "asked under the old set");
    let joint = sent.next(reading(125));
    assert!(!holder.granted(0, joint, &sent) && !holder.granted(2, joint, &sent), "no majority of the second set");
    assert!(holder.granted(1, joint, &sent));
    assert_eq!(holder.end(), reading(725));
    holder.set_voters(voters(3, [0b011, 0]), &sent);
    assert_eq!(holder.end(), reading(725), "what was granted stays");
}

/// Another run of the supervisor renews the lease that the page shows.
#[test]
fn a_lease_is_taken_over_with_the_end_that_the_page_shows() {
    let mut sent = SentPulses::new(10);
    let mut holder = Holder::new(Epoch(4), 600, reading(700));
    holder.set_voters(voters(1, [0b111, 0]), &sent);
    assert!(holder.is_valid(reading(699)));
    let first = sent.next(reading(50));
    holder.granted(0, first, &sent);
    assert!(!holder.granted(1, first, &sent) && holder.end() == reading(700), "never shorter");
    let next = sent.next(reading(150));
    holder.granted(0, next, &sent);
    assert!(holder.granted(2, next, &sent));
    assert_eq!(holder.end(), reading(750));
}
