//! The server's settings that matter here, from the program that read its configuration.

use holdfast_seams::SyncMethod;

use crate::look::Survey;

#[derive(Clone, Debug)]
pub struct Settings {
    /// Where they come from: a file's name, or that there is none yet.
    pub source: String,
    /// Why the configuration cannot be read; the others are defaults then.
    pub problem: Option<String>,
    pub sync_method: SyncMethod,
    pub segment_bytes: u64,
    /// Segments the trail keeps prepared ahead.
    pub segments_ready: u64,
    /// The trail that a recovery may have to read, which is kept until a checkpoint.
    pub redo_bytes_max: u64,
    pub commit_delay: Delay,
    /// `None`: there is none.
    pub mirror: Option<Mirror>,
}

/// The second data directory on another disk.
#[derive(Clone, Debug)]
pub struct Mirror {
    pub path: String,
    /// What is under it, or under the directory it will be in; nothing when neither is there.
    pub survey: Option<Survey>,
}

/// How long a group commit waits for more transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Delay {
    /// Up to half of what a sync takes, while it pays.
    Auto,
    Off,
    Fixed {
        us: u64,
    },
}
