//! Locks in the form in which views show them.

use super::manager::LockManager;
use super::mode::{LockId, LockMode, Target};
use crate::state::database::database_oid;
use holdfast_store::locking::Class;
use holdfast_types::TableId;

/// A lock that is held or waited for.
#[derive(Clone, Debug, PartialEq)]
pub struct LockInfo {
    /// `relation`, `tuple`, `unique key`, `database`, `schema` or `advisory`.
    pub kind: &'static str,
    pub database_oid: u32,
    pub relation_oid: Option<u32>,
    /// Key space and key.
    pub advisory: Option<(u8, i64)>,
    /// The process number its client knows; 0 for none.
    pub pid: i32,
    pub mode: &'static str,
    pub granted: bool,
}

/// A client that waits for a lock.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocked {
    /// The process number its client knows; 0 for none.
    pub pid: i32,
    /// The lock it waits for, as [`LockInfo::kind`] names it.
    pub kind: &'static str,
    /// The sessions that must go first, by process numbers.
    pub by: Vec<i32>,
}

/// Maximum number of lines: each row of a large transaction is one.
const LINES_MAX: usize = 10_000;

fn kind(target: Target) -> &'static str {
    match target {
        Target::Row { class: Class::Key, .. } => "unique key",
        Target::Row { .. } => "tuple",
        Target::Table(_) => "relation",
        Target::Database => "database",
        Target::Schema => "schema",
        Target::Advisory { .. } => "advisory",
    }
}

fn show(id: LockId, mode: LockMode, pid: i32, granted: bool) -> LockInfo {
    let relation = |table: TableId| Some(16384 + table.0);
    let (relation_oid, advisory) = match id.target {
        Target::Row { table, .. } | Target::Table(table) => (relation(table), None),
        Target::Database | Target::Schema => (None, None),
        Target::Advisory { space, key } => (None, Some((space, key))),
    };
    let kind = kind(id.target);
    LockInfo { kind, database_oid: database_oid(id.volume), relation_oid, advisory, pid, mode: mode.name(), granted }
}

impl LockManager {
    /// All locks, up to a limit.
    pub fn list(&self) -> Vec<LockInfo> {
        let mut lines = Vec::new();
        self.each(|id, mode, pid, granted| {
            if lines.len() < LINES_MAX {
                lines.push(show(id, mode, pid, granted));
            }
        });
        lines
    }

    /// Every owner that waits.
    pub fn blocked(&self) -> Vec<Blocked> {
        let mut list = Vec::new();
        self.each_wait(|pid, id, mut by| {
            by.sort_unstable();
            by.dedup();
            list.push(Blocked { pid, kind: kind(id.target), by });
        });
        list
    }
}
