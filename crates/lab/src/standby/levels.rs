//! What each level costs: the same load with the standby stopped, and with each level, in turns.
//!
//! As fast as it goes shows rates and times. What a standby costs the master in processor time and syncs is seen at an
//! equal rate only: fewer transactions at a time share less. So no standby and local are measured again at a rate
//! that both reach.
//!
//! Failure: a run that fails ends this part at the pair; nothing of it is in the results then.

use super::bed::Bed;
use super::pair::{CATCH_UP_MAX, Level, Pair};
use super::results::{LevelRate, Results};
use crate::drive::Span;
use crate::process_cpu;
use crate::schedule::Load;
use crate::study_results::groups;
use crate::wire_drive::Connections;
use crate::wire_transaction::Variant;
use anyhow::Context;

/// The equal rate, as a share of what a first run without a standby reached.
const EQUAL_RATE_SHARE: f64 = 0.35;

/// Measures one pair, whose standby is made after the first run without one.
pub fn measure(bed: &Bed<'_>, pair: &mut Pair, results: &mut Results) -> anyhow::Result<()> {
    // One run that counts for nothing: what filling the tables has left to do is done, and the rate is known.
    let usual = Load::Closed { clients: bed.sizes.clients_usual() };
    pair.stop_standby();
    let equal_rate = run(bed, pair, Level::None, usual)?.tps * EQUAL_RATE_SHARE;
    let mut runs = Vec::new();
    for round in 1..=bed.sizes.rounds {
        // Every second round the other way round: what changes with the size of the log changes for all.
        let mut levels = Level::ALL;
        if round % 2 == 0 {
            levels.reverse();
        }
        for level in levels {
            bed.progress.now(format!("{}, level {}, round {round}", pair.name(), level.name()));
            match level {
                Level::None => pair.stop_standby(),
                _ => pair.need_standby()?,
            }
            for &clients in &bed.sizes.clients {
                runs.push(run(bed, pair, level, Load::Closed { clients })?);
            }
            if matches!(level, Level::None | Level::Local) {
                let load = Load::Open { rate: equal_rate, clients: bed.sizes.clients_usual() };
                runs.push(run(bed, pair, level, load)?);
            }
        }
    }
    results.levels.extend(medians(runs));
    Ok(())
}

/// One run.
fn run(bed: &Bed<'_>, pair: &mut Pair, level: Level, load: Load) -> anyhow::Result<LevelRate> {
    crate::interrupt::check()?;
    bed.room()?;
    let (options, epoch) = (level.options(pair.kind), pair.next_epoch());
    let (master, standby) = (pair.master()?, pair.standby().ok());
    let mut connections = Connections::open_as(master.addr, Variant::OneMessage, Some(options), load.clients())?;
    let standby_cpu = || standby.map(|standby| process_cpu::tree_time(standby.process.pid()));
    let (before, standby_before) = (master.usage()?, standby_cpu());
    let measured =
        connections.drive(load, Span::of(bed.sizes.point_seconds), epoch).with_context(|| master.process.log_end())?;
    let (syncs, cpu_us) = master.usage()?.since(&before, measured.answered);
    if standby.is_some() {
        pair.catch_up(CATCH_UP_MAX)?;
    }
    let standby_cpu = standby_cpu().zip(standby_before).map(|(after, before)| after.saturating_sub(before));
    pair.answered += measured.answered;
    bed.progress.advance(bed.sizes.point_seconds);
    Ok(LevelRate {
        server: pair.name().into(),
        level: level.name().into(),
        clients: load.clients(),
        offered_rate: match load {
            Load::Open { rate, .. } => Some(rate),
            Load::Closed { .. } => None,
        },
        tps: measured.completed_rate,
        runs: vec![measured.completed_rate],
        mean_us: measured.response.mean_us,
        p50_us: measured.response.p50_us as f64,
        p99_us: measured.response.p99_us as f64,
        master_cpu_us: cpu_us,
        standby_cpu_us: standby_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / measured.answered.max(1) as f64),
        syncs_per_transaction: syncs,
    })
}

/// The runs of each load at each level as one, with the median of each figure.
pub fn medians(runs: Vec<LevelRate>) -> Vec<LevelRate> {
    let same_point = |a: &LevelRate, b: &LevelRate| {
        (&a.level, a.clients, a.offered_rate.is_some()) == (&b.level, b.clients, b.offered_rate.is_some())
    };
    let one = |same: Vec<LevelRate>| {
        let known = |of: fn(&LevelRate) -> Option<f64>| median(same.iter().filter_map(of).collect());
        let of = |of: fn(&LevelRate) -> f64| median(same.iter().map(of).collect()).unwrap_or_default();
        LevelRate {
            tps: of(|r| r.tps),
            runs: same.iter().map(|r| r.tps).collect(),
            mean_us: of(|r| r.mean_us),
            p50_us: of(|r| r.p50_us),
            p99_us: of(|r| r.p99_us),
            master_cpu_us: known(|r| r.master_cpu_us),
            standby_cpu_us: known(|r| r.standby_cpu_us),
            syncs_per_transaction: known(|r| r.syncs_per_transaction),
            ..same[0].clone()
        }
    };
    groups(runs, same_point).into_iter().map(one).collect()
}

/// The value in the middle.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn of_several_runs_each_figure_is_the_median() {
        let run = |tps, p99_us| LevelRate { p99_us, ..sample::rate("holdfast", "local", 40, tps) };
        let other = LevelRate { offered_rate: Some(9.0), ..run(1.0, 1.0) };
        let all = medians(vec![run(30.0, 1.0), other.clone(), run(10.0, 3.0), run(20.0, 2.0)]);
        assert_eq!(all.len(), 2);
        assert_eq!((all[0].tps, all[0].p99_us, all[0].runs.clone()), (20.0, 2.0, vec![30.0, 10.0, 20.0]));
        assert_eq!(all[1], LevelRate { runs: vec![1.0], ..other });
    }
}
