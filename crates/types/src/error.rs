//! The error that a client receives: PostgreSQL's SQLSTATE, a message, and in many cases a hint with the next step.

use std::fmt;

/// A five-character SQLSTATE (PostgreSQL manual, appendix A).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SqlState(pub &'static str);

macro_rules! states {
    ($($name:ident = $code:literal;)*) => {
        impl SqlState {
            $(pub const $name: SqlState = SqlState($code);)*

            /// The state of a code that another server has sent, if it is one of these.
            pub fn of(code: &str) -> Option<SqlState> {
                [$($code),*].into_iter().find(|known| *known == code).map(SqlState)
            }
        }
    };
}

states! {
    CONNECTION_DOES_NOT_EXIST = "08003";
    CONNECTION_FAILURE = "08006";
    PROTOCOL_VIOLATION = "08P01";
    FEATURE_NOT_SUPPORTED = "0A000";
    NUMERIC_VALUE_OUT_OF_RANGE = "22003";
    DATETIME_FIELD_OVERFLOW = "22008";
    DIVISION_BY_ZERO = "22012";
    CHARACTER_NOT_IN_REPERTOIRE = "22021";
    INVALID_DATETIME_FORMAT = "22007";
    INVALID_PARAMETER_VALUE = "22023";
    STRING_DATA_RIGHT_TRUNCATION = "22001";
    INVALID_TEXT_REPRESENTATION = "22P02";
    INVALID_BINARY_REPRESENTATION = "22P03";
    BAD_COPY_FILE_FORMAT = "22P04";
    INTEGRITY_CONSTRAINT_VIOLATION = "23000";
    NOT_NULL_VIOLATION = "23502";
    FOREIGN_KEY_VIOLATION = "23503";
    UNIQUE_VIOLATION = "23505";
    CHECK_VIOLATION = "23514";
    INVALID_TRANSACTION_STATE = "25000";
    ACTIVE_SQL_TRANSACTION = "25001";
    READ_ONLY_SQL_TRANSACTION = "25006";
    NO_ACTIVE_SQL_TRANSACTION = "25P01";
    IN_FAILED_SQL_TRANSACTION = "25P02";
    IDLE_IN_TRANSACTION_SESSION_TIMEOUT = "25P03";
    INVALID_SQL_STATEMENT_NAME = "26000";
    INVALID_AUTHORIZATION_SPECIFICATION = "28000";
    INVALID_PASSWORD = "28P01";
    INVALID_CURSOR_NAME = "34000";
    INVALID_CATALOG_NAME = "3D000";
    INVALID_SCHEMA_NAME = "3F000";
    INVALID_SAVEPOINT_SPECIFICATION = "3B001";
    SERIALIZATION_FAILURE = "40001";
    DEADLOCK_DETECTED = "40P01";
    SYNTAX_ERROR = "42601";
    INSUFFICIENT_PRIVILEGE = "42501";
    UNDEFINED_COLUMN = "42703";
    UNDEFINED_FUNCTION = "42883";
    UNDEFINED_TABLE = "42P01";
    UNDEFINED_PARAMETER = "42P02";
    UNDEFINED_OBJECT = "42704";
    DUPLICATE_COLUMN = "42701";
    DUPLICATE_DATABASE = "42P04";
    DUPLICATE_PREPARED_STATEMENT = "42P05";
    DUPLICATE_TABLE = "42P07";
    DUPLICATE_OBJECT = "42710";
    AMBIGUOUS_COLUMN = "42702";
    DATATYPE_MISMATCH = "42804";
    GROUPING_ERROR = "42803";
    WRONG_OBJECT_TYPE = "42809";
    INDETERMINATE_DATATYPE = "42P18";
    INVALID_TABLE_DEFINITION = "42P16";
    OUT_OF_MEMORY = "53200";
    DISK_FULL = "53100";
    TOO_MANY_CONNECTIONS = "53300";
    PROGRAM_LIMIT_EXCEEDED = "54000";
    STATEMENT_TOO_COMPLEX = "54001";
    OBJECT_NOT_IN_PREREQUISITE_STATE = "55000";
    OBJECT_IN_USE = "55006";
    LOCK_NOT_AVAILABLE = "55P03";
    QUERY_CANCELED = "57014";
    ADMIN_SHUTDOWN = "57P01";
    CANNOT_CONNECT_NOW = "57P03";
    IO_ERROR = "58030";
    SNAPSHOT_TOO_OLD = "72000";
    INTERNAL_ERROR = "XX000";
    DATA_CORRUPTED = "XX001";
}

impl fmt::Debug for SqlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// An error of a statement, as the client receives it.
#[derive(Clone, Debug, PartialEq)]
pub struct SqlError(Box<Parts>);

const SCHEMA_CHANGED: &str = "could not serialize access due to a change of the schema";

/// The fields of an error; boxed so that a `Result` stays small.
#[derive(Clone, Debug, PartialEq)]
pub struct Parts {
    pub state: SqlState,
    pub message: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    /// Character position in the query text, from 1.
    pub position: Option<u32>,
    /// Name of the violated constraint, where known.
    pub constraint: Option<String>,
}

pub type SqlResult<T> = Result<T, SqlError>;

impl SqlError {
    pub fn new(state: SqlState, message: impl Into<String>) -> SqlError {
        SqlError(Box::new(Parts {
            state,
            message: message.into(),
            detail: None,
            hint: None,
            position: None,
            constraint: None,
        }))
    }

    /// An error for a feature that Holdfast does not support: SQLSTATE 0A000.
    pub fn unsupported(what: impl fmt::Display) -> SqlError {
        SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("{what} is not supported"))
    }

    /// An internal error, for a state that should be impossible: SQLSTATE XX000.
    pub fn internal(message: impl Into<String>) -> SqlError {
        SqlError::new(SqlState::INTERNAL_ERROR, message)
    }

    pub fn with_detail(mut self, detail: impl Into<String>) -> SqlError {
        self.0.detail = Some(detail.into());
        self
    }

    pub fn with_hint(mut self, hint: impl Into<String>) -> SqlError {
        self.0.hint = Some(hint.into());
        self
    }

    pub fn with_position(mut self, position: u32) -> SqlError {
        self.0.position = Some(position);
        self
    }

    pub fn with_constraint(mut self, name: impl Into<String>) -> SqlError {
        self.0.constraint = Some(name.into());
        self
    }

    /// The error for a client that connects while the server stops: SQLSTATE 57P03.
    pub fn shutting_down() -> SqlError {
        SqlError::new(SqlState::CANNOT_CONNECT_NOW, "the database system is shutting down")
    }

    /// The error of a statement that was translated under an earlier schema than the one it would run under. The
    /// statement has done nothing and its translation is repeated. The client receives this error only where that is
    /// not possible.
    pub fn schema_changed() -> SqlError {
        SqlError::new(SqlState::SERIALIZATION_FAILURE, SCHEMA_CHANGED).with_hint("Run the transaction again.")
    }

    /// Whether this is [`SqlError::schema_changed`].
    pub fn is_schema_changed(&self) -> bool {
        self.0.state == SqlState::SERIALIZATION_FAILURE && self.0.message == SCHEMA_CHANGED
    }

    pub fn state(&self) -> SqlState {
        self.0.state
    }

    pub fn message(&self) -> &str {
        &self.0.message
    }

    pub fn parts(&self) -> &Parts {
        &self.0
    }
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.0.message, self.0.state.0)?;
        if let Some(hint) = &self.0.hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SqlError {}
