//! Judging: one check for each question, from what was looked at and measured.
//!
//! The questions are those of FairCom's "Linux Performance and Safety Advisory" (file system, layers of cache, UPS, write
//! cache, barrier, commit delay), and what Holdfast itself needs: that its open flag takes effect, a sync that costs what
//! such a device's sync must cost, room for the trail, a mirror on a disk of its own. Each verdict's rules stand where it is given.

mod barrier;
mod commit_delay;
mod file_system;
mod latency;
mod layers;
mod mirror;
mod open_flag;
mod space;
mod ups;
mod write_cache;

use crate::look::Survey;
use crate::probe::Measured;
use crate::report::{Report, Verdict};
use crate::settings::Settings;

/// Everything a check may look at.
struct Case<'a> {
    survey: &'a Survey,
    settings: &'a Settings,
    measured: Option<&'a Measured>,
}

/// Gives the verdicts.
pub fn examine(survey: &Survey, settings: &Settings, measured: Option<Measured>) -> Report {
    let case = Case { survey, settings, measured: measured.as_ref() };
    let mut findings = vec![
        file_system::check(&case),
        barrier::check(&case),
        layers::check(&case),
        write_cache::check(&case),
        layers::virtual_disk(&case),
        layers::raid(&case),
        ups::check(&case),
        open_flag::check(&case),
        latency::check(&case),
        commit_delay::check(&case),
        space::check(&case),
        space::settings(&case),
    ];
    findings.extend(mirror::check(&case));
    let worst = findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::CannotKnow);
    Report { data: survey.path.clone(), worst, findings, device: survey.device.clone(), measured: measured.clone() }
}
