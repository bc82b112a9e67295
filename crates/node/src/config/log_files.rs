//! The settings of log files.

use super::Config;
use std::path::{Path, PathBuf};

/// Log files that rotate.
#[derive(Clone, Debug)]
pub struct LogFiles {
    pub dir: PathBuf,
    /// A file of this size is renamed.
    pub file_bytes_max: u64,
    /// How many renamed files of each log are kept.
    pub files_kept: u32,
}

impl Config {
    /// The log files, unless logs go to stderr. A relative path is one in the data directory.
    pub fn log_files(&self, data: &Path) -> Option<LogFiles> {
        let (file_bytes_max, files_kept) = (self.log_file_bytes_max, self.log_files_kept);
        let dir = Some(self.log_directory.trim()).filter(|dir| !dir.is_empty())?;
        Some(LogFiles { dir: data.join(dir), file_bytes_max, files_kept })
    }
}
