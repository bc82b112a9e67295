//! Errors of reading the trail's records as transactions.

use holdfast_types::Lsn;
use holdfast_types::record::DecodeError;
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum ChangesError {
    #[error("the boxcar at LSN {lsn} cannot be read: {source}")]
    Boxcar { lsn: Lsn, source: DecodeError },
    #[error("the parts of a large transaction cannot be kept in a scratch file: {0}")]
    Scratch(#[from] io::Error),
}
