//! What SQL statements ask for in words that several crates have to understand: locks, temporary tables, parameters.
//!
//! `sql` reads them, `engine` and `store` act on them. No meaning is attached here: what conflicts with what is the lock
//! manager's.

/// How much a row lock keeps others from, weakest first: PostgreSQL's four strengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LockStrength {
    /// FOR KEY SHARE
    KeyShare,
    /// FOR SHARE
    Share,
    /// FOR NO KEY UPDATE
    NoKeyUpdate,
    /// FOR UPDATE
    Update,
}

impl LockStrength {
    /// The clause's words.
    pub fn words(self) -> &'static str {
        match self {
            LockStrength::KeyShare => "FOR KEY SHARE",
            LockStrength::Share => "FOR SHARE",
            LockStrength::NoKeyUpdate => "FOR NO KEY UPDATE",
            LockStrength::Update => "FOR UPDATE",
        }
    }
}

/// What to do about a row that another transaction has locked. Where clauses differ the later of these wins, as in
/// PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LockWait {
    Wait,
    /// Leave the row out.
    SkipLocked,
    /// Fail with 55P03.
    NoWait,
}

/// The rows of one table that a SELECT returns are to be locked.
///
/// The statement's rows have hidden columns after those of its description, with the keys of the rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowLock {
    /// The stored table, by its exact name.
    pub table: String,
    pub strength: LockStrength,
    pub wait: LockWait,
    /// Positions of the result columns that identify the row: its rowid, or the primary key of a WITHOUT ROWID table
    /// in the key's order.
    pub key: Vec<usize>,
    /// Position of the result column that holds the query's LIMIT: the same integer in every row, negative for no
    /// limit. Only with SKIP LOCKED: then the SQL has no LIMIT, and the rows end when that number has been locked.
    pub limit: Option<usize>,
}

/// PostgreSQL's eight modes of table locks, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TableLockMode {
    AccessShare,
    RowShare,
    RowExclusive,
    ShareUpdateExclusive,
    Share,
    ShareRowExclusive,
    Exclusive,
    AccessExclusive,
}

/// What becomes of a temporary table at each commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnCommit {
    #[default]
    PreserveRows,
    DeleteRows,
    Drop,
}

/// A change of the parameters that sessions start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterChange {
    Set { name: String, value: String },
    Reset(String),
    ResetAll,
}
