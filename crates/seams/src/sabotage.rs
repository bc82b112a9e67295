//! Ways to break the promise on purpose, so that the power-cut test can be seen to notice each of them.
//!
//! Only a build with the feature `sabotage` has them; then the environment variable `HOLDFAST_SABOTAGE` names one, and
//! the process says so loudly. In every other build [`asked`] is a constant `false`, and what stands behind it is not
//! compiled into the program.

/// One way to break the promise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sabotage {
    /// Nothing is ever synced.
    SkipSync,
    /// Write-through is asked for with fcntl after the open, which Linux ignores without a word.
    FcntlFlag,
    /// A checkpoint writes what is published, whether the trail is durable so far or not.
    StoreAhead,
    /// A checkpoint does not sync what it writes.
    CheckpointNoSync,
}

/// Whether this build was told to break its promise in that way: never.
#[cfg(not(feature = "sabotage"))]
#[inline(always)]
pub const fn asked(_how: Sabotage) -> bool {
    false
}

/// Whether this process was told to break its promise in that way. Panics when it was told something unknown.
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
        other => panic!("HOLDFAST_SABOTAGE: there is no {other}"),
    };
    // Not through the log: the first sync of a new directory comes before there is one.
    eprintln!("SABOTAGED ({value}): this server loses acknowledged commits on purpose");
    Some(how)
}
