//! What a statement does, for the session that runs it: [`Kind`] and the types of its fields.

use crate::privilege_statement::PrivilegeStatement;
use crate::publication_statement::PublicationStatement;
use crate::role_statement::{RoleSpec, RoleStatement};
use crate::subscription_statement::SubscriptionStatement;
use holdfast_types::schema::Dialect;
use holdfast_types::{ParameterChange, TableLockMode, Value};

#[derive(Clone, Debug, Default, PartialEq)]
pub enum Kind {
    #[default]
    Query,
    Insert,
    Update,
    Delete,
    Ddl,
    Begin(TransactionModes),
    SetTransaction(TransactionModes),
    Commit {
        chain: bool,
    },
    Rollback {
        chain: bool,
    },
    Savepoint(String),
    Release(String),
    RollbackTo(String),
    /// `value` is `None` for DEFAULT.
    Set {
        name: String,
        value: Option<String>,
        local: bool,
    },
    /// `None` is RESET ALL.
    Reset(Option<String>),
    /// `all` is SHOW ALL.
    Show(String),
    CopyIn(Box<CopyIn>),
    CopyOut(Box<CopyFormat>),
    CreateDatabase {
        name: String,
        dialect: Dialect,
        if_not_exists: bool,
        /// OWNER.
        owner: Option<RoleSpec>,
        /// CONNECTION LIMIT.
        connection_limit: Option<i32>,
    },
    DropDatabase {
        name: String,
        if_exists: bool,
    },
    Vacuum {
        /// By name; each must exist.
        tables: Vec<String>,
        /// Write a copy to this path on the server's machine, and change nothing.
        into: Option<String>,
    },
    Analyze,
    LockTable {
        /// Stored tables by their exact names.
        tables: Vec<String>,
        mode: TableLockMode,
        no_wait: bool,
    },
    /// The step is EXPLAIN QUERY PLAN; its column 3 (`detail`) is the one result column.
    Explain,
    Prepare {
        name: String,
        statement: String,
        param_types: Vec<u32>,
    },
    Execute {
        name: String,
        args: Vec<Value>,
    },
    /// `None` is DEALLOCATE ALL.
    Deallocate(Option<String>),
    /// ALL, PLANS, SEQUENCES or TEMP.
    Discard(&'static str),
    /// PREPARE TRANSACTION with its identifier.
    PrepareTransaction(String),
    CommitPrepared(String),
    RollbackPrepared(String),
    DeclareCursor {
        name: String,
        /// WITH HOLD: the cursor outlives the transaction.
        hold: bool,
        /// SCROLL or NO SCROLL, where one was written.
        scroll: Option<bool>,
        /// The query's text.
        query: String,
    },
    Fetch {
        name: String,
        direction: FetchDirection,
        /// MOVE: no rows are returned.
        moves: bool,
    },
    /// `None` is CLOSE ALL.
    CloseCursor(Option<String>),
    /// Changes what later sessions start with.
    AlterParameters {
        /// Of this database; `None`: of all roles, in every database.
        database: Option<String>,
        change: ParameterChange,
    },
    /// Changes roles, or the access to a database.
    Role(Box<RoleStatement>),
    /// Owners and privileges.
    Privileges(Box<PrivilegeStatement>),
    /// Publications.
    Publication(Box<PublicationStatement>),
    /// Subscriptions.
    Subscription(Box<SubscriptionStatement>),
    /// Accepted without effect; the session only answers.
    #[allow(clippy::enum_variant_names)]
    NoOp,
}

impl Kind {
    /// A query or a change of rows, which differs from others in more than its constants; anything else is a command.
    pub fn is_planned(&self) -> bool {
        matches!(self, Kind::Query | Kind::Insert | Kind::Update | Kind::Delete)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TransactionModes {
    pub isolation: Option<Isolation>,
    pub read_only: Option<bool>,
    pub deferrable: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    ReadUncommitted,
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

/// The form of a COPY stream.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyFormat {
    pub csv: bool,
    pub header: bool,
    pub delimiter: u8,
    pub null: String,
    pub quote: u8,
    pub escape: u8,
}

impl CopyFormat {
    /// The text format as it is without options.
    pub fn text() -> CopyFormat {
        CopyFormat { csv: false, header: false, delimiter: b'\t', null: "\\N".into(), quote: b'"', escape: b'"' }
    }
}

/// COPY ... FROM STDIN: the step is an INSERT whose `?n` is field `n`, of the type given here.
#[derive(Clone, Debug, PartialEq)]
pub struct CopyIn {
    pub table: String,
    pub columns: Vec<CopyColumn>,
    pub format: CopyFormat,
}

#[derive(Clone, Debug, PartialEq)]
pub struct CopyColumn {
    pub name: String,
    pub type_oid: u32,
    pub typmod: i32,
}

/// Where FETCH or MOVE goes from the cursor's current row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchDirection {
    Next,
    Prior,
    First,
    Last,
    /// To this row, counted from 1; negative counts from the end, 0 is before the first.
    Absolute(i64),
    /// By this number of rows; 0 is the current row.
    Relative(i64),
    /// The next rows: `FORWARD n`, `n`, `ALL`. A negative `n` is written as `Backward`.
    Forward(FetchCount),
    /// The rows before, nearest first.
    Backward(FetchCount),
}

/// The number of rows of FETCH or MOVE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchCount {
    /// 0 is the current row.
    Rows(u64),
    All,
}
