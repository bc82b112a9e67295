//! Room for the trail and the data, and the settings themselves.
//!
//! The trail needs its current segment, those prepared ahead, and what a recovery may have to read, which is kept until
//! a checkpoint. A checkpoint writes changed pages twice. Less than two segments is bad: the server would stand still.

use holdfast_seams::SyncMethod;

use super::Case;
use crate::report::Finding;
use crate::report::Verdict::{Bad, CannotKnow, Good, Warn};

const SPACE: &str = "free space";
const SETTINGS: &str = "trail settings";

pub fn check(case: &Case) -> Finding {
    let Some(measured) = case.measured else {
        return Finding::new(SPACE, CannotKnow, "not asked", "Nothing was measured.");
    };
    let settings = case.settings;
    let free = measured.free_bytes;
    let percent = free.saturating_mul(100) / measured.total_bytes.max(1);
    let found = format!("{} ({percent} %)", size(free));
    let trail = (1 + settings.segments_ready) * settings.segment_bytes + settings.redo_bytes_max;
    if free < 2 * settings.segment_bytes {
        return Finding::new(SPACE, Bad, found, "Not enough for two segments of the trail: commits would stand still.")
            .with_advice(format!("Free {} at least.", size(trail)));
    }
    if free < trail {
        let why = format!("Between two checkpoints the trail may take {} beyond what it has.", size(trail));
        return Finding::new(SPACE, Warn, found, why)
            .with_advice("Free some room, or lower redo_bytes_max in holdfast.toml.");
    }
    if percent < 5 {
        return Finding::new(SPACE, Warn, found, "The disk is nearly full; a full disk stops writes, without loss.")
            .with_advice("Free some room.");
    }
    Finding::new(SPACE, Good, found, format!("The trail takes at most {} at a time.", size(trail)))
}

fn size(bytes: u64) -> String {
    match bytes {
        0..=0x3fff_ffff => format!("{} MiB", bytes >> 20),
        _ => format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30)),
    }
}

pub fn settings(case: &Case) -> Finding {
    let s = case.settings;
    let found = format!(
        "sync_method = {}, segment_bytes = {}, redo_bytes_max = {} ({})",
        s.sync_method.name(),
        s.segment_bytes,
        s.redo_bytes_max,
        s.source
    );
    if let Some(problem) = &s.problem {
        return Finding::new(SETTINGS, Bad, found, format!("The server will not start: {problem}"))
            .with_advice("Correct the file; the other checks were made with the defaults.");
    }
    let writing = case.measured.and_then(|measured| measured.writing.as_ref());
    let fastest = writing.and_then(|w| w.synced.iter().min_by(|a, b| a.1.p50_us.total_cmp(&b.1.p50_us)));
    let ours = writing.and_then(|w| w.of(s.sync_method));
    // Differences of a few per cent are noise on any disk.
    if let (Some((name, best)), Some(ours)) = (fastest, ours)
        && best.p50_us * 1.5 < ours.p50_us
    {
        let why = format!(
            "Here {name} takes {:.0} us for a sync where {} takes {:.0}; all are safe.",
            best.p50_us,
            s.sync_method.name(),
            ours.p50_us
        );
        return Finding::new(SETTINGS, Good, found, why).with_advice(format!("Try sync_method = \"{name}\"."));
    }
    let default = if s.sync_method == SyncMethod::default() { "the default" } else { "set" };
    Finding::new(SETTINGS, Good, found, format!("The sync method is {default}, and no other is much faster here."))
}
