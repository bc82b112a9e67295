//! The two threads of rule C2 in all orders that the memory model allows, by loom.

use std::sync::Arc;

use super::*;

struct LoomWord(loom::sync::atomic::AtomicU64);

impl Word for LoomWord {
    fn new(value: u64) -> LoomWord {
        LoomWord(loom::sync::atomic::AtomicU64::new(value))
    }

    fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn store(&self, value: u64) {
        self.0.store(value, Ordering::Release);
    }

    fn fence() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// As [`LoomWord`], without the fence.
struct Unfenced(LoomWord);

impl Word for Unfenced {
    fn new(value: u64) -> Unfenced {
        Unfenced(LoomWord::new(value))
    }

    fn load(&self) -> u64 {
        self.0.load()
    }

    fn store(&self, value: u64) {
        self.0.store(value);
    }

    fn fence() {}
}

fn ending() -> LogPosition {
    LogPosition { term: 2, leader: "w".parse().unwrap(), index: 8 }
}

const GRANT: Moment = Moment(1_000);

/// One grant against one ending entry. In every order: if the grant is sent, the report has it.
fn no_grant_is_missed<W: Word + 'static>(looks_first: bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let log = Arc::new(VoterLog::<W>::default());
        let journal = {
            let log = log.clone();
            loom::thread::spawn(move || {
                log.appended(ending(), Meaning::Ends(Epoch(4)));
                // Written and synced. Now it may be reported.
                log.last_grant()
            })
        };
        let sent = match log.look() {
            Some(view) if view.ended < Epoch(4) && looks_first => {
                // What must not be done: the log is looked at only before the time is stored.
                log.granted_ns.store(GRANT.0);
                true
            }
            Some(view) if view.ended < Epoch(4) => log.store_grant(GRANT, &view),
            _ => false,
        };
        let reported = journal.join().unwrap();
        assert!(!sent || reported == GRANT, "a grant was sent that the report does not have");
    });
}

#[test]
fn a_grant_that_is_sent_is_in_the_report_in_every_order_of_two_threads() {
    no_grant_is_missed::<LoomWord>(false);
}

#[test]
#[should_panic(expected = "a grant was sent that the report does not have")]
fn without_the_second_look_a_grant_is_missed() {
    no_grant_is_missed::<LoomWord>(true);
}

#[test]
#[should_panic(expected = "a grant was sent that the report does not have")]
fn without_the_fence_a_grant_is_missed() {
    no_grant_is_missed::<Unfenced>(false);
}

/// A view is of one moment, or there is none.
#[test]
fn a_view_is_never_mixed() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let log = Arc::new(VoterLog::<LoomWord>::default());
        let journal = {
            let log = log.clone();
            loom::thread::spawn(move || log.appended(ending(), Meaning::Ends(Epoch(4))))
        };
        if let Some(view) = log.look() {
            assert!(view == LogView::default() || view.ended == Epoch(4));
        }
        journal.join().unwrap();
    });
}

#[test]
fn facts_are_read_as_they_were_written() {
    let log = VoterLog::<AtomicU64>::default();
    let applied = Applied {
        cluster: u64::MAX,
        record_version: 2,
        epoch: Epoch(u32::MAX),
        stage: Stage::Deposed,
        lease_ms: u32::MAX,
        master: Some(8),
        successor: Some(0),
        votes: true,
    };
    let voters = |index| Voters { at: LogPosition { index, ..ending() }, sets: [NodeSet(0x1ff), NodeSet(0x155)] };
    log.installed(ending(), voters(3), Applied::default());
    log.appended(LogPosition { index: 9, ..ending() }, Meaning::Ends(Epoch(u32::MAX)));
    log.applied(LogPosition { index: 9, ..ending() }, Meaning::Ends(Epoch(u32::MAX)), false, applied);
    let view = log.look().unwrap();
    let expected = LogView {
        version: view.version,
        applied,
        ended: Epoch(u32::MAX),
        durable_ending: None,
        committed_ending: Some(LogPosition { index: 9, ..ending() }),
        voters: voters(3),
    };
    assert_eq!(view, expected);
}
