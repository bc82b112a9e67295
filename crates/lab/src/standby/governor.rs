//! A load of twice what the standby takes in. The standby's capacity is made by the link, which lets only so many bytes a
//! second through: that is exact and the same in every run. Twice and not the 1.3 times of the simulation: on a machine
//! that others use as well the load itself is not the same from second to second, and has to be too much in all of them.
//!
//! How far the standby may fall behind is what it takes in within 3.4 seconds, as in the simulation.
//!
//! Beside it what the governor's laws do in the simulation that they were chosen by.
//!
//! Failure: a part that fails at one setting fails at this pair; what was measured before is kept.

use super::bed::Bed;
use super::pair::{CATCH_UP_MAX, Level, Pair, Way};
use super::results::{Governed, Law, Results};
use super::timeline::{self, Watched, watch};
use crate::schedule::Load;
use crate::server::Kind;
use holdfast_standby::governor::LAW;
use holdfast_standby::governor::law::Law as GovernorLaw;
use holdfast_standby::governor::simulation::{self, Outcome, Setup};

/// The load against what the link lets through.
const OVER: f64 = 2.0;
/// What the standby takes in within so many seconds is how far it may fall behind.
const LAG_SECONDS_MAX: f64 = 3.4;
const MIB: u64 = 1 << 20;
/// The first part of each run is the way up; the rest is judged.
const WAY_UP_SHARE: f64 = 0.25;
const SEEDS: u64 = 8;

/// Measures one pair; Holdfast with and without its governor, a peer has none.
pub fn measure(bed: &Bed<'_>, pair: &mut Pair, results: &mut Results) -> anyhow::Result<()> {
    let free = unlimited(bed, pair)?;
    match pair.kind {
        Kind::Holdfast => {
            for (governor, lag_bytes_max) in [("on", free.lag_bytes_max()), ("off", 0)] {
                pair.stop_standby();
                pair.restart_master(&format!("standby_lag_bytes_max = {lag_bytes_max}\n"))?;
                let governed = limited(bed, pair, governor, lag_bytes_max, &free)?;
                results.governed.push(governed);
            }
            results.laws = laws(if bed.study.quick { 1 } else { SEEDS });
        }
        Kind::Postgres => results.governed.push(limited(bed, pair, "none", 0, &free)?),
    }
    Ok(())
}

/// A load that nobody holds back.
struct Free {
    /// Bytes of the trail a second.
    bytes_rate: f64,
    /// What goes over the link for each byte of the trail: its blocks are filled up, which the link is spared.
    link_share: f64,
}

impl Free {
    /// Bytes a second that the link will let through.
    fn link_limit(&self) -> u64 {
        (self.bytes_rate * self.link_share / OVER) as u64
    }

    /// The same in bytes of the trail.
    fn capacity(&self) -> f64 {
        self.bytes_rate / OVER
    }

    fn lag_bytes_max(&self) -> u64 {
        ((self.capacity() * LAG_SECONDS_MAX) as u64).next_multiple_of(MIB)
    }
}

fn watched(bed: &Bed<'_>, pair: &mut Pair, seconds: f64) -> Watched {
    let (clients, options) = (bed.sizes.clients_usual(), Level::Cold.options(pair.kind));
    Watched { load: Load::Closed { clients }, seconds, options, epoch: pair.next_epoch(), memory: false }
}

fn unlimited(bed: &Bed<'_>, pair: &mut Pair) -> anyhow::Result<Free> {
    pair.need_standby()?;
    pair.stop_standby();
    pair.start_standby(Way::Link)?;
    pair.catch_up(CATCH_UP_MAX)?;
    let (from, passed) = (pair.position()?, pair.link.passed());
    let watched = watched(bed, pair, bed.sizes.free_seconds);
    watch(pair, watched, |_, _| Ok(()))?;
    pair.catch_up(CATCH_UP_MAX)?;
    let (written, over_link) = ((pair.position()? - from) as f64, (pair.link.passed() - passed) as f64);
    anyhow::ensure!(written > 0.0, "the load wrote nothing");
    Ok(Free { bytes_rate: written / bed.sizes.free_seconds, link_share: over_link / written })
}

fn limited(
    bed: &Bed<'_>,
    pair: &mut Pair,
    governor: &str,
    lag_bytes_max: u64,
    free: &Free,
) -> anyhow::Result<Governed> {
    bed.room()?;
    pair.stop_standby();
    pair.start_standby(Way::Link)?;
    pair.catch_up(CATCH_UP_MAX)?;
    let seconds = bed.sizes.governor_seconds;
    bed.progress.now(format!("{}, governor {governor}, for {seconds} s", pair.name()));
    let watched = watched(bed, pair, seconds);
    pair.link.limit(free.link_limit());
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
        lag_bytes_max,
        load_bytes_rate: free.bytes_rate,
        capacity_bytes_rate: free.capacity(),
        settled_s,
        mean_tps: timeline::mean(&rates),
        variation: timeline::variation(&rates),
        variation_whole: timeline::variation(&timeline.each_second(|m| Some(m.answered))),
        slowest_share: timeline::slowest_share(&rates),
        applied_share: settled.rate(|m| m.applied_lsn).map(|rate| rate / free.capacity()),
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
