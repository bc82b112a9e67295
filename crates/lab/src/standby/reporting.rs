//! A reporting query on the standby, again and again, while the master has its load: what each costs the other.
//!
//! Failure: a query that fails ends this part at the pair.

use super::bed::Bed;
use super::pair::{Level, Pair};
use super::results::{Reporting, Results};
use super::timeline::{Clock, Watched, watch};
use crate::interrupt;
use crate::pg_client::Client;
use crate::schedule::Load;
use crate::workload::REPORT_SQL;
use std::time::Instant;

/// Measures one pair.
pub fn measure(bed: &Bed<'_>, pair: &mut Pair, results: &mut Results) -> anyhow::Result<()> {
    pair.need_standby()?;
    let alone_ms = query_ms(&mut Client::connect(pair.standby()?.addr)?)?;
    let without = load(bed, pair, |_, _| Ok(Vec::new()))?;
    let with = load(bed, pair, |pair, clock| {
        let mut client = Client::connect(pair.standby()?.addr)?;
        let mut times_ms = Vec::new();
        while clock.now_s() < bed.sizes.report_seconds {
            interrupt::check()?;
            times_ms.push(query_ms(&mut client)?);
        }
        Ok(times_ms)
    })?;
    let log_rows = pair.master()?.log_rows()?;
    results.reporting.push(Reporting {
        server: pair.name().into(),
        log_rows,
        alone_ms,
        queries: with.2.len(),
        mean_ms: with.2.iter().sum::<f64>() / with.2.len().max(1) as f64,
        tps_without: without.0,
        tps_with: with.0,
        lag_most_without_bytes: without.1,
        lag_most_with_bytes: with.1,
    });
    Ok(())
}

/// The load's rate, the most lag, and what `meanwhile` gives.
fn load(
    bed: &Bed<'_>,
    pair: &mut Pair,
    meanwhile: impl FnOnce(&mut Pair, &Clock) -> anyhow::Result<Vec<f64>>,
) -> anyhow::Result<(f64, Option<u64>, Vec<f64>)> {
    bed.room()?;
    let (clients, seconds) = (bed.sizes.clients_usual(), bed.sizes.report_seconds);
    let (options, epoch) = (Level::Local.options(pair.kind), pair.next_epoch());
    let watched = Watched { load: Load::Closed { clients }, seconds, options, epoch, memory: false };
    let seen = watch(pair, watched, meanwhile)?;
    bed.progress.advance(seconds);
    Ok((seen.measured.answered as f64 / seconds, seen.timeline.most_lag_bytes(), seen.done))
}

fn query_ms(client: &mut Client) -> anyhow::Result<f64> {
    let start = Instant::now();
    client.run(REPORT_SQL)?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}
