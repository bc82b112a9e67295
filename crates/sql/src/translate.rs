//! What a translation is, and the way into it.
//!
//! [`translate`] parses one statement of a scanned message, binds names and types against the schema, and writes
//! SQLite's SQL. It never runs anything. Where PostgreSQL would give an error so does it, with PostgreSQL's
//! SQLSTATE; what Holdfast does not do is 0A000 and names the thing.

use crate::cursor::FetchDirection;
use crate::locks::{RowLock, TableLockMode};
use crate::scan::{Literal, Piece};
use crate::start_parameters::ParametersOf;
use crate::types::{self, Type};
use holdfast_types::schema::{Dialect, Schema};
use holdfast_types::{SqlError, SqlResult, SqlState, StatementDesc, Value};
use std::sync::Arc;

/// What surrounds a statement.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub dialect: Dialect,
    pub schema: &'a Schema,
    pub database: &'a str,
    pub user: &'a str,
    /// OIDs a Parse message gave for `$1` ..., 0 where it leaves the choice.
    pub param_types: &'a [u32],
}

/// A statement in SQLite's SQL with all that is needed to run it and to describe it.
#[derive(Clone, Debug, Default)]
pub struct Translated {
    pub kind: Kind,
    /// SQLite statements, one each, to be run in order in one transaction. The last one returns the rows and
    /// takes the parameters. Empty where there is nothing to run.
    pub steps: Vec<String>,
    /// Values of `?1`, `?2` ... of the last step.
    pub params: Vec<Param>,
    pub desc: Arc<StatementDesc>,
    /// Words of the command tag.
    pub verb: &'static str,
    /// The tag carries a row count.
    pub counts: bool,
    /// It locks rows (FOR UPDATE, FOR SHARE) or a table, or takes advisory locks, so its transaction is a writing one.
    pub locks: bool,
    /// The rows to be locked as they are returned. The statement then has columns behind those of `desc.columns`
    /// that are not the client's.
    pub row_locks: Vec<RowLock>,
    /// It takes or gives up advisory locks, through [`crate::ADVISORY_FUNCTION`].
    pub advisory: bool,
    pub notices: Vec<Notice>,
    /// It names temporary tables of the session; unknown where the text is SQLite's own.
    pub temporary: bool,
    /// It creates, changes, drops or empties temporary tables of the session, and no others.
    pub temp: Option<TempDdl>,
    /// The text is SQLite's own: result columns are described with [`crate::sqlite::describe`] after it has been
    /// prepared.
    pub describe_after_prepare: bool,
    pub(crate) cacheable: bool,
}

/// What a statement about the session's temporary tables says beside its steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TempDdl {
    /// The table it creates, and what becomes of that at each commit.
    pub creates: Option<(String, OnCommit)>,
}

/// What becomes of a temporary table at each commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnCommit {
    #[default]
    PreserveRows,
    DeleteRows,
    Drop,
}

/// A NOTICE or WARNING that goes with the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Notice {
    pub severity: &'static str,
    pub state: SqlState,
    pub message: String,
}

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
    },
    DropDatabase {
        name: String,
        if_exists: bool,
    },
    Vacuum,
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
        /// WITH HOLD: it outlives the transaction.
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
    /// What later sessions of a database or of a user start with. Without a value the parameter is reset, without a
    /// parameter all of them.
    AlterParameters {
        of: ParametersOf,
        parameter: Option<String>,
        value: Option<String>,
    },
    /// Accepted; there is nothing to do but to answer.
    #[allow(clippy::enum_variant_names)]
    NoOp,
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

/// One parameter of the SQLite statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    pub source: ParamSource,
    /// A conversion on the way in.
    pub coerce: Option<Coerce>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ParamSource {
    /// The client's `$n`, from 0.
    Client(usize),
    /// Literal `n` of the statement's text, from 0.
    Literal(usize),
    Const(Value),
    Session(SessionValue),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coerce {
    pub from: Type,
    pub to: Type,
}

/// What only the session knows.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionValue {
    /// Microseconds since 1970 UTC at which the transaction began.
    TransactionTime,
    /// The same of the statement.
    StatementTime,
    /// The same of this moment.
    ClockTime,
    User,
    SessionUser,
    Database,
    BackendPid,
    /// `lastval()`.
    LastInsertId,
    Setting {
        name: String,
        missing_ok: bool,
    },
}

/// Answers what only the session knows.
pub trait SessionValues {
    fn session_value(&self, which: &SessionValue) -> SqlResult<Value>;
}

impl Translated {
    pub(crate) fn command(kind: Kind, verb: &'static str) -> Translated {
        Translated { kind, verb, cacheable: true, ..Translated::default() }
    }

    /// Literal `i` of the text is a parameter, so that another value may stand in its place.
    pub fn lifts(&self, i: usize) -> bool {
        self.params.iter().any(|p| p.source == ParamSource::Literal(i))
    }

    /// The values of the SQLite statement's parameters.
    pub fn bind(
        &self,
        literals: &[Literal<'_>],
        client: &[Value],
        session: &dyn SessionValues,
    ) -> SqlResult<Vec<Value>> {
        self.params.iter().map(|p| self.bind_one(p, literals, client, session)).collect()
    }

    fn bind_one(
        &self,
        param: &Param,
        literals: &[Literal<'_>],
        client: &[Value],
        session: &dyn SessionValues,
    ) -> SqlResult<Value> {
        let value = match &param.source {
            ParamSource::Client(n) => client.get(*n).cloned().ok_or_else(|| {
                SqlError::new(SqlState::UNDEFINED_PARAMETER, format!("there is no value for parameter ${}", n + 1))
            })?,
            ParamSource::Literal(n) => match literals.get(*n) {
                Some(literal) => literal.value(),
                None => return Err(SqlError::internal("the statement has fewer literals than its translation")),
            },
            ParamSource::Const(value) => value.clone(),
            ParamSource::Session(which) => session.session_value(which)?,
        };
        match param.coerce {
            None => Ok(value),
            Some(c) => coerce(value, c),
        }
    }
}

fn coerce(value: Value, c: Coerce) -> SqlResult<Value> {
    use holdfast_types::desc::oid;
    match (&value, c.to.oid) {
        // The usual cases of the hot path, without a copy.
        (Value::Int(i), oid::INT4) if i32::try_from(*i).is_ok() => Ok(value),
        (Value::Int(_), oid::INT8) => Ok(value),
        (Value::Text(_), oid::TEXT) => Ok(value),
        (Value::Text(t), oid::VARCHAR) if c.to.typmod < 4 || t.len() <= (c.to.typmod - 4) as usize => Ok(value),
        // A session's clock, in microseconds, as one of the moment types.
        (Value::Int(us), oid::TIMESTAMPTZ | oid::TIMESTAMP | oid::DATE | oid::TIME) => {
            let text = types::datetime::format_timestamp(*us)? + "+00";
            let from = Type::new(oid::TIMESTAMPTZ);
            types::cast(Value::Text(text).as_ref(), from, c.to, true)
        }
        _ => types::cast(value.as_ref(), c.from, c.to, false),
    }
}

/// Translates one statement.
pub fn translate(piece: &Piece<'_>, context: &Context<'_>) -> SqlResult<Translated> {
    match context.dialect {
        Dialect::Postgres => crate::statement::translate(piece, context),
        Dialect::Sqlite => crate::sqlite::translate(piece, context),
    }
}
