//! The parameters of a translated statement: where their values come from, and how they are converted.

use crate::scan::Literal;
use crate::types::{self, Type};
use holdfast_types::{SqlError, SqlResult, SqlState, Value};

/// The largest number of parameters of which the next may be a literal: SQLite allows a statement 32,766, and those of the client and of
/// the session come in addition.
pub(crate) const LIFTED_MAX: usize = 10_000;

/// One parameter of the SQLite statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    pub source: ParamSource,
    /// The conversion to apply before binding.
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

/// A value that only the session knows.
#[derive(Clone, Debug, PartialEq)]
pub enum SessionValue {
    /// Microseconds since 1970 UTC at which the transaction began.
    TransactionTime,
    /// Microseconds since 1970 UTC at which the statement began.
    StatementTime,
    /// Microseconds since 1970 UTC now.
    ClockTime,
    User,
    SessionUser,
    Database,
    BackendPid,
    /// Address of the client's end of the connection, as `inet`; NULL for a Unix socket, as in the next three.
    ClientAddress,
    ClientPort,
    ServerAddress,
    ServerPort,
    /// Microseconds since 1970 UTC at which the server started.
    ServerStart,
    /// Microseconds since 1970 UTC at which the settings were read last.
    SettingsRead,
    /// The first schema of `search_path` that exists; NULL where there is none.
    CurrentSchema,
    /// The schemas of `search_path` that exist, as an array; with those that are searched without being named.
    Schemas {
        implicit: bool,
    },
    /// The value of `lastval()`.
    LastInsertId,
    Setting {
        name: String,
        missing_ok: bool,
    },
}

/// The session's values.
pub trait SessionValues {
    fn session_value(&self, which: &SessionValue) -> SqlResult<Value>;
}

impl Param {
    /// The value to bind.
    pub(crate) fn value(
        &self,
        literals: &[Literal<'_>],
        client: &[Value],
        session: &dyn SessionValues,
    ) -> SqlResult<Value> {
        let value = match &self.source {
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
        match self.coerce {
            None => Ok(value),
            Some(c) => coerce(value, c),
        }
    }
}

fn coerce(value: Value, c: Coerce) -> SqlResult<Value> {
    use holdfast_types::desc::oid;
    match (&value, c.to.oid) {
        // The common cases of the hot path, without a copy.
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
