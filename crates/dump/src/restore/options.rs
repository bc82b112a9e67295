//! What a restore is asked for, and what it reports while it works.

use super::error::RestoreError;
use super::target::Target;
use std::io;
use std::path::Path;

/// The folder of the databases' files.
pub(super) const VOLUMES: &str = "volumes";

/// What is restored, and where to.
#[derive(Clone, Copy)]
pub struct RestoreOptions<'a> {
    pub dir: &'a Path,
    pub target: Target,
    /// The archive's URL; `None`: the one in the dump's settings.
    pub archive: Option<&'a str>,
    /// A dump by its name; `None`: the newest one that the target allows.
    pub dump: Option<&'a str>,
    /// A trail, where the place has dumps of several.
    pub trail: Option<&'a str>,
    /// Threads that fetch.
    pub threads: usize,
}

/// How far a restore is.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Pages {
        done_bytes: u64,
        total_bytes: u64,
    },
    /// Everything below `lsn` is applied; the newest commit so far is of `unix_ms`.
    Trail {
        /// Where the trail that is applied begins.
        from: u64,
        lsn: u64,
        end: u64,
        unix_ms: u64,
    },
}

/// An error of a file, for `map_err`.
pub(super) fn io_error<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> RestoreError + 'a {
    move |source| RestoreError::Io { what, path: path.display().to_string(), source }
}
