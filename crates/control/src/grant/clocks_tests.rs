use super::*;

const MS: u64 = 1_000_000;

fn reading(ns: u64) -> Reading {
    Reading { boot_ns: ns, raw_ns: ns }
}

fn message(clock_ns: u64) -> Pulse {
    Pulse { incarnation: 5, clock: reading(clock_ns), ..Pulse::default() }
}

/// Two other nodes, whose clocks run at other rates; messages take `delay` in each direction.
struct Story {
    clocks: PeerClocks,
    real_ns: u64,
    /// How much this node's clock is behind because it stood still.
    stood_ns: u64,
    ppm: [i64; 2],
}

impl Story {
    fn new(ppm: [i64; 2]) -> Story {
        Story { clocks: PeerClocks::new(2), real_ns: 0, stood_ns: 0, ppm }
    }

    fn own(&self, real_ns: u64) -> Reading {
        reading(1_000 * MS + real_ns - self.stood_ns)
    }

    /// Pulses and answers for that time; true when a standstill was noticed.
    fn pulses(&mut self, for_ms: u64, delay: impl Fn(u64) -> u64) -> bool {
        let mut noticed = false;
        for number in 0..for_ms / 25 {
            self.real_ns += 25 * MS;
            for slot in 0..2 {
                let there = self.real_ns + delay(number);
                let back = there + delay(number + 1);
                let clock = 77_000 * MS + (there as i128 * i128::from(1_000_000 + self.ppm[slot]) / 1_000_000) as u64;
                noticed |= self.clocks.take(slot, &message(clock), self.own(back), Some(self.own(self.real_ns)));
            }
        }
        noticed
    }
}

#[test]
fn a_standstill_is_noticed_and_late_messages_are_none() {
    let mut story = Story::new([100, -100]);
    let late = |number: u64| if number.is_multiple_of(7) { 61 * MS } else { MS / 2 };
    assert!(!story.pulses(20_000, late));
    assert!(!story.pulses(2_000, |_| 400 * MS) && !story.pulses(2_000, late), "a slow link that becomes fast again");
    story.stood_ns += 40 * MS;
    assert!(!story.pulses(1_000, late), "below 50 ms");
    story.stood_ns += 60 * MS;
    assert!(story.pulses(25, |_| MS));
    assert!(!story.pulses(1_000, late), "noticed once");
    assert_eq!(story.clocks.verdict(), ClockVerdict::Good);
}

#[test]
fn a_clock_that_differs_from_both_others_is_off_and_one_that_differs_from_one_is_not() {
    let delay = |number: u64| if number.is_multiple_of(3) { 9 * MS } else { MS / 2 };
    let table = [
        ([0, 0], ClockVerdict::Good),
        ([4_000, 4_000], ClockVerdict::Good),
        ([7_000, 7_000], ClockVerdict::Off),
        ([-7_000, -7_000], ClockVerdict::Off),
        ([30_000, 0], ClockVerdict::Good),
        ([30_000, -30_000], ClockVerdict::Off),
    ];
    for (ppm, verdict) in table {
        let mut story = Story::new(ppm);
        assert_eq!(story.clocks.verdict(), ClockVerdict::Unknown);
        story.pulses(10_000, delay);
        assert_eq!(story.clocks.verdict(), verdict, "{ppm:?}: {:?}", story.clocks.rate_ppm(0));
        let (least, most) = story.clocks.rate_ppm(0).unwrap();
        assert!(least <= ppm[0] && ppm[0] <= most, "{ppm:?}: {least} to {most}");
    }
}

#[test]
fn with_one_other_node_it_is_not_known_which_clock_is_wrong() {
    let mut story = Story::new([30_000, 30_000]);
    for number in 1..200 {
        let real_ns = number * 25 * MS;
        let clock = message(real_ns * 103 / 100);
        story.clocks.take(0, &clock, story.own(real_ns + MS), Some(story.own(real_ns)));
    }
    assert_eq!(story.clocks.verdict(), ClockVerdict::Unknown);
}

#[test]
fn a_peer_that_starts_again_is_compared_from_the_beginning() {
    let mut story = Story::new([0, 0]);
    story.pulses(2_000, |_| MS);
    let restarted = Pulse { incarnation: 6, ..message(900_000 * MS) };
    assert!(!story.clocks.take(0, &restarted, story.own(story.real_ns), None), "its clock began somewhere else");
}
