//! One transaction of 174 MiB in mid-load, as large as the paper's 340,000 blocks: what it does to the others' rate, to
//! the standby's lag, and to both nodes' memory.
//!
//! Failure: a transaction that is refused, or a standby that does not show it in time, is an error of this part.

use super::bed::Bed;
use super::pair::{CATCH_UP_MAX, Level, Pair};
use super::results::{LargeTransaction, Results};
use super::timeline::{Timeline, Watched, watch};
use crate::pg_client::Client;
use crate::schedule::Load;
use crate::workload;

/// The transaction begins after this share of the load.
const BEGINS_AT_SHARE: f64 = 0.3;
/// Bytes of a row's other columns, about.
const KEY_BYTES: u64 = 12;

/// Measures one pair.
pub fn measure(bed: &Bed<'_>, pair: &mut Pair, results: &mut Results) -> anyhow::Result<()> {
    pair.need_standby()?;
    bed.room()?;
    let (seconds, epoch) = (bed.sizes.large_seconds, pair.next_epoch());
    let body = workload::log_body();
    let rows = bed.sizes.large_bytes / (body.len() as u64 + KEY_BYTES);
    let clients = bed.sizes.clients_usual();
    let options = Level::Local.options(pair.kind);
    let watched = Watched { load: Load::Closed { clients }, seconds, options, epoch, memory: true };
    let seen = watch(pair, watched, |pair, clock| {
        let mut client = Client::connect(pair.master()?.addr)?;
        client.run(&format!("set {}", Level::Local.options(pair.kind).trim_start_matches("-c ")))?;
        clock.wait_until(seconds * BEGINS_AT_SHARE)?;
        let began_s = clock.now_s();
        let lines = (0..rows).map(|row| format!("{}\t{body}", (epoch << 32) + row));
        client.copy_in("copy bulk from stdin", lines)?;
        let ended_s = clock.now_s();
        pair.catch_up(CATCH_UP_MAX)?;
        Ok((began_s, ended_s, clock.now_s()))
    })?;
    bed.progress.advance(seconds);
    let (timeline, (began_s, ended_s, shown_s)) = (seen.timeline, seen.done);
    let before = timeline.between(0.0, began_s);
    let meanwhile = timeline.between(began_s, ended_s);
    let most = |part: &Timeline, of: fn(&super::timeline::Moment) -> Option<u64>| part.0.iter().filter_map(of).max();
    let slowest = timeline.between(began_s, shown_s).each_second(|m| Some(m.answered));
    results.large.push(LargeTransaction {
        server: pair.name().into(),
        rows,
        row_bytes: bed.sizes.large_bytes,
        began_s,
        ended_s,
        shown_s,
        tps_before: before.rate(|m| Some(m.answered)),
        tps_meanwhile: meanwhile.rate(|m| Some(m.answered)),
        tps_slowest: slowest.iter().map(|r| r.1).reduce(f64::min),
        lag_most_bytes: timeline.most_lag_bytes(),
        master_memory_before_bytes: most(&before, |m| m.master_memory_bytes),
        master_memory_most_bytes: most(&timeline, |m| m.master_memory_bytes),
        standby_memory_before_bytes: most(&before, |m| m.standby_memory_bytes),
        standby_memory_most_bytes: most(&timeline, |m| m.standby_memory_bytes),
        timeline,
    });
    Ok(())
}
