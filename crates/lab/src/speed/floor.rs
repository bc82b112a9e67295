//! The physical floor of a row: how fast it would be at a server that does nothing but what no server can leave out.
//!
//! | what cannot be left out | measured by |
//! |---|---|
//! | the client's messages | pgbench with the row's script against the [`Echo`] server |
//! | durable bytes | one write and sync after the other, each of the bytes that Holdfast's trail takes for one transaction of every client: a client waits for its commit, so no sync carries more |
//!
//! The lower of the two rates is the floor. A large commit's floor is the time of one write and sync of its bytes.
//!
//! The disk and the machine change during a run as they do for the servers: the floor is measured in every round, and the
//! medians count.
//!
//! Failure: an echo or a disk that cannot be measured is a reason that the row shows.

use super::arithmetic::median;
use super::echo::Echo;
use super::results::{Floor, Line, SyncFloor};
use super::row::{Row, Sizes, Unit};
use crate::commit::sync_rate;
use crate::pgbench_run::Run;
use holdfast_seams::SyncMethod;
use std::path::Path;
use std::time::Duration;

/// How long syncs are measured in a round.
const SYNC_SPAN: Duration = Duration::from_millis(1000);

/// The medians of the rounds' floors; nothing without any.
pub fn medians(floors: &[Floor]) -> Option<Floor> {
    let of = |value: fn(&Floor) -> Option<f64>| median(floors.iter().filter_map(value).collect());
    let sync =
        |value: fn(&SyncFloor) -> f64| median(floors.iter().filter_map(|f| f.sync.as_ref()).map(value).collect());
    let sync = sync(|s| s.bytes as f64).zip(sync(|s| s.syncs_a_second)).zip(sync(|s| s.rate));
    Some(Floor {
        value: of(|floor| Some(floor.value))?,
        echo_rate: of(|floor| floor.echo_rate),
        echo_cpu_us: of(|floor| floor.echo_cpu_us),
        sync: sync.map(|((bytes, syncs_a_second), rate)| SyncFloor { bytes: bytes as u64, syncs_a_second, rate }),
    })
}

/// One round's floor. What a transaction of a row makes durable is not known before it was measured: its line has it.
pub fn measure(row: Row, line: &Line, sizes: &Sizes, seconds: u64, dir: &Path) -> anyhow::Result<Option<Floor>> {
    match row.unit() {
        Unit::Seconds => large_commit(sizes, dir).map(Some),
        // What a scan of the log cannot leave out depends on how the log is stored.
        Unit::PerSecond if row == Row::GroupBy => Ok(None),
        Unit::PerSecond => transactions(row, line, seconds, dir).map(Some),
    }
}

fn transactions(row: Row, line: &Line, seconds: u64, dir: &Path) -> anyhow::Result<Floor> {
    let echo = Echo::start()?;
    let ((mode, script), clients) = (row.script(), row.clients());
    let printed = Run { addr: echo.addr, mode, clients, seconds, script, dir }.start()?.finish()?;
    // The echo server reads its clock when it has nothing to do.
    std::thread::sleep(Duration::from_millis(150));
    let echo_cpu_us = echo.cpu().as_secs_f64() * 1e6 / printed.transactions.max(1) as f64;
    let bytes = line.holdfast.and_then(|figures| figures.log_bytes_per_transaction).filter(|bytes| *bytes >= 1.0);
    let sync = bytes.map(|bytes| sync_floor(bytes, clients, dir)).transpose()?;
    let value = sync.map_or(printed.tps, |sync| sync.rate.min(printed.tps));
    Ok(Floor { value, echo_rate: Some(printed.tps), echo_cpu_us: Some(echo_cpu_us), sync })
}

/// The most commits a second that these clients can have made durable.
fn sync_floor(bytes_per_transaction: f64, clients: usize, dir: &Path) -> anyhow::Result<SyncFloor> {
    let bytes = in_blocks(bytes_per_transaction * clients as f64);
    let syncs = sync_rate::rate(&dir.join("floor"), SyncMethod::default(), bytes, SYNC_SPAN)?;
    Ok(SyncFloor { bytes: bytes as u64, syncs_a_second: syncs, rate: syncs * clients as f64 })
}

fn large_commit(sizes: &Sizes, dir: &Path) -> anyhow::Result<Floor> {
    let bytes = in_blocks(sizes.large_bytes as f64);
    let syncs = sync_rate::rate(&dir.join("floor"), SyncMethod::default(), bytes, Duration::ZERO)?;
    let sync = SyncFloor { bytes: bytes as u64, syncs_a_second: syncs, rate: syncs };
    Ok(Floor { value: 1.0 / syncs, echo_rate: None, echo_cpu_us: None, sync: Some(sync) })
}

/// Rounded up to whole blocks of the disk, at least one.
fn in_blocks(bytes: f64) -> usize {
    (bytes.ceil().max(1.0) as usize).next_multiple_of(sync_rate::BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_whole_blocks() {
        assert_eq!([0.0, 1.0, 4096.0, 4096.5].map(in_blocks), [4096, 4096, 4096, 8192]);
    }

    #[test]
    fn the_medians_of_the_rounds_count() {
        let floor = |value: f64| {
            let sync = Some(SyncFloor { bytes: 4096, syncs_a_second: value / 40.0, rate: value });
            Floor { value, echo_rate: Some(value * 2.0), echo_cpu_us: None, sync }
        };
        let found = medians(&[floor(800.0), floor(8000.0), floor(400.0)]);
        assert_eq!(found, Some(floor(800.0)));
        assert_eq!(medians(&[]), None);
    }

    #[test]
    fn a_sync_carries_a_transaction_of_every_client() {
        let dir = tempfile::tempdir().unwrap();
        let floor = sync_floor(1000.0, 40, dir.path()).unwrap();
        assert_eq!(floor.bytes, 40_960);
        assert!((floor.rate / floor.syncs_a_second - 40.0).abs() < 1e-9, "{floor:?}");
    }
}
