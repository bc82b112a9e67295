//! What views and metrics show of the server's backups.
//!
//! The age of the newest restorable moment: how old the oldest change is that would be lost with this machine. Everything below
//! the last dump's LSN can be restored, and with an archive everything below its end. 0: there is no later change.
//!
//! Failure: where the trail no longer has the first change behind that position, or cannot be read there, the age is that of the
//! last dump.

use super::record::{DrillDone, DumpDone, Failure};
use crate::clock::{now_us, server_start_us};
use holdfast_engine::Engine;
use holdfast_trail::{BoxcarKind, Shipped, TrailError};
use holdfast_types::Lsn;

/// See the module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BackupReport {
    /// Where dumps go.
    pub place: String,
    /// What is being done, in one word.
    pub state: &'static str,
    pub dump: Option<DumpDone>,
    pub dumps: u64,
    pub dump_failures: u64,
    pub last_failure: Option<Failure>,
    pub next_dump_unix_ms: Option<u64>,
    pub drill: Option<DrillDone>,
    pub drills: u64,
    pub drill_failures: u64,
    pub next_drill_unix_ms: Option<u64>,
    /// Everything below can be restored.
    pub restorable_lsn: Option<u64>,
    pub restorable_age_ms: Option<u64>,
}

/// Up to where a restore gets, with that dump and this server's archive.
pub fn restorable(engine: &Engine, dump: &DumpDone) -> Lsn {
    let archived = engine.waiting_for_archive().map_or(Lsn(0), |waiting| waiting.archived);
    archived.max(Lsn(dump.lsn))
}

/// How old the first change behind `lsn` is, milliseconds.
pub fn age_ms(engine: &Engine, lsn: Lsn, dump: &DumpDone) -> u64 {
    let trail = engine.trail();
    if trail.durable() <= lsn {
        return 0;
    }
    let first = if lsn < trail.first() { None } else { trail.read_shipped(lsn).ok() };
    let found = match first {
        None => Some(dump.at_unix_ms),
        Some(boxcars) => first_change(boxcars, dump),
    };
    found.map_or(0, |written| now_ms().saturating_sub(written))
}

/// When the first change was written. Proofs and ends of segments change nothing.
fn first_change(boxcars: impl Iterator<Item = Result<Shipped, TrailError>>, dump: &DumpDone) -> Option<u64> {
    for boxcar in boxcars {
        match boxcar {
            Ok(boxcar) if boxcar.kind == BoxcarKind::Data => return Some(boxcar.written_unix_ms()),
            Ok(_) => {}
            // Whether everything is restorable is not known.
            Err(error) => {
                tracing::warn!("the age of the newest restorable moment is that of the last dump: {error}");
                return Some(dump.at_unix_ms);
            }
        }
    }
    None
}

/// The age before there was any dump.
pub fn age_without_dump_ms() -> u64 {
    u64::try_from((now_us() - server_start_us()) / 1000).unwrap_or_default()
}

/// Milliseconds since 1970 UTC.
pub fn now_ms() -> u64 {
    u64::try_from(now_us() / 1000).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trail_that_cannot_be_read_is_not_taken_for_one_without_changes() {
        let dump = DumpDone { at_unix_ms: 7, ..DumpDone::default() };
        let damaged = || TrailError::NotABoundary { lsn: Lsn(4096) };
        assert_eq!(first_change([Err(damaged())].into_iter(), &dump), Some(7));
        assert_eq!(first_change(std::iter::empty(), &dump), None);
    }
}
