//! The parts of the study, and the sizes they run at.
//!
//! Failure: none; names are checked when the options are read.

use crate::Study;

/// Something that is measured, as `--only` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// What each level costs the master.
    Levels,
    /// A standby that was away.
    CatchUp,
    /// One transaction of 174 MiB.
    Large,
    /// A load beyond what the standby takes in.
    Governor,
    /// Queries on the standby.
    Report,
    /// Master and standby at a distance.
    Distance,
    /// Each node on a core of its own.
    OwnCores,
    /// Three masters whose standbys are on one node.
    ThreeMasters,
}

impl Part {
    /// All, in the order they run: the governor's master is restarted, so it comes last.
    pub const ALL: [Part; 8] = [
        Part::Levels,
        Part::Distance,
        Part::OwnCores,
        Part::CatchUp,
        Part::Large,
        Part::Report,
        Part::ThreeMasters,
        Part::Governor,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Part::Levels => "levels",
            Part::CatchUp => "catch-up",
            Part::Large => "large",
            Part::Governor => "governor",
            Part::Report => "report",
            Part::Distance => "distance",
            Part::OwnCores => "own-cores",
            Part::ThreeMasters => "three-masters",
        }
    }
}

/// Sizes the goals are defined with, or small ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    pub log_rows: u64,
    /// Client counts of the levels; the other parts have the first.
    pub clients: Vec<usize>,
    /// Runs of each level with each number of clients; the median counts.
    pub rounds: usize,
    /// Seconds of each.
    pub point_seconds: f64,
    /// How long the standby is away.
    pub away_seconds: f64,
    /// Bytes of the large transaction's rows, and the load around it.
    pub large_bytes: u64,
    pub large_seconds: f64,
    pub report_seconds: f64,
    /// A load past the capacity with the governor on, and as long with it off.
    pub governor_seconds: f64,
    /// The load before, without a limit.
    pub free_seconds: f64,
    /// What the link delays there and back, in milliseconds.
    pub round_trips_ms: Vec<f64>,
    /// Each of the loads of one master and of three.
    pub shared_seconds: f64,
}

/// As long as the simulation that the governor's law was chosen by.
const GOVERNOR_SECONDS_USUAL: f64 = 300.0;
/// A load without a limit shows its rate within this time.
const FREE_SECONDS_USUAL: f64 = 30.0;

impl Sizes {
    pub fn of(study: &Study) -> Sizes {
        let (small, point_seconds) = (study.quick, study.seconds);
        let clients = if small { vec![4] } else { vec![40, 80] };
        Sizes {
            log_rows: study.log_rows.unwrap_or(if small { 500 } else { 30_000 }),
            clients: if study.clients.is_empty() { clients } else { study.clients.clone() },
            rounds: if small { 1 } else { 3 },
            point_seconds,
            away_seconds: if small { point_seconds } else { 3.0 * point_seconds },
            large_bytes: if small { 2 << 20 } else { 174 << 20 },
            large_seconds: if small { point_seconds } else { 10.0 * point_seconds },
            report_seconds: if small { point_seconds } else { 3.0 * point_seconds },
            governor_seconds: if small { point_seconds } else { longer(20.0, point_seconds, GOVERNOR_SECONDS_USUAL) },
            free_seconds: if small { point_seconds } else { (3.0 * point_seconds).min(FREE_SECONDS_USUAL) },
            round_trips_ms: if small { vec![0.0, 2.0] } else { vec![0.0, 2.0, 10.0, 50.0] },
            shared_seconds: if small { point_seconds } else { 2.0 * point_seconds },
        }
    }

    /// Clients of the parts that have one load.
    pub fn clients_usual(&self) -> usize {
        self.clients.first().copied().unwrap_or(1)
    }

    /// Each run of one client at a distance; together they take as long as a point.
    pub fn one_client_seconds(&self) -> f64 {
        self.point_seconds / self.rounds as f64
    }

    /// The run of many clients at a distance.
    pub fn many_clients_seconds(&self) -> f64 {
        self.point_seconds / 2.0
    }

    /// Seconds of load that a part takes at one pair.
    pub fn seconds(&self, part: Part) -> f64 {
        match part {
            // A first run, five levels, and two of them again at an equal rate.
            Part::Levels => self.point_seconds * (1.0 + self.rounds as f64 * (5.0 * self.clients.len() as f64 + 2.0)),
            Part::CatchUp => 4.0 * self.away_seconds,
            Part::Large => self.large_seconds,
            Part::Report => 2.0 * self.report_seconds,
            // On and off for as long, and half of that far past the capacity.
            Part::Governor => self.free_seconds + 2.5 * self.governor_seconds,
            // Four levels, with one client and with many.
            Part::Distance => self.round_trips_ms.len() as f64 * 4.0 * 1.5 * self.point_seconds,
            Part::OwnCores => 2.0 * self.rounds as f64 * self.point_seconds,
            Part::ThreeMasters => self.point_seconds + 3.0 * self.shared_seconds,
        }
    }
}

/// So many times a point's seconds, but no longer than `usual` where not even a point is longer.
fn longer(times: f64, point_seconds: f64, usual: f64) -> f64 {
    (times * point_seconds).min(usual).max(point_seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_governor_has_five_minutes_and_no_more_unless_it_is_asked_for() {
        let seconds = |point| longer(20.0, point, GOVERNOR_SECONDS_USUAL);
        assert_eq!([2.0, 15.0, 300.0, 900.0].map(seconds), [40.0, 300.0, 300.0, 900.0]);
    }
}
