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
}

impl Part {
    /// All, in the order they run: the governor's master is started anew, last.
    pub const ALL: [Part; 5] = [Part::Levels, Part::CatchUp, Part::Large, Part::Report, Part::Governor];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Part::Levels => "levels",
            Part::CatchUp => "catch-up",
            Part::Large => "large",
            Part::Governor => "governor",
            Part::Report => "report",
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
    /// With the governor, and again without.
    pub governor_seconds: f64,
    /// Before, nobody held back.
    pub free_seconds: f64,
}

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
            governor_seconds: if small { point_seconds } else { 20.0 * point_seconds },
            free_seconds: if small { point_seconds } else { 3.0 * point_seconds },
        }
    }

    /// Clients of the parts that have one load.
    pub fn clients_usual(&self) -> usize {
        self.clients.first().copied().unwrap_or(1)
    }

    /// Seconds of load that a part takes at one pair.
    pub fn seconds(&self, part: Part) -> f64 {
        match part {
            // A first run, five levels, and two of them again at an equal rate.
            Part::Levels => self.point_seconds * (1.0 + self.rounds as f64 * (5.0 * self.clients.len() as f64 + 2.0)),
            Part::CatchUp => 4.0 * self.away_seconds,
            Part::Large => self.large_seconds,
            Part::Report => 2.0 * self.report_seconds,
            Part::Governor => self.free_seconds + 2.0 * self.governor_seconds,
        }
    }
}
