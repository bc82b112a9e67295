//! A load of more than the standby takes in. The link sets the standby's capacity by a limit in bytes a second, which is
//! exact and equal in every run. The load is 1.3 times the capacity, as in the simulation, and again twice the capacity: on
//! a machine with other work the load varies from second to second, and twice the capacity is too much in all of them.
//!
//! Where the machine itself becomes slower, a load that was too much when it was measured no longer is. So the report
//! also has the part of the seconds in which the standby was behind, and the variation in those alone.
//!
//! How far the standby may fall behind is what it takes in within 3.4 seconds, as in the simulation.
//!
//! The report compares it with what the governor's laws do in the simulation that they were chosen by.
//!
//! Failure: a part that fails at one setting fails at this pair; what was measured before is kept.

use super::bed::Bed;
use super::pair::{CATCH_UP_MAX, Level, Pair, Way};
use super::results::{Governed, Law, Results};
use super::timeline::{self, Watched, watch};
use crate::ratios::quotient;
use crate::schedule::Load;
use crate::server::Kind;
use holdfast_standby::governor::LAW;
use holdfast_standby::governor::law::Law as GovernorLaw;
use holdfast_standby::governor::simulation::{self, Outcome, Setup};

/// The load against what the link lets through, as the goals have it.
const OVER: f64 = 1.3;
/// And where it is too much in every second.
const FAR_OVER: f64 = 2.0;
/// A load far past the capacity takes this part of the time of the one that the goals are about.
const BESIDE_SHARE: f64 = 0.5;
/// What a byte of the trail takes on the disk, at most: in the trails, where the standby lags, and in both databases.
const DISK_BYTES: f64 = 3.0;
/// The standby may fall behind by what it takes in within this time.
const LAG_SECONDS_MAX: f64 = 3.4;
/// A standby that is behind by what it takes in within this time has more to do than it can: the load was too much.
const BEHIND_SECONDS: f64 = 0.25;
const MIB: u64 = 1 << 20;
/// The first part of each run is the way up; the rest is judged.
const WAY_UP_SHARE: f64 = 0.25;
const SEEDS: u64 = 8;

/// Measures one pair; Holdfast with and without its governor, a peer has none.
pub fn measure(bed: &Bed<'_>, pair: &mut Pair, results: &mut Results) -> anyhow::Result<()> {
    let free = unlimited(bed, pair)?;
    let long = bed.sizes.governor_seconds;
    match pair.kind {
        Kind::Holdfast => {
            for (governor, over, seconds) in cases(long) {
                let lag_bytes_max = if governor == "on" { free.lag_bytes_max(over) } else { 0 };
                let case = Case { governor, over, seconds, lag_bytes_max };
                pair.stop_standby();
                pair.restart_master(&format!("standby_lag_bytes_max = {}\n", case.lag_bytes_max))?;
                results.governed.push(limited(bed, pair, case, &free)?);
            }
            results.laws = laws(if bed.study.quick { 1 } else { SEEDS });
        }
        Kind::Postgres => {
            for (over, seconds) in [(OVER, long), (FAR_OVER, long * BESIDE_SHARE)] {
                let case = Case { governor: "none", over, seconds, lag_bytes_max: 0 };
                results.governed.push(limited(bed, pair, case, &free)?);
            }
        }
    }
    Ok(())
}

/// Governor, load and seconds. On and off run for the same time, so that their figures and lines can be compared.
fn cases(long: f64) -> [(&'static str, f64, f64); 3] {
    [("on", OVER, long), ("off", OVER, long), ("on", FAR_OVER, long * BESIDE_SHARE)]
}

/// What is measured.
#[derive(Clone, Copy)]
struct Case {
    governor: &'static str,
    /// The load as a multiple of the capacity.
    over: f64,
    seconds: f64,
    /// How far the standby may fall behind; 0 is any distance.
    lag_bytes_max: u64,
}

/// A load without any limit.
struct Free {
    /// Bytes of the trail a second.
    bytes_rate: f64,
    /// What goes over the link for each byte of the trail: its blocks are filled up, which the link is spared.
    link_share: f64,
}

impl Free {
    /// The link's limit in bytes a second that this load exceeds `over` times.
    fn link_limit(&self, over: f64) -> u64 {
        (self.bytes_rate * self.link_share / over) as u64
    }

    /// The capacity in bytes of the trail a second.
    fn capacity(&self, over: f64) -> f64 {
        self.bytes_rate / over
    }

    fn lag_bytes_max(&self, over: f64) -> u64 {
        ((self.capacity(over) * LAG_SECONDS_MAX) as u64).next_multiple_of(MIB)
    }
}

fn watched(bed: &Bed<'_>, pair: &mut Pair, seconds: f64) -> Watched {
    let (clients, options) = (bed.sizes.clients_usual(), Level::Local.options(pair.kind));
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

fn limited(bed: &Bed<'_>, pair: &mut Pair, case: Case, free: &Free) -> anyhow::Result<Governed> {
    let Case { governor, over, seconds, lag_bytes_max } = case;
    bed.room_for((free.bytes_rate * seconds * DISK_BYTES) as u64)?;
    pair.stop_standby();
    pair.start_standby(Way::Link)?;
    pair.catch_up(CATCH_UP_MAX)?;
    bed.progress.now(format!("{}, load {over} times the capacity, governor {governor}, for {seconds} s", pair.name()));
    let watched = watched(bed, pair, seconds);
    pair.link.limit(free.link_limit(over));
    let seen = watch(pair, watched, |_, _| Ok(()));
    pair.link.limit(0);
    bed.progress.advance(seconds);
    let timeline = seen?.timeline;
    let settled_s = seconds * WAY_UP_SHARE;
    let settled = timeline.between(settled_s, seconds);
    let rates = settled.each_second(|m| Some(m.answered));
    let behind = settled.seconds_behind((free.capacity(over) * BEHIND_SECONDS) as u64);
    Ok(Governed {
        server: pair.name().into(),
        governor: governor.into(),
        load_factor: over,
        seconds,
        lag_bytes_max,
        load_bytes_rate: free.bytes_rate,
        capacity_bytes_rate: free.capacity(over),
        settled_s,
        mean_tps: timeline::mean(&rates),
        variation: timeline::variation(&rates),
        variation_whole: timeline::variation(&timeline.each_second(|m| Some(m.answered))),
        behind_share: quotient(behind.len() as f64, rates.len() as f64),
        variation_behind: timeline::variation(&behind),
        slowest_share: timeline::slowest_share(&rates),
        applied_share: settled.rate(|m| m.applied_lsn).map(|rate| rate / free.capacity(over)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_governor_runs_on_and_off_for_the_same_time() {
        let of = |governor: &str| cases(300.0).into_iter().find(|case| case.0 == governor).map(|case| (case.1, case.2));
        assert_eq!(of("on"), of("off"));
        assert_eq!(of("on"), Some((OVER, 300.0)));
    }
}
