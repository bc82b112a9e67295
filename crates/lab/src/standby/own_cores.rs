//! Each node on a core of its own: the master on the first, the standby on the second, so that a standby takes nothing from
//! its master but what it asks of it. The load comes from the cores that are left; where there are only two, from the
//! standby's, so that the master's core is the master's alone: what the load generator has less of the first core, it has
//! less of in both cases, and the report says how busy both cores are.
//!
//! The rate without a standby and at local, in turns.
//!
//! Failure: with one core there is nothing to compare, which is noted and is no failure. A run that fails ends this part at
//! the pair. All may use every core again in each case.

use super::bed::Bed;
use super::levels::medians;
use super::pair::{CATCH_UP_MAX, Level, Pair};
use super::results::{LevelRate, OwnCores, Results};
use crate::drive::Span;
use crate::schedule::Load;
use crate::wire_drive::Connections;
use crate::wire_transaction::Variant;
use crate::{cores, process_cpu};
use anyhow::Context;
use std::time::{Duration, Instant};

/// Who runs where.
struct Places {
    all: Vec<usize>,
    master: usize,
    standby: usize,
    load: Vec<usize>,
}

impl Places {
    /// Nothing where there are too few.
    fn of(all: Vec<usize>) -> Option<Places> {
        let (master, standby) = (*all.first()?, *all.get(1)?);
        let load = if all.len() > 2 { all[2..].to_vec() } else { vec![standby] };
        Some(Places { all, master, standby, load })
    }

    fn text(&self) -> String {
        let load: Vec<String> = self.load.iter().map(usize::to_string).collect();
        format!("master on core {}, standby on core {}, load on {}", self.master, self.standby, load.join(", "))
    }
}

/// Measures one pair.
pub fn measure(bed: &Bed<'_>, pair: &mut Pair, results: &mut Results) -> anyhow::Result<()> {
    let Some(places) = Places::of(cores::allowed()?) else {
        results.notes.push("Each node on its own core: not measured, there is only one.".into());
        return Ok(());
    };
    pair.need_standby()?;
    let measured = kept(bed, pair, &places);
    // On errors too: the parts after this one have all cores. A standby that was started on one core is restarted.
    pair.stop_standby();
    cores::keep_lab(&places.all)?;
    cores::keep_server(pair.master()?.process.pid(), &places.all)?;
    results.own_cores.extend(measured?);
    Ok(())
}

fn kept(bed: &Bed<'_>, pair: &mut Pair, places: &Places) -> anyhow::Result<Vec<OwnCores>> {
    cores::keep_server(pair.master()?.process.pid(), &[places.master])?;
    cores::keep_lab(&places.load)?;
    let (mut runs, mut busy) = (Vec::new(), Vec::new());
    for round in 1..=bed.sizes.rounds {
        let mut levels = [Level::None, Level::Local];
        if round % 2 == 0 {
            levels.reverse();
        }
        for level in levels {
            bed.progress.now(format!("{}, own cores, level {}, round {round}", pair.name(), level.name()));
            match level {
                Level::None => pair.stop_standby(),
                _ => {
                    pair.need_standby()?;
                    cores::keep_server(pair.standby()?.process.pid(), &[places.standby])?;
                }
            }
            let (rate, of_cores) = run(bed, pair, level, places)?;
            runs.push(rate);
            busy.push((level.name(), of_cores));
        }
    }
    let with_cores = |rate: LevelRate| {
        let mean = |of: fn(&Busy) -> f64| {
            let same: Vec<f64> = busy.iter().filter(|(level, _)| *level == rate.level).map(|(_, b)| of(b)).collect();
            same.iter().sum::<f64>() / same.len().max(1) as f64
        };
        OwnCores {
            places: places.text(),
            master_core_busy: mean(|b| b.master_core),
            master_core_own: mean(|b| b.master_own),
            standby_core_busy: mean(|b| b.standby_core),
            rate,
        }
    };
    Ok(medians(runs).into_iter().map(with_cores).collect())
}

/// Shares of the time of a run.
struct Busy {
    master_core: f64,
    /// The master's own, of its core.
    master_own: f64,
    standby_core: f64,
}

/// When a run began and what had been used up by then.
struct Began {
    at: Instant,
    master_cpu: Duration,
    cores: [Option<(u64, u64)>; 2],
}

impl Began {
    fn now(places: &Places, master: u32) -> Began {
        let cores = [places.master, places.standby].map(cores::busy);
        Began { at: Instant::now(), master_cpu: process_cpu::tree_time(master), cores }
    }

    /// The master's processor time since, and the shares.
    fn until(&self, end: &Began) -> (Duration, Busy) {
        let own = end.master_cpu.saturating_sub(self.master_cpu);
        let share = |core: usize| match (self.cores[core], end.cores[core]) {
            (Some(before), Some(after)) => (after.1 - before.1) as f64 / (after.0 - before.0).max(1) as f64,
            _ => 0.0,
        };
        let master_own = own.as_secs_f64() / (end.at - self.at).as_secs_f64();
        (own, Busy { master_core: share(0), master_own, standby_core: share(1) })
    }
}

fn run(bed: &Bed<'_>, pair: &mut Pair, level: Level, places: &Places) -> anyhow::Result<(LevelRate, Busy)> {
    bed.room()?;
    let (clients, seconds) = (bed.sizes.clients_usual(), bed.sizes.point_seconds);
    let (options, epoch) = (level.options(pair.kind), pair.next_epoch());
    let (master, standby) = (pair.master()?, pair.standby().ok());
    let mut connections = Connections::open_as(master.addr, Variant::OneMessage, Some(options), clients)?;
    let standby_cpu = || standby.map(|standby| process_cpu::tree_time(standby.process.pid()));
    let (standby_before, began) = (standby_cpu(), Began::now(places, master.process.pid()));
    let load = Load::Closed { clients };
    let measured = connections.drive(load, Span::of(seconds), epoch).with_context(|| master.process.log_end())?;
    let (master_cpu, busy) = began.until(&Began::now(places, master.process.pid()));
    if standby.is_some() {
        pair.catch_up(CATCH_UP_MAX)?;
    }
    let standby_cpu = standby_cpu().zip(standby_before).map(|(after, before)| after.saturating_sub(before));
    let each = |time: Duration| time.as_secs_f64() * 1e6 / measured.answered.max(1) as f64;
    let rate = LevelRate {
        server: pair.name().into(),
        level: level.name().into(),
        clients,
        offered_rate: None,
        tps: measured.completed_rate,
        runs: vec![measured.completed_rate],
        mean_us: measured.response.mean_us,
        p50_us: measured.response.p50_us as f64,
        p99_us: measured.response.p99_us as f64,
        master_cpu_us: Some(each(master_cpu)),
        standby_cpu_us: standby_cpu.map(each),
        syncs_per_transaction: None,
    };
    pair.answered += measured.answered;
    bed.progress.advance(seconds);
    Ok((rate, busy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_of_the_run() {
        let at = Instant::now();
        let began = Began { at, master_cpu: Duration::from_secs(5), cores: [Some((100, 40)), None] };
        let end = Began {
            at: at + Duration::from_secs(2),
            master_cpu: Duration::from_secs(6),
            cores: [Some((300, 190)), Some((1, 1))],
        };
        let (own, busy) = began.until(&end);
        assert_eq!((own, busy.master_own), (Duration::from_secs(1), 0.5));
        assert_eq!((busy.master_core, busy.standby_core), (0.75, 0.0));
    }

    #[test]
    fn the_masters_core_is_its_own() {
        assert!(Places::of(vec![3]).is_none());
        assert_eq!(Places::of(vec![0, 1]).unwrap().load, [1]);
        let places = Places::of(vec![2, 3, 6, 7]).unwrap();
        assert_eq!((places.master, places.standby, places.load), (2, 3, vec![6, 7]));
    }
}
