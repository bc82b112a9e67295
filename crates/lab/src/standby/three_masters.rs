//! Three masters whose standbys are on one node, as the paper has it: an equal load to each, and what the standbys take of
//! the processors for each transaction and how far they are behind. Beside it one master with the load of one, and one
//! with the load of all three, as processor time a transaction falls where more transactions share a sync.
//!
//! The masters run on the same machine, as everything does here; so the load is a small one that all reach.
//!
//! Failure: a master or standby that does not start, or a run that fails, ends this part at the pair. The two other masters
//! are gone at its end.

use super::bed::Bed;
use super::pair::{CATCH_UP_MAX, Level, Pair};
use super::results::{Results, SharedNode};
use super::timeline::{Seen, Watched, watch};
use crate::process_cpu;
use crate::schedule::Load;
use anyhow::Context;
use std::time::Duration;

/// Masters to one node.
pub const MASTERS: usize = 3;
/// Each one's load, as a share of what one master with its standby reaches when it has the machine to itself.
const LOAD_SHARE: f64 = 0.2;

/// Measures one pair, and with it two others of its kind.
pub fn measure(bed: &Bed<'_>, pair: &mut Pair, results: &mut Results) -> anyhow::Result<()> {
    pair.need_standby()?;
    let usual = Load::Closed { clients: bed.sizes.clients_usual() };
    let free = run(bed, &mut [&mut *pair], usual, bed.sizes.point_seconds)?;
    let rate = free.tps * LOAD_SHARE;
    let load = |rate| Load::Open { rate, clients: bed.sizes.clients_usual() };
    let seconds = bed.sizes.shared_seconds;
    let all = rate * MASTERS as f64;
    let mut measured = Vec::new();
    for rate in [rate, all] {
        bed.progress.now(format!("{}, one master, {rate:.0} a second", pair.name()));
        measured.push(run(bed, &mut [&mut *pair], load(rate), seconds)?);
    }
    let mut others = (1..MASTERS).map(|_| another(bed, pair)).collect::<anyhow::Result<Vec<Pair>>>()?;
    bed.progress.now(format!("{}, {MASTERS} masters, {rate:.0} a second each", pair.name()));
    let mut pairs: Vec<&mut Pair> = std::iter::once(&mut *pair).chain(&mut others).collect();
    measured.push(run(bed, &mut pairs, load(rate), seconds)?);
    results.shared_node.extend(measured);
    for (other, number) in others.iter_mut().zip(2..) {
        bed.compare(other, &format!(" (master {number} of {MASTERS})"), results)?;
    }
    Ok(())
}

/// A master of the same kind with as many rows, and its standby.
fn another(bed: &Bed<'_>, pair: &Pair) -> anyhow::Result<Pair> {
    bed.room()?;
    bed.progress.now(format!("{}, making another master and its standby", pair.name()));
    let mut another = Pair::start(pair.kind, &bed.study.program, bed.scratch, bed.sizes.log_rows, &|_| ())?;
    another.need_standby()?;
    Ok(another)
}

/// Puts an equal load on each of the masters at once.
fn run(bed: &Bed<'_>, pairs: &mut [&mut Pair], load: Load, seconds: f64) -> anyhow::Result<SharedNode> {
    bed.room()?;
    let before = cpu(pairs)?;
    let seen: Vec<anyhow::Result<Seen<()>>> = std::thread::scope(|scope| {
        let start = |pair| scope.spawn(|| one(pair, load, seconds));
        let threads: Vec<_> = pairs.iter_mut().map(|pair| start(&mut **pair)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a load panicked")))
        };
        threads.into_iter().map(join).collect()
    });
    let seen = seen.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    for pair in pairs.iter() {
        pair.catch_up(CATCH_UP_MAX)?;
    }
    let after = cpu(pairs)?;
    bed.progress.advance(seconds);
    let answered: u64 = seen.iter().map(|s| s.measured.answered).sum();
    let each = |(before, after): (Duration, Duration)| (after - before).as_secs_f64() * 1e6 / answered.max(1) as f64;
    let lags: Vec<u64> = seen.iter().flat_map(|s| s.timeline.0.iter().filter_map(|m| m.lag_bytes())).collect();
    let first = pairs.first().context("there is no master")?;
    Ok(SharedNode {
        server: first.name().into(),
        masters: pairs.len(),
        offered_rate: match load {
            Load::Open { rate, .. } => rate,
            Load::Closed { .. } => 0.0,
        },
        tps: seen.iter().map(|s| s.measured.completed_rate).sum(),
        p99_us: seen.iter().map(|s| s.measured.response.p99_us).max().unwrap_or_default() as f64,
        master_cpu_us: each((before.0, after.0)),
        standby_cpu_us: each((before.1, after.1)),
        lag_mean_bytes: lags.iter().sum::<u64>() / lags.len().max(1) as u64,
        lag_most_bytes: lags.iter().copied().max().unwrap_or_default(),
    })
}

fn one(pair: &mut Pair, load: Load, seconds: f64) -> anyhow::Result<Seen<()>> {
    let options = Level::Local.options(pair.kind);
    let watched = Watched { load, seconds, options, epoch: pair.next_epoch(), memory: false };
    watch(pair, watched, |_, _| Ok(()))
}

/// Processor time of all masters and of all standbys so far.
fn cpu(pairs: &[&mut Pair]) -> anyhow::Result<(Duration, Duration)> {
    let mut sum = (Duration::ZERO, Duration::ZERO);
    for pair in pairs {
        sum.0 += process_cpu::tree_time(pair.master()?.process.pid());
        sum.1 += process_cpu::tree_time(pair.standby()?.process.pid());
    }
    Ok(sum)
}
