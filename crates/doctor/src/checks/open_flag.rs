//! Did `O_DIRECT | O_DSYNC`, or what the settings say, really take effect?
//!
//! A flag that is set with fcntl after open is ignored by Linux (kernel bug 5994); the server gives it at open. What
//! then counts: the kernel shows the flags (F_GETFL), the file takes direct I/O (statx), and a write with the flag takes
//! longer than one into the page cache.

use holdfast_seams::SyncMethod;

use super::Case;
use super::latency::shown;
use crate::probe::Writing;
use crate::report::Finding;
use crate::report::Verdict::{Bad, CannotKnow, Good, Warn};

const NAME: &str = "open flag";

/// A synced write that takes less than this many writes into the page cache went no further than that. The fastest are
/// compared: what else the machine does only makes some slower.
const CACHED_RATIO_MIN: f64 = 1.5;

pub fn check(case: &Case) -> Finding {
    let method = case.settings.sync_method;
    let Some(measured) = case.measured else {
        return Finding::new(NAME, CannotKnow, "not tried", "Nothing was written.");
    };
    let Some(writing) = &measured.writing else {
        let why = measured.not_written.clone().unwrap_or_default();
        return Finding::new(NAME, Bad, "the probe file could not be written", why)
            .with_advice("Make the directory writable for the server's user, or free some room.");
    };
    if matches!(method, SyncMethod::Fdatasync | SyncMethod::Fsync) {
        return explicit(method, writing);
    }
    let open = &writing.open;
    if method == SyncMethod::OpenDirectDsync && !(open.direct && open.dsync) {
        let unsynced = compared(method, writing, "O_DIRECT|O_DSYNC not kept".to_owned());
        return if unsynced.verdict == Bad { unsynced } else { not_kept(writing) };
    }
    let found = format!("{}{}", if open.direct { "O_DIRECT|O_DSYNC kept" } else { "kept" }, alignment(open.align));
    if open.align == Some((0, 0)) && method == SyncMethod::OpenDirectDsync {
        let why = "The flag is shown, but the file does no direct I/O (statx): it goes through the page cache, and O_DSYNC \
                   makes it durable.";
        return Finding::new(NAME, Warn, found, why)
            .with_advice("Safe; sync_method = \"fdatasync\" may be faster here.");
    }
    compared(method, writing, found)
}

fn alignment(align: Option<(u32, u32)>) -> String {
    align.map_or(String::new(), |(memory, offset)| {
        format!(", aligned to {memory} bytes in memory and {offset} in the file")
    })
}

fn explicit(method: SyncMethod, writing: &Writing) -> Finding {
    compared(method, writing, format!("none needed: the settings say {}", method.name()))
}

fn not_kept(writing: &Writing) -> Finding {
    let open = &writing.open;
    if open.direct || open.dsync {
        let lost = if open.direct { "O_DSYNC" } else { "O_DIRECT" };
        let why =
            format!("The open was granted and {lost} dropped silently. The server refuses to start on such a disk.");
        return Finding::new(NAME, Bad, format!("{lost} dropped"), why)
            .with_advice("Set sync_method = \"fdatasync\" in holdfast.toml, or use another disk.");
    }
    let why = open.refused.clone().unwrap_or_else(|| "The kernel shows neither flag.".to_owned());
    Finding::new(
        NAME,
        Warn,
        format!("O_DIRECT refused ({why})"),
        "The server then goes through the page cache with O_DSYNC.",
    )
    .with_advice("Safe, if O_DSYNC is; sync_method = \"fdatasync\" says what you get.")
}

/// With the sync a write must take longer than without.
fn compared(method: SyncMethod, writing: &Writing, found: String) -> Finding {
    let Some(times) = writing.of(method) else {
        return Finding::new(NAME, Bad, found, format!("Writing with {} failed.", method.name()))
            .with_advice("Choose another sync_method in holdfast.toml.");
    };
    let ratio = times.min_us / writing.cached.min_us.max(0.1);
    let (with, without) = (shown(times.min_us), shown(writing.cached.min_us));
    let found = format!("{found}; the fastest synced write takes {with}, into the page cache {without}");
    if ratio < CACHED_RATIO_MIN {
        return Finding::new(NAME, Bad, found, "A synced write costs no more than one into memory: nothing is synced.")
            .with_advice("Find the layer that drops the sync (see layers), or use another disk.");
    }
    Finding::new(NAME, Good, found, "The flag is in force, and it costs time.")
}
