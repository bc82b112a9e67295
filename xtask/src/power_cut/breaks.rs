//! The ways in which a server built with the feature `sabotage` can be made to break its promise.

use std::fmt;

use clap::ValueEnum;

/// What tells the server.
pub const VARIABLE: &str = "HOLDFAST_SABOTAGE";

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Break {
    /// No sync at all reaches the disk.
    SkipSync,
    /// O_DSYNC is set with fcntl after opening, which Linux ignores.
    FcntlFlag,
    /// Checkpoints write what is published and not yet durable in the trail.
    StoreAhead,
    /// Checkpoints do not sync what they write.
    CheckpointNoSync,
}

impl Break {
    pub fn name(self) -> &'static str {
        match self {
            Break::SkipSync => "skip-sync",
            Break::FcntlFlag => "fcntl-flag",
            Break::StoreAhead => "store-ahead",
            Break::CheckpointNoSync => "checkpoint-no-sync",
        }
    }
}

impl fmt::Display for Break {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
