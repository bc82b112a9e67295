//! A standby that was away: stopped while a load runs, then started again, by way of the link that counts. It is
//! measured twice: without any load, which shows how fast it is, and while the load continues.
//!
//! Failure: the results say when a standby has not caught up within the run.

use super::bed::Bed;
use super::pair::{self, CATCH_UP_MAX, Level, Pair, Way};
use super::results::{CatchUp, Results};
use super::timeline::{Clock, Timeline, Watched, watch};
use crate::interrupt;
use crate::pg_client::Client;
use crate::process_cpu;
use crate::schedule::Load;
use anyhow::Context;
use std::time::{Duration, Instant};

/// A standby with no more than this to go has caught up with a load that continues.
const NEAR_BYTES: u64 = 1 << 20;
/// Between looks how far it is.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Measures one pair.
pub fn measure(bed: &Bed<'_>, pair: &mut Pair, results: &mut Results) -> anyhow::Result<()> {
    for load_goes_on in [false, true] {
        crate::interrupt::check()?;
        bed.room()?;
        pair.need_standby()?;
        pair.stop_standby();
        let caught_up = if load_goes_on { under_load(bed, pair)? } else { quiet(bed, pair)? };
        results.catch_ups.push(caught_up);
    }
    Ok(())
}

fn load(bed: &Bed<'_>, pair: &mut Pair, seconds: f64) -> Watched {
    let (clients, options) = (bed.sizes.clients_usual(), Level::Local.options(pair.kind));
    Watched { load: Load::Closed { clients }, seconds, options, epoch: pair.next_epoch(), memory: false }
}

fn quiet(bed: &Bed<'_>, pair: &mut Pair) -> anyhow::Result<CatchUp> {
    let away_s = bed.sizes.away_seconds;
    let from = pair.position()?;
    let watched = load(bed, pair, away_s);
    let seen = watch(pair, watched, |_, _| Ok(()))?;
    bed.progress.advance(away_s);
    let missing_bytes = pair.position()? - from;
    pair.link.mark();
    let start = Instant::now();
    pair.start_standby(Way::Link)?;
    pair.catch_up(CATCH_UP_MAX)?;
    let cpu = process_cpu::tree_time(pair.standby()?.process.pid());
    let (link_bytes, first) = pair.link.since_mark();
    let time = first.context("nothing came over the link")?.elapsed().as_secs_f64();
    Ok(CatchUp {
        server: pair.name().into(),
        load_goes_on: false,
        away_s,
        missing_bytes,
        missing_transactions: seen.measured.answered,
        link_bytes: Some(link_bytes),
        copy_bytes: pair.copied_bytes,
        seconds: Some(start.elapsed().as_secs_f64()),
        catch_up_bytes_rate: missing_bytes as f64 / time,
        catch_up_tps: seen.measured.answered as f64 / time,
        standby_cpu_us: Some(cpu.as_secs_f64() * 1e6 / seen.measured.answered.max(1) as f64),
        load_bytes_rate: missing_bytes as f64 / away_s,
        load_tps: seen.measured.answered as f64 / away_s,
        timeline: Timeline::default(),
    })
}

fn under_load(bed: &Bed<'_>, pair: &mut Pair) -> anyhow::Result<CatchUp> {
    let away_s = bed.sizes.away_seconds;
    let from = pair.position()?;
    let watched = load(bed, pair, 3.0 * away_s);
    let limit_s = 3.0 * away_s;
    let seen = watch(pair, watched, |pair, clock| {
        clock.wait_until(away_s)?;
        let began =
            Reached { at_s: clock.now_s(), answered: clock.answered(), written: pair.position()?, applied: from };
        pair.start_standby(Way::Link)?;
        let (ended, is_near) = near(pair, clock, limit_s)?;
        // How both continue from here.
        clock.wait_until((ended.at_s + 2.0).min(limit_s))?;
        clock.end_load();
        Ok((began, ended, is_near))
    })?;
    bed.progress.advance(limit_s);
    let (began, ended, is_near) = seen.done;
    let (missing_bytes, time) = (began.written - from, ended.at_s - began.at_s);
    let catch_up_bytes_rate = ended.applied.saturating_sub(began.applied) as f64 / time;
    Ok(CatchUp {
        server: pair.name().into(),
        load_goes_on: true,
        away_s,
        missing_bytes,
        missing_transactions: began.answered,
        link_bytes: None,
        copy_bytes: pair.copied_bytes,
        seconds: is_near.then_some(time),
        catch_up_bytes_rate,
        catch_up_tps: catch_up_bytes_rate * began.answered as f64 / missing_bytes.max(1) as f64,
        standby_cpu_us: None,
        load_bytes_rate: (ended.written - began.written) as f64 / time,
        load_tps: (ended.answered - began.answered) as f64 / time,
        timeline: seen.timeline,
    })
}

/// How far everybody was at a time.
struct Reached {
    at_s: f64,
    answered: u64,
    written: u64,
    applied: u64,
}

/// Waits until the standby has caught up, or until `limit_s`; whether it had.
fn near(pair: &Pair, clock: &Clock, limit_s: f64) -> anyhow::Result<(Reached, bool)> {
    let (mut master, mut standby) = (Client::connect(pair.master()?.addr)?, Client::connect(pair.standby()?.addr)?);
    loop {
        interrupt::check()?;
        let (written, applied) = (pair::master_position(&mut master)?, pair::standby_position(&mut standby)?.1);
        let reached = Reached { at_s: clock.now_s(), answered: clock.answered(), written, applied };
        let is_near = applied + NEAR_BYTES >= written;
        if is_near || reached.at_s >= limit_s {
            return Ok((reached, is_near));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
