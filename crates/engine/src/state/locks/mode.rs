//! What can be locked, how strongly, and what conflicts with what (PostgreSQL's manual, 13.3).

use holdfast_store::locking::Class;
use holdfast_types::{LockStrength, TableId, TableLockMode, VolumeId};

/// A transaction, or a session for advisory locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId(pub u64);

/// What is locked, within its volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    /// A row, a unique key, or (versions only) what is said of them.
    Row {
        class: Class,
        table: TableId,
        hash: u64,
    },
    Table(TableId),
    /// Shared by every writing branch, exclusive for the exclusive writer.
    Database,
    /// Exclusive for the one transaction that changes the schema on a branch, shared by writers that keep a snapshot.
    Schema,
    /// An application's own lock: which of PostgreSQL's two key spaces, and the key.
    Advisory {
        space: u8,
        key: i64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockId {
    pub volume: VolumeId,
    pub target: Target,
}

/// How strongly something is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockMode {
    Row(LockStrength),
    Table(TableLockMode),
    /// Database, schema and advisory locks.
    Shared,
    Exclusive,
}

impl LockId {
    /// Its name in messages.
    pub fn shown(&self) -> String {
        match self.target {
            Target::Row { class: Class::Key, table, .. } => format!("a unique key of relation {}", 16384 + table.0),
            Target::Row { table, .. } => format!("a row of relation {}", 16384 + table.0),
            Target::Table(table) => format!("relation {}", 16384 + table.0),
            Target::Database => format!("database {}", 16384 + self.volume.0),
            Target::Schema => format!("schema of database {}", 16384 + self.volume.0),
            Target::Advisory { key, .. } => format!("advisory lock {key}"),
        }
    }
}

impl LockMode {
    /// Whether no other transaction can change a table that is locked so: LOCK TABLE and changes of the schema take such a lock.
    pub fn excludes_changes(self) -> bool {
        matches!(self, LockMode::Table(_)) && self.conflicts(LockMode::Table(TableLockMode::RowExclusive))
    }

    /// Whether a table that is locked so has no row that another transaction can change or lock.
    pub fn is_whole(self) -> bool {
        matches!(self, LockMode::Table(TableLockMode::Exclusive | TableLockMode::AccessExclusive))
    }

    /// Whether two owners cannot hold these at once.
    pub fn conflicts(self, other: LockMode) -> bool {
        use LockMode::{Exclusive, Row, Shared, Table};
        match (self, other) {
            (Row(a), Row(b)) => rows_conflict(a, b),
            (Table(a), Table(b)) => tables_conflict(a, b),
            (Shared, Shared) => false,
            (Shared | Exclusive, Shared | Exclusive) => true,
            // Never the same target.
            _ => false,
        }
    }

    /// Whether the owner of `self` need not ask for `other`.
    pub fn covers(self, other: LockMode) -> bool {
        use LockMode::{Exclusive, Row, Shared, Table};
        match (self, other) {
            (Row(a), Row(b)) => a >= b,
            (Table(a), Table(b)) => a == b || a == TableLockMode::AccessExclusive,
            (a, b) => a == b || (a, b) == (Exclusive, Shared),
        }
    }

    /// The name PostgreSQL's `pg_locks` shows.
    pub fn name(self) -> &'static str {
        use LockMode::{Exclusive, Row, Shared, Table};
        match self {
            Row(LockStrength::KeyShare) => "RowKeyShareLock",
            Row(LockStrength::Share) => "RowShareLock",
            Row(LockStrength::NoKeyUpdate) => "RowNoKeyUpdateLock",
            Row(LockStrength::Update) => "RowUpdateLock",
            Table(TableLockMode::AccessShare) => "AccessShareLock",
            Table(TableLockMode::RowShare) => "RowShareLock",
            Table(TableLockMode::RowExclusive) => "RowExclusiveLock",
            Table(TableLockMode::ShareUpdateExclusive) => "ShareUpdateExclusiveLock",
            Table(TableLockMode::Share) => "ShareLock",
            Table(TableLockMode::ShareRowExclusive) => "ShareRowExclusiveLock",
            Table(TableLockMode::Exclusive) | Exclusive => "ExclusiveLock",
            Table(TableLockMode::AccessExclusive) => "AccessExclusiveLock",
            Shared => "ShareLock",
        }
    }
}

/// Table 13.3 of PostgreSQL's manual.
fn rows_conflict(a: LockStrength, b: LockStrength) -> bool {
    use LockStrength::{KeyShare, NoKeyUpdate, Share, Update};
    match (a.min(b), a.max(b)) {
        (KeyShare, Update) | (Share, NoKeyUpdate | Update) | (NoKeyUpdate | Update, _) => true,
        (KeyShare, _) | (Share, _) => false,
    }
}

/// Table 13.2 of PostgreSQL's manual.
fn tables_conflict(a: TableLockMode, b: TableLockMode) -> bool {
    use TableLockMode::{
        AccessExclusive, AccessShare, Exclusive, RowExclusive, RowShare, Share, ShareRowExclusive, ShareUpdateExclusive,
    };
    let (weak, strong) = (a.min(b), a.max(b));
    match weak {
        AccessShare => strong == AccessExclusive,
        RowShare => strong >= Exclusive,
        RowExclusive => strong >= Share,
        ShareUpdateExclusive => strong >= ShareUpdateExclusive,
        Share => strong != Share,
        ShareRowExclusive | Exclusive | AccessExclusive => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LockStrength::{KeyShare, NoKeyUpdate, Share, Update};

    #[test]
    fn row_locks_conflict_as_in_the_manual() {
        let modes = [KeyShare, Share, NoKeyUpdate, Update];
        let conflicts = ["...X", "..XX", ".XXX", "XXXX"];
        for (i, a) in modes.iter().enumerate() {
            for (j, b) in modes.iter().enumerate() {
                let expected = conflicts[i].as_bytes()[j] == b'X';
                assert_eq!(LockMode::Row(*a).conflicts(LockMode::Row(*b)), expected, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn table_locks_conflict_as_in_the_manual() {
        use TableLockMode::*;
        let modes = [
            AccessShare,
            RowShare,
            RowExclusive,
            ShareUpdateExclusive,
            Share,
            ShareRowExclusive,
            Exclusive,
            AccessExclusive,
        ];
        let conflicts =
            [".......X", "......XX", "....XXXX", "...XXXXX", "..XX.XXX", "..XXXXXX", ".XXXXXXX", "XXXXXXXX"];
        for (i, a) in modes.iter().enumerate() {
            for (j, b) in modes.iter().enumerate() {
                let expected = conflicts[i].as_bytes()[j] == b'X';
                assert_eq!(LockMode::Table(*a).conflicts(LockMode::Table(*b)), expected, "{a:?} {b:?}");
            }
        }
    }
}
