//! A load of 1.3 times what the standby takes in. The standby's capacity is made by the link, which lets only so many
//! bytes a second through: that is exact and the same in every run.
//!
//! Beside it what the governor's laws do in the simulation that they were chosen by.

use super::bed::Bed;
use super::pair::{CATCH_UP_MAX, Level, Pair, Way};
use super::results::{Governed, Law, Results};
use super::timeline::{self, Watched, watch};
use crate::schedule::Load;
use crate::server::Kind;
use anyhow::Context;
use holdfast_standby::governor::LAW;
use holdfast_standby::governor::law::Law as GovernorLaw;
use holdfast_standby::governor::simulation::{self, Outcome, Setup};

/// The load against what the link lets through.
const OVER: f64 = 1.3;
/// The first part of each run is the way up; the rest is judged.
const WAY_UP_SHARE: f64 = 0.25;
const SEEDS: u64 = 8;

/// Measures one pair; Holdfast with and without its governor, a peer has none.
pub fn measure(bed: &Bed<'_>, pair: &mut Pair, results: &mut Results) -> anyhow::Result<()> {
    pair.need_standby()?;
    let load_bytes_rate = unlimited(bed, pair)?;
    let limit = (load_bytes_rate / OVER) as u64;
    match pair.kind {
        Kind::Holdfast => {
            for (governor, lag_bytes_max) in [("on", bed.sizes.lag_bytes_max), ("off", 0)] {
                pair.stop_standby();
                pair.restart_master(&format!("standby_lag_bytes_max = {lag_bytes_max}\n"))?;
                let governed = limited(bed, pair, governor, load_bytes_rate, limit)?;
                results.governed.push(governed);
            }
            results.laws = laws(if bed.study.quick { 1 } else { SEEDS });
        }
        Kind::Postgres => results.governed.push(limited(bed, pair, "none", load_bytes_rate, limit)?),
    }
    Ok(())
}

fn watched(bed: &Bed<'_>, pair: &mut Pair, seconds: f64) -> Watched {
    let (clients, options) = (bed.sizes.clients_usual(), Level::Cold.options(pair.kind));
    Watched { load: Load::Closed { clients }, seconds, options, epoch: pair.next_epoch(), memory: false }
}

/// Bytes a second of the trail when nobody is held back.
fn unlimited(bed: &Bed<'_>, pair: &mut Pair) -> anyhow::Result<f64> {
    let watched = watched(bed, pair, bed.sizes.point_seconds.max(1.0));
    let seen = watch(pair, watched, |_, _| Ok(()))?;
    seen.timeline.rate(|m| Some(m.master_lsn)).context("the load was too short to have a rate")
}

fn limited(
    bed: &Bed<'_>,
    pair: &mut Pair,
    governor: &str,
    load_bytes_rate: f64,
    limit: u64,
) -> anyhow::Result<Governed> {
    bed.room()?;
    pair.stop_standby();
    pair.start_standby(Way::Link)?;
    pair.catch_up(CATCH_UP_MAX)?;
    let seconds = bed.sizes.governor_seconds;
    bed.progress.now(format!("{}, governor {governor}, for {seconds} s", pair.name()));
    let watched = watched(bed, pair, seconds);
    pair.link.limit(limit);
    let seen = watch(pair, watched, |_, _| Ok(()));
    pair.link.limit(0);
    bed.progress.advance(seconds);
    let timeline = seen?.timeline;
    let settled_s = seconds * WAY_UP_SHARE;
    let settled = timeline.between(settled_s, seconds);
    let rates = settled.each_second(|m| Some(m.answered));
    Ok(Governed {
        server: pair.name().into(),
        governor: governor.into(),
        lag_bytes_max: if governor == "on" { bed.sizes.lag_bytes_max } else { 0 },
        load_bytes_rate,
        link_bytes_rate: limit,
        settled_s,
        mean_tps: timeline::mean(&rates),
        variation: timeline::variation(&rates),
        variation_whole: timeline::variation(&timeline.each_second(|m| Some(m.answered))),
        slowest_share: timeline::slowest_share(&rates),
        applied_share: settled.rate(|m| m.applied_lsn).map(|rate| rate / limit.max(1) as f64),
        lag_most_bytes: timeline.most_lag_bytes(),
        lag_last_bytes: timeline.0.iter().rev().find_map(|m| m.lag_bytes()),
        timeline,
    })
}

/// Every law, by the same seeds.
fn laws(seeds: u64) -> Vec<Law> {
    GovernorLaw::ALL.into_iter().map(|law| of_law(law, seeds)).collect()
}

fn of_law(law: GovernorLaw, seeds: u64) -> Law {
    let outcomes: Vec<Outcome> =
        (1..=seeds).map(|seed| simulation::run(law, Setup { seed, ..Setup::default() })).collect();
    let mean = |of: fn(&Outcome) -> f64| outcomes.iter().map(of).sum::<f64>() / seeds as f64;
    let bound = Setup::default().lag_bytes_max as f64;
    Law {
        law: law.name().into(),
        in_use: law == LAW,
        variation: mean(Outcome::variation),
        slowest_share: mean(Outcome::slowest_share),
        applied_share: mean(Outcome::throughput_share),
        lag_most_share: mean(|outcome| outcome.lag_bytes_max as f64) / bound,
        bytes_rates: outcomes.first().map(|outcome| outcome.per_second.clone()).unwrap_or_default(),
    }
}
