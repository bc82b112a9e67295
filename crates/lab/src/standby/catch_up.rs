//! A standby that was away: stopped while a load runs, then started again, by way of the link that counts. Once nobody
//! writes meanwhile, which shows how fast it is; once the load goes on.

use super::bed::Bed;
use super::pair::{self, CATCH_UP_MAX, Level, Pair, Way};
use super::results::{CatchUp, Results};
use super::timeline::{Clock, Timeline, Watched, watch};
use crate::interrupt;
use crate::pg_client::Client;
use crate::schedule::Load;
use anyhow::Context;
use std::time::{Duration, Instant};

/// A standby with no more than this to go has caught up with a load that goes on.
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
    let (clients, options) = (bed.sizes.clients_usual(), Level::Cold.options(pair.kind));
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
        load_bytes_rate: missing_bytes as f64 / away_s,
        load_tps: seen.measured.answered as f64 / away_s,
        timeline: Timeline::default(),
    })
}

fn under_load(bed: &Bed<'_>, pair: &mut Pair) -> anyhow::Result<CatchUp> {
    let away_s = bed.sizes.away_seconds;
    let from = pair.position()?;
    let watched = load(bed, pair, 3.0 * away_s);
    let seen = watch(pair, watched, |pair, clock| {
        clock.wait_until(away_s)?;
        let missing = (pair.position()? - from, clock.answered());
        pair.link.mark();
        let began_s = clock.now_s();
        pair.start_standby(Way::Link)?;
        let ended_s = near(pair, clock, 3.0 * away_s)?;
        // A look at how both go on from here.
        clock.wait_until((ended_s.unwrap_or(f64::INFINITY) + 2.0).min(3.0 * away_s))?;
        clock.end_load();
        Ok((missing, began_s, ended_s))
    })?;
    bed.progress.advance(3.0 * away_s);
    let ((missing_bytes, missing_transactions), began_s, ended_s) = seen.done;
    let timeline = seen.timeline;
    let since = timeline.between(began_s, ended_s.unwrap_or(f64::INFINITY));
    let bytes_a_transaction = missing_bytes as f64 / missing_transactions.max(1) as f64;
    let catch_up_bytes_rate = since.rate(|m| m.applied_lsn).unwrap_or_default();
    Ok(CatchUp {
        server: pair.name().into(),
        load_goes_on: true,
        away_s,
        missing_bytes,
        missing_transactions,
        link_bytes: None,
        copy_bytes: pair.copied_bytes,
        seconds: ended_s.map(|ended_s| ended_s - began_s),
        catch_up_bytes_rate,
        catch_up_tps: catch_up_bytes_rate / bytes_a_transaction,
        load_bytes_rate: since.rate(|m| Some(m.master_lsn)).unwrap_or_default(),
        load_tps: since.rate(|m| Some(m.answered)).unwrap_or_default(),
        timeline,
    })
}

/// When the standby had caught up; nothing when it had not by `limit_s`.
fn near(pair: &Pair, clock: &Clock, limit_s: f64) -> anyhow::Result<Option<f64>> {
    let (mut master, mut standby) = (Client::connect(pair.master()?.addr)?, Client::connect(pair.standby()?.addr)?);
    while clock.now_s() < limit_s {
        interrupt::check()?;
        let position = pair::master_position(&mut master)?;
        if pair::standby_position(&mut standby)?.1 + NEAR_BYTES >= position {
            return Ok(Some(clock.now_s()));
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(None)
}
