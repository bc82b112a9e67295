//! The error that SQLite returns when a call fails.

use rusqlite::ffi;
use std::os::raw::c_int;

/// An extended result code with SQLite's message (sqlite.org/rescode.html).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} (SQLite code {code})")]
pub struct SqliteError {
    /// Extended result code.
    pub code: c_int,
    pub message: String,
    /// Byte offset in the statement's text, where known.
    pub offset: Option<u32>,
}

impl SqliteError {
    /// Converts an error that rusqlite reports.
    pub(super) fn from_rusqlite(error: rusqlite::Error) -> SqliteError {
        match error {
            rusqlite::Error::SqliteFailure(failure, message) => SqliteError {
                code: failure.extended_code,
                message: message.unwrap_or_else(|| failure.to_string()),
                offset: None,
            },
            other => SqliteError { code: ffi::SQLITE_ERROR, message: other.to_string(), offset: None },
        }
    }

    /// The primary result code, without the extension.
    pub fn primary(&self) -> c_int {
        self.code & 0xff
    }

    /// Whether reading or writing the file failed, or the content read is corrupt.
    pub fn is_of_the_file(&self) -> bool {
        matches!(self.primary(), ffi::SQLITE_IOERR | ffi::SQLITE_CORRUPT)
    }

    /// Whether a constraint refused the change, so that the statement had no effect.
    pub fn is_constraint(&self) -> bool {
        self.primary() == ffi::SQLITE_CONSTRAINT
    }
}
