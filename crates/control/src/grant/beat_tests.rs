use super::*;
use crate::grant::log::{Applied, Meaning};
use crate::grant::voters::{LogPosition, Voters};
use crate::id::NodeId;

fn node(name: &str) -> NodeId {
    name.parse().unwrap()
}

const A: usize = 0;
const B: usize = 1;

/// The nodes a and b of a group in which a serves in epoch 3, with their links.
struct Pair {
    now_ns: u64,
    beats: [Beat; 2],
    /// What is under way: to whom, from whom.
    mail: Vec<(usize, usize, Pulse)>,
}

fn log() -> Arc<VoterLog> {
    let log = Arc::new(VoterLog::default());
    let sets = [NodeSet::of([A, B]), NodeSet::default()];
    let at = LogPosition { term: 1, leader: node("a"), index: 1 };
    let applied = Applied {
        cluster: 7,
        record_version: 2,
        epoch: Epoch(3),
        stage: Stage::Serving,
        lease_ms: 600,
        master: Some(A),
        successor: None,
        votes: true,
    };
    log.installed(LogPosition { index: 2, ..at }, Voters { at, sets }, applied);
    log.appended(LogPosition { index: 3, ..at }, Meaning::Other);
    log
}

fn beat(me: usize, now_ns: u64, incarnation: u64) -> Beat {
    let roster = Roster::new(["a", "b"].map(node)).unwrap();
    let reading = Reading { boot_ns: now_ns, raw_ns: now_ns };
    let mut beat = Beat::new(me, roster, log(), Arc::default(), reading, incarnation);
    if me == A {
        beat.page = Some(Page { epoch: Epoch(3), end: Reading::default(), closed: false });
    }
    beat
}

impl Pair {
    fn new() -> Pair {
        let now_ns = 1_000 * MS;
        Pair { now_ns, beats: [beat(A, now_ns, 11), beat(B, now_ns, 21)], mail: Vec::new() }
    }

    fn reading(&self) -> Reading {
        Reading { boot_ns: self.now_ns, raw_ns: self.now_ns }
    }

    /// Turns of a millisecond; everything arrives in the next one.
    fn run_ms(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now_ns += MS;
            let mail = std::mem::take(&mut self.mail);
            for me in [A, B] {
                let to_me = mail.iter().filter(|(to, _, _)| *to == me).map(|(_, from, pulse)| (*from, *pulse));
                let inbox: Vec<(usize, Pulse)> = to_me.collect();
                self.turn(me, &inbox);
            }
        }
    }

    fn turn(&mut self, me: usize, inbox: &[(usize, Pulse)]) {
        let (reading, mail) = (self.reading(), &mut self.mail);
        self.beats[me].turn(reading, inbox, &mut |_, pulse| mail.push((1 - me, me, *pulse)));
    }

    fn left_ms(&self) -> u64 {
        self.beats[A].page.unwrap().end.shortest_since(&self.reading()) / MS
    }

    fn a_hears_b(&self) -> bool {
        self.beats[A].seen().heard.contains(B)
    }
}

#[test]
fn two_nodes_prove_their_runs_and_the_master_gets_its_lease() {
    let mut pair = Pair::new();
    pair.run_ms(100);
    assert!(pair.left_ms() > 560, "{} ms", pair.left_ms());
    assert!(pair.a_hears_b() && pair.beats[B].seen().heard.contains(A));
    pair.run_ms(5_000);
    assert!(pair.left_ms() > 560 && !pair.beats[B].seen().is_silent);
}

/// All that b ever sent is sent again, by a program that can read the network, when b is gone.
#[test]
fn copies_of_old_messages_make_no_node_look_alive_and_extend_no_lease() {
    let mut pair = Pair::new();
    let mut heard = Vec::new();
    for _ in 0..400 {
        pair.run_ms(1);
        heard.extend(pair.mail.iter().filter(|(to, _, _)| *to == A).map(|(_, _, pulse)| (B, *pulse)));
    }
    assert!(pair.a_hears_b());
    for copies in heard.chunks(8).cycle().take(1_000) {
        pair.now_ns += MS;
        pair.turn(A, copies);
    }
    assert!(!pair.a_hears_b(), "by copies");
    assert_eq!(pair.left_ms(), 0);
}

/// b was started again: copies of what its earlier run sent do not take the place of the run that has answered since.
#[test]
fn copies_of_an_earlier_run_do_not_take_the_place_of_the_present_one() {
    let mut pair = Pair::new();
    let mut old = Vec::new();
    for _ in 0..200 {
        pair.run_ms(1);
        old.extend(pair.mail.iter().filter(|(to, _, _)| *to == A).map(|(_, _, pulse)| (B, *pulse)));
    }
    pair.beats[B] = beat(B, pair.now_ns, 22);
    pair.mail.clear();
    pair.run_ms(100);
    assert!(pair.a_hears_b(), "the new run");
    assert_eq!(pair.beats[A].runs[B].incarnation, 22);
    for copies in old.chunks(4) {
        pair.now_ns += MS;
        pair.turn(A, copies);
        assert_eq!(pair.beats[A].runs[B].incarnation, 22);
    }
}

/// The machine of b was copied, and the copy was started after it: what the original grants counts for nothing.
#[test]
fn what_a_run_grants_after_which_its_node_was_started_again_extends_no_lease() {
    let mut pair = Pair::new();
    pair.run_ms(100);
    assert!(pair.left_ms() > 560);
    pair.beats[A].ended.note(B, &[5, 21]);
    pair.run_ms(700);
    assert!(pair.left_ms() == 0 && !pair.a_hears_b());
}

#[test]
fn messages_of_another_group_and_of_this_node_itself_count_for_nothing() {
    let mut pair = Pair::new();
    for _ in 0..300 {
        pair.run_ms(1);
        for (_, _, pulse) in &mut pair.mail {
            pulse.cluster = 8;
        }
    }
    assert!(!pair.a_hears_b(), "of another group");
    let mut sent = Vec::new();
    for _ in 0..200 {
        pair.now_ns += MS;
        let inbox: Vec<(usize, Pulse)> = std::mem::take(&mut sent).into_iter().map(|pulse| (A, pulse)).collect();
        let reading = pair.reading();
        pair.beats[A].turn(reading, &inbox, &mut |_, pulse| sent.push(*pulse));
    }
    assert!(!pair.a_hears_b() && pair.left_ms() == 0);
}

/// What another thread does to the page counts from the next turn on, whatever is granted.
#[test]
fn a_page_that_was_closed_stays_closed() {
    let mut pair = Pair::new();
    pair.run_ms(100);
    pair.beats[A].page.as_mut().unwrap().closed = true;
    pair.run_ms(1);
    assert_eq!(pair.left_ms(), 0);
    pair.run_ms(500);
    assert!(pair.left_ms() == 0 && pair.beats[A].page.unwrap().closed);
    assert!(!pair.mail.iter().any(|(_, from, pulse)| *from == A && pulse.asks), "it asks for no lease");
}
