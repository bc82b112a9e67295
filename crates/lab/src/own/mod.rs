//! A person's own transactions under each setting of how commits are made durable, at rising numbers of clients: what
//! `holdfast doctor --workload` runs. "There is no substitute for performing tests in your environment" (FairCom, Linux
//! Performance and Safety Advisory); all settings are safe, and which is fastest depends on the disk.
//!
//! Each setting has a server of its own, with the script's tables in a directory that is removed afterwards. All of them run
//! during the whole measurement, and each number of clients is measured on one after the other and then backwards, so
//! that the machine's other work falls on all of them equally.

mod drive;
mod script;
mod table;

use crate::{interrupt, peer_holdfast};
use anyhow::Context;
use drive::Counted;
use script::Script;
use serde::Serialize;
use std::path::PathBuf;
use std::time::Duration;

/// What to measure and how.
pub struct OwnWorkload {
    pub script: PathBuf,
    pub clients: Vec<usize>,
    /// How long each point is measured.
    pub seconds: f64,
    /// Where the temporary databases are made: on the disk that is meant.
    pub data_dir: PathBuf,
    /// The program that serves.
    pub program: PathBuf,
}

/// One point.
#[derive(Clone, Debug, Serialize)]
pub struct OwnPoint {
    pub setting: &'static str,
    pub clients: usize,
    pub transactions: u64,
    /// Transactions run again after a serialization failure or a deadlock.
    pub retries: u64,
    pub tps: f64,
    pub tps_of_passes: [f64; PASSES],
    pub p50_ms: f64,
    pub p95_ms: f64,
}

/// Every point, and what follows from them.
#[derive(Clone, Debug, Serialize)]
pub struct OwnResults {
    pub points: Vec<OwnPoint>,
    /// The lines of holdfast.toml to set; none says to keep the defaults.
    pub recommended: Option<&'static str>,
    pub why: String,
}

/// One way of making commits durable. All of them are safe.
struct Setting {
    name: &'static str,
    /// Its lines in holdfast.toml.
    lines: &'static str,
}

/// The default comes first.
const SETTINGS: [Setting; 5] = [
    Setting { name: "open_direct_dsync", lines: "sync_method = \"open_direct_dsync\"" },
    Setting { name: "open_sync", lines: "sync_method = \"open_sync\"" },
    Setting { name: "fdatasync", lines: "sync_method = \"fdatasync\"" },
    Setting { name: "fsync", lines: "sync_method = \"fsync\"" },
    Setting { name: "no commit delay", lines: "commit_delay_us = 0" },
];

/// A change that gains less than this is not worth a line of configuration.
const GAIN_MIN: f64 = 1.10;

/// Each point is measured in two passes, the second in the other order; a gain counts only if both show it.
const PASSES: usize = 2;

/// Runs it; `tell` hears of each point.
pub fn run_own(workload: &OwnWorkload, tell: impl Fn(&OwnPoint)) -> anyhow::Result<OwnResults> {
    let script = Script::read(&workload.script)?;
    interrupt::catch();
    let scratch = tempfile::Builder::new().prefix("holdfast-doctor-").tempdir_in(&workload.data_dir);
    let scratch = scratch.with_context(|| format!("cannot create a directory in {}", workload.data_dir.display()))?;
    let mut servers = Vec::new();
    for setting in &SETTINGS {
        let dir = scratch.path().join(setting.name.replace(' ', "_"));
        let server = peer_holdfast::start_with(&workload.program, &dir, setting.lines)?;
        drive::set_up(server.addr, &script).with_context(|| format!("{}: setting up", workload.script.display()))?;
        servers.push(server);
    }
    let mut points = Vec::new();
    for clients in &workload.clients {
        let mut passes: [[Counted; SETTINGS.len()]; PASSES] = Default::default();
        let time = Duration::from_secs_f64(workload.seconds / PASSES as f64);
        for (pass, of_setting) in passes.iter_mut().enumerate() {
            for turn in 0..servers.len() {
                let index = if pass % 2 == 0 { turn } else { servers.len() - 1 - turn };
                let counted = drive::measure(servers[index].addr, &script, *clients, time);
                let counted = counted.with_context(|| format!("{} at {clients} clients", SETTINGS[index].name));
                of_setting[index] = counted.map_err(|error| match interrupt::unless(error) {
                    Ok(error) => error,
                    Err(interrupted) => interrupted.into(),
                })?;
            }
        }
        for (index, setting) in SETTINGS.iter().enumerate() {
            let passes = passes.each_ref().map(|of_setting| &of_setting[index]);
            let point = point(setting.name, *clients, time, passes);
            tell(&point);
            points.push(point);
        }
    }
    drop(servers);
    scratch.close().context("cannot remove the temporary databases")?;
    Ok(recommend(points))
}

/// The figures of a setting at a number of clients from what its passes counted.
fn point(setting: &'static str, clients: usize, time: Duration, passes: [&Counted; PASSES]) -> OwnPoint {
    let tps_of_passes = passes.map(|counted| counted.samples_us.len() as f64 / time.as_secs_f64());
    let mut samples: Vec<u32> = passes.iter().flat_map(|counted| &counted.samples_us).copied().collect();
    samples.sort_unstable();
    let at = |fraction: f64| f64::from(samples[((samples.len() - 1) as f64 * fraction) as usize]) / 1000.0;
    OwnPoint {
        setting,
        clients,
        transactions: samples.len() as u64,
        retries: passes.iter().map(|counted| counted.retries).sum(),
        tps: tps_of_passes.iter().sum::<f64>() / PASSES as f64,
        tps_of_passes,
        p50_ms: at(0.5),
        p95_ms: at(0.95),
    }
}

/// The setting that gains most over the default in the pass where it gains least, over all numbers of clients, if that
/// is enough.
fn recommend(points: Vec<OwnPoint>) -> OwnResults {
    let mean = |setting: &Setting, pass: usize| {
        let of_setting = points.iter().filter(|point| point.setting == setting.name);
        let rates: Vec<f64> = of_setting.map(|point| point.tps_of_passes[pass].max(0.1).ln()).collect();
        (rates.iter().sum::<f64>() / rates.len().max(1) as f64).exp()
    };
    let [default, others @ ..] = &SETTINGS;
    let gain = |setting: &Setting| {
        let gains = (0..PASSES).map(|pass| mean(setting, pass) / mean(default, pass));
        gains.fold(f64::INFINITY, f64::min)
    };
    let best = others.iter().max_by(|a, b| gain(a).total_cmp(&gain(b))).filter(|best| gain(best) >= GAIN_MIN);
    let why = best.map_or("no other setting is faster by 10 % in both passes".to_owned(), |best| {
        let percent = (gain(best) - 1.0) * 100.0;
        format!("it is {percent:.0} % faster than the defaults with these transactions, or more, in both passes")
    });
    OwnResults { points, recommended: best.map(|best| best.lines), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(rates: [[f64; PASSES]; SETTINGS.len()]) -> Vec<OwnPoint> {
        let counted = |tps: f64| Counted { samples_us: vec![1000; tps as usize], retries: 0 };
        let point = |(setting, rates): (&Setting, [f64; PASSES])| {
            let passes = rates.map(counted);
            point(setting.name, 1, Duration::from_secs(1), passes.each_ref())
        };
        SETTINGS.iter().zip(rates).map(point).collect()
    }

    #[test]
    fn a_winner_in_both_passes_is_recommended_and_noise_is_not() {
        let others = [80.0, 80.0];
        let results = |fdatasync| recommend(points([[100.0, 100.0], others, fdatasync, others, others]));
        for noise in [[95.0, 95.0], [105.0, 105.0], [300.0, 95.0]] {
            assert_eq!(results(noise).recommended, None);
        }
        assert!(results([95.0, 95.0]).text().contains("Keep the defaults"));
        let text = results([150.0, 160.0]).text();
        assert!(text.contains("50 %") && text.contains("sync_method = \"fdatasync\""), "{text}");
    }
}
