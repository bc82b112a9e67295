//! For the simulation: the pulse loop with one rule left out.

use super::log::LogView;
use super::pulse::{Pulse, Report};
use super::time::{Moment, Reading};
use super::voter::Voter;
use super::voters::{LogPosition, NODES_MAX, Roster};
use super::wait::Wait;
use super::{Applied, Stage};
use crate::simulation::grants::Sabotage;
use holdfast_types::Epoch;

/// What a simpler program would remember and believe.
#[derive(Clone, Copy, Default)]
pub struct Believed {
    /// The last report of each node, of whatever entry, in this node's time.
    old_reports: [Option<(LogPosition, Moment)>; NODES_MAX],
    /// A grant in this run, for a voter that forgets those before it.
    pub granted_once: bool,
    /// The newest ending entry in the log, durable or not.
    pub appended: Option<LogPosition>,
}

impl Believed {
    pub fn note(&mut self, from: usize, report: Option<Report>, sabotage: Sabotage, now: Moment) {
        let Some(report) = report else { return };
        let told = now.back(report.age_ns);
        let early = sabotage == Sabotage::EarlyReport;
        let older = self.old_reports[from]
            .filter(|(of, at)| *of == report.ending && *at < told || early && of.index > report.ending.index);
        self.old_reports[from] = older.or(Some((report.ending, told)));
    }

    pub fn apply(&self, mut wait: Wait, sabotage: Sabotage, now: Moment) -> Wait {
        let committed = wait.ending();
        for (slot, report) in self.old_reports.iter().enumerate() {
            let Some((ending, grant)) = report else { continue };
            let believed =
                sabotage == Sabotage::StaleReport || sabotage == Sabotage::EarlyReport && Some(*ending) == committed;
            if let (true, Some(ending)) = (believed, committed) {
                wait.reported(slot, Some(Report { ending, age_ns: now.since(*grant) }), now);
            }
        }
        wait
    }

    pub fn report(&self, mut report: Option<Report>, sabotage: Sabotage, voter: &Voter, now: Moment) -> Option<Report> {
        if sabotage == Sabotage::EarlyReport {
            report = self.appended.map(|ending| Report { ending, age_ns: now.since(voter.granted) });
        }
        if sabotage == Sabotage::AgeForgotten && !self.granted_once {
            report = report.map(|report| Report { age_ns: u64::MAX, ..report });
        }
        report
    }
}

impl Sabotage {
    pub(super) fn read(self, reading: Reading) -> Reading {
        match self {
            Sabotage::SlewedClock => Reading { raw_ns: reading.boot_ns, ..reading },
            _ => reading,
        }
    }

    /// `before`: the last grant and the newest voter set before the look at the log.
    pub(super) fn look(self, voter: &mut Voter, (granted, known): (Moment, LogPosition)) {
        match self {
            Sabotage::GrantAfterAppend => voter.view.ended = Epoch(0),
            Sabotage::ChangeHidesGrant if known != LogPosition::default() => voter.granted = granted,
            _ => {}
        }
    }

    pub(super) fn judges_otherwise(self) -> bool {
        let judges =
            [Sabotage::EmptyDiskGrants, Sabotage::GrantUnheard, Sabotage::GrantAfterAppend, Sabotage::AgeForgotten];
        judges.contains(&self)
    }

    pub(super) fn believe(self, view: &mut LogView, pulse: &mut Pulse, me: usize, roster: &Roster) {
        match self {
            Sabotage::EmptyDiskGrants if !view.applied.votes => {
                view.applied = Applied {
                    cluster: pulse.cluster,
                    epoch: pulse.epoch,
                    master: roster.slot(pulse.node),
                    stage: Stage::Serving,
                    record_version: 2,
                    votes: true,
                    ..view.applied
                };
                view.voters.at = pulse.voters_at;
            }
            Sabotage::GrantUnheard => pulse.heard = pulse.heard.with(me),
            // It looks at what is applied only.
            Sabotage::GrantAfterAppend => view.ended = Epoch(0),
            _ => {}
        }
    }
}
