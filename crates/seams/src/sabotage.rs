//! Deliberate violations of durability, so that the power-cut test can be shown to detect each of them.
//!
//! Only a build with the feature `sabotage` contains them. There the environment variable `HOLDFAST_SABOTAGE` selects
//! one, and the process prints a warning. In every other build [`asked`] is a constant `false`, and the code behind it
//! is not compiled into the program.

/// One way to violate durability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// Nothing is ever synced.
    SkipSync,
    /// Write-through is requested with fcntl after the open, which Linux silently ignores.
    FcntlFlag,
    /// A checkpoint writes everything published, even if the trail is not durable that far.
    StoreAhead,
    /// A checkpoint does not sync what it writes.
    CheckpointNoSync,
}

/// Whether this violation is selected: never in this build.
#[cfg(not(feature = "sabotage"))]
#[inline(always)]
pub const fn asked(_how: Sabotage) -> bool {
    false
}

/// Whether this violation is selected. Panics when the variable has an unknown value.
#[cfg(feature = "sabotage")]
pub fn asked(how: Sabotage) -> bool {
    static ASKED: std::sync::OnceLock<Option<Sabotage>> = std::sync::OnceLock::new();
    *ASKED.get_or_init(read) == Some(how)
}

#[cfg(feature = "sabotage")]
fn read() -> Option<Sabotage> {
    let value = std::env::var("HOLDFAST_SABOTAGE").ok()?;
    let how = match value.as_str() {
        "skip-sync" => Sabotage::SkipSync,
        "fcntl-flag" => Sabotage::FcntlFlag,
        "store-ahead" => Sabotage::StoreAhead,
        "checkpoint-no-sync" => Sabotage::CheckpointNoSync,
        other => panic!("HOLDFAST_SABOTAGE: unknown value {other}"),
    };
    // Not through the log, because the first sync of a new directory happens before the log exists.
    eprintln!("SABOTAGED ({value}): this server loses acknowledged commits on purpose");
    Some(how)
}
