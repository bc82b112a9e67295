//! Errors of dumps and restores, worded for the operator; each names the object or the file.

use crate::fetch::FetchError;
use holdfast_archive::ArchiveError;
use holdfast_engine::{CloseError, CopyError, NewHistoryError, OpenError};
use holdfast_trail::ReceiveError;
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    #[error("{place}: {what}")]
    Place { place: String, what: String },
    #[error("cannot {what} {name} in {place}: {source}")]
    Store { what: &'static str, name: String, place: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error(
        "{name} is damaged: {what}. Nothing was changed. Put back a copy of that object; `holdfast dump verify` lists the \
         dumps that need it"
    )]
    Damaged { name: String, what: String },
    #[error("{name} has format {found}; this program reads formats up to {known}. Use a newer program")]
    Newer { name: String, found: u16, known: u16 },
    #[error("{name} is missing in {place}; {needed_by} needs it. Put back a copy of that object, or use another dump")]
    Missing { name: String, place: String, needed_by: String },
    #[error("{name} is in {place} with other content than this dump stores under its name: {what}")]
    Differs { name: String, place: String, what: String },
    #[error("{place} has no dump{which}; {}", next_to_no_dump(place, which))]
    NoDump { place: String, which: String },
    #[error("{0}")]
    Running(String),
    #[error(
        "{place} is the dump target of another server: {why}. Name another place in dump.to; if that server no longer dumps, \
         remove {name} from {place}"
    )]
    Claimed { place: String, why: String, name: String },
    #[error(
        "{place} is the server's archive, the setting archive in its holdfast.toml: dumps need a place of their own. Name \
         another directory or prefix, such as {}/dumps",
        place.trim_end_matches('/')
    )]
    InArchive { place: String },
    #[error("what was restored cannot be checked: {0}")]
    Check(String),
    #[error("cannot {what} {path}: {source}")]
    Io { what: &'static str, path: String, source: io::Error },
    #[error("the server's plan of the dump cannot be read: {0}")]
    Plan(String),
    #[error("a manifest cannot be written: {0}")]
    Encode(String),
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// Encrypted, or not.
    #[error(transparent)]
    Key(ArchiveError),
    /// Of one object: others may open.
    #[error(transparent)]
    OtherKey(ArchiveError),
    #[error("archive: {0}")]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    Restore(#[from] crate::restore::RestoreError),
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error(transparent)]
    Standby(#[from] holdfast_replication::CopyError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Close(#[from] CloseError),
    #[error(transparent)]
    NewHistory(#[from] NewHistoryError),
    #[error("the trail cannot be received: {0}")]
    Receive(#[from] ReceiveError),
    #[error("a thread of the dump has failed: {0}")]
    Thread(String),
}

fn next_to_no_dump(place: &str, which: &str) -> String {
    let list = format!("`holdfast dump list --from {place}` shows");
    match which {
        "" => format!(
            "a server with dump.to makes its first one within seconds after its start: {list} when it is there, and \
             `holdfast dump create` makes one now"
        ),
        _ => format!("{list} what it has"),
    }
}

impl DumpError {
    /// An error of a store that holds dumps.
    pub(crate) fn of_store(place: &str, error: ArchiveError) -> DumpError {
        match error {
            ArchiveError::Store { what, name, source } => {
                DumpError::Store { what, name, place: place.to_owned(), source }
            }
            ArchiveError::NoDirectory { place } => DumpError::Place {
                place,
                what: "the directory does not exist; make it, or mount the file system that it is on".to_owned(),
            },
            ArchiveError::Setting { text, what } => DumpError::Place { place: text, what },
            ArchiveError::Damaged { name, what } => DumpError::Damaged { name, what },
            ArchiveError::Newer { name, found, known } => DumpError::Newer { name, found, known },
            error @ ArchiveError::OtherKey { .. } => DumpError::OtherKey(error),
            error @ (ArchiveError::NoKey { .. }
            | ArchiveError::WrongKey { .. }
            | ArchiveError::NotEncrypted { .. }
            | ArchiveError::NoKeyObject { .. }
            | ArchiveError::KeyLost { .. }
            | ArchiveError::Identity { .. }
            | ArchiveError::Recipient { .. }) => DumpError::Key(error),
            other => DumpError::Archive(other),
        }
    }
}
