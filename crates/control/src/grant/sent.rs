//! The pulses that this node has sent: their numbers, and when.
//!
//! An answer names the pulse by incarnation and sequence, never by a time: only this node knows when it sent it. A pulse that was
//! sent longer ago than [`SENT_MAX`] pulses is forgotten; its grant is of no use.

use super::time::Reading;

/// How many pulses are remembered: the longest lease has 120 of them, and some are sent between two.
pub const SENT_MAX: usize = 256;

/// The pulses of one incarnation. The pulse thread owns it.
#[derive(Clone, Debug)]
pub struct SentPulses {
    incarnation: u64,
    newest: u64,
    at: [Reading; SENT_MAX],
}

impl SentPulses {
    /// `incarnation`: a random number of this run, not 0.
    pub fn new(incarnation: u64) -> SentPulses {
        SentPulses { incarnation, newest: 0, at: [Reading::default(); SENT_MAX] }
    }

    /// The sequence of the pulse that is sent now; the same one goes to all nodes. `now`: from *before* it is sent.
    pub fn next(&mut self, now: Reading) -> u64 {
        self.newest += 1;
        self.at[self.newest as usize % SENT_MAX] = now;
        self.newest
    }

    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The newest sequence; 0 before the first.
    pub fn newest(&self) -> u64 {
        self.newest
    }

    /// When that pulse was sent.
    pub fn at(&self, incarnation: u64, sequence: u64) -> Option<Reading> {
        let is_known = incarnation == self.incarnation
            && (1..=self.newest).contains(&sequence)
            && self.newest - sequence < SENT_MAX as u64;
        is_known.then(|| self.at[sequence as usize % SENT_MAX])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pulses_of_this_run_that_were_sent_lately_are_known() {
        let reading = |ns| Reading { boot_ns: ns, raw_ns: ns };
        let mut sent = SentPulses::new(7);
        let sequences: Vec<u64> = (0..300).map(|ns| sent.next(reading(ns))).collect();
        assert_eq!(sequences, (1..=300).collect::<Vec<u64>>());
        assert_eq!(sent.at(7, 300), Some(reading(299)));
        assert_eq!(sent.at(7, 45), Some(reading(44)));
        assert_eq!([sent.at(7, 44), sent.at(7, 301), sent.at(7, 0), sent.at(6, 300)], [None; 4]);
    }
}
