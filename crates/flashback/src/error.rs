//! Errors of looking back and undoing, worded for the operator.

use crate::conflict::Conflict;
use holdfast_archive::ArchiveError;
use holdfast_changes::ChangesError;
use holdfast_client::{ClientError, StatementError};
use holdfast_trail::TrailError;
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum FlashbackError {
    #[error("no trail is given. Name a data directory with --data or an archive with --archive")]
    NoPlace,
    #[error("{place} has nothing of the trail {trail}")]
    NothingArchived { place: String, trail: String },
    #[error("{place} has the trails of several servers: {trails}. Choose one with --trail")]
    SeveralTrails { place: String, trails: String },
    #[error("{0:?} is not the id of a trail: it has 32 hexadecimal digits")]
    TrailId(String),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error(transparent)]
    Trail(#[from] TrailError),
    #[error(transparent)]
    Changes(#[from] ChangesError),
    #[error("the trail of {dir} cannot be read from LSN {lsn} on: {what}. `holdfast check` says more")]
    Gap { dir: String, lsn: u64, what: String },
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
    #[error("a thread that reads the trail has failed")]
    Thread,
    #[error(
        "the changes to look at take more than {limit} bytes of memory. Name a shorter time with --since, or compare a \
         key in --where"
    )]
    TooMuch { limit: u64 },
    #[error("{0}. The server must run: names and present values come from it")]
    Client(#[from] ClientError),
    #[error(transparent)]
    Statement(#[from] StatementError),
    #[error("the server has answered {what} in an unknown form")]
    Answer { what: &'static str },
    #[error("the server has no database that is volume {0}: it was dropped. Restore it with `holdfast restore`")]
    NoVolume(u32),
    #[error(
        "table {0} does not exist now, so --where has no columns to look at; leave --where out to see its schema changes"
    )]
    NoTable(String),
    #[error(
        "--where: {message}. Table {table} has these columns to compare: {columns}.{hint} A dropped column cannot be compared: \
         rows of its time are listed with numbers of columns, without --where or with a condition on the key only; \
         --since and --until narrow the list"
    )]
    NoColumn { message: String, table: String, columns: String, hint: &'static str },
    #[error(
        "the trail that is within reach, from LSN {first} on, has no transaction {id}. {}",
        "The number is in the first column of `holdfast trail find`; --archive names an archive that reaches further back"
    )]
    NoTransaction { id: u64, first: u64 },
    #[error("parts of transaction {id} are in front of LSN {first}, where the trail that is within reach begins")]
    Parts { id: u64, first: u64 },
    #[error("transaction {id} cannot be undone: {why}")]
    Refused { id: u64, why: String },
    #[error("transaction {id} cannot be undone: later transactions changed its rows{}", shown(.conflicts))]
    Conflicts { id: u64, conflicts: Vec<Conflict> },
    #[error("transaction {id} was not undone, and nothing was changed{}", lines(.misses))]
    Missed { id: u64, misses: Vec<String> },
    #[error(
        "transaction {id} was not undone, and nothing was changed: foreign keys or triggers would change rows that are not \
         its own, or its rows in another way{}\n  Change these rows first, so that they no longer depend on the rows to undo",
        lines(.rows)
    )]
    Unplanned { id: u64, rows: Vec<String> },
}

/// Conflicts that a message lists.
const SHOWN_MAX: usize = 20;

fn shown(conflicts: &[Conflict]) -> String {
    lines(&conflicts.iter().map(ToString::to_string).collect::<Vec<_>>())
}

fn lines(all: &[String]) -> String {
    let mut text: String = all.iter().take(SHOWN_MAX).map(|line| format!("\n  {line}")).collect();
    if all.len() > SHOWN_MAX {
        text.push_str(&format!("\n  and {} more (--json shows them)", all.len() - SHOWN_MAX));
    }
    text
}
