//! Scalar functions that the rewritten SQL calls. They are registered on every connection, and only there: nothing
//! stored in a database refers to them.
//!
//! Each takes SQLite values and gives one, or an error that the connection passes through SQLite with
//! [`crate::error::encode`]. A function marked strict is NULL where an argument is.

mod array;
mod catalogue;
pub mod datetime;
mod digest;
pub mod interval;
pub mod json;
mod number;
mod numeric;
mod pattern;
mod sleep;
mod text;

use holdfast_types::{SqlError, SqlResult, SqlState, Value, ValueRef};

/// A function for SQLite.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    pub name: &'static str,
    /// Number of arguments, -1 for any.
    pub args: i32,
    /// The same arguments always give the same result.
    pub deterministic: bool,
    strict: bool,
    call: fn(&[ValueRef<'_>]) -> SqlResult<Value>,
}

impl Function {
    const fn strict(name: &'static str, args: i32, call: fn(&[ValueRef<'_>]) -> SqlResult<Value>) -> Function {
        Function { name, args, deterministic: true, strict: true, call }
    }

    const fn loose(name: &'static str, args: i32, call: fn(&[ValueRef<'_>]) -> SqlResult<Value>) -> Function {
        Function { name, args, deterministic: true, strict: false, call }
    }

    /// Computes the function.
    pub fn call(&self, args: &[ValueRef<'_>]) -> SqlResult<Value> {
        if self.strict && args.iter().any(|a| matches!(a, ValueRef::Null)) {
            return Ok(Value::Null);
        }
        (self.call)(args)
    }
}

/// All functions to register.
pub fn functions() -> impl Iterator<Item = &'static Function> {
    const ALL: &[&[Function]] = &[
        number::FUNCTIONS,
        numeric::FUNCTIONS,
        text::FUNCTIONS,
        pattern::FUNCTIONS,
        sleep::FUNCTIONS,
        datetime::FUNCTIONS,
        array::FUNCTIONS,
        digest::FUNCTIONS,
        catalogue::FUNCTIONS,
    ];
    ALL.iter().copied().flatten()
}

/// An argument as an integer; anything else is a fault of the translation.
fn int(args: &[ValueRef<'_>], i: usize) -> SqlResult<i64> {
    match args.get(i) {
        Some(ValueRef::Int(n)) => Ok(*n),
        Some(ValueRef::Real(r)) => Ok(*r as i64),
        other => Err(wrong(other, "an integer")),
    }
}

fn real(args: &[ValueRef<'_>], i: usize) -> SqlResult<f64> {
    match args.get(i) {
        Some(ValueRef::Int(n)) => Ok(*n as f64),
        Some(ValueRef::Real(r)) => Ok(*r),
        other => Err(wrong(other, "a number")),
    }
}

/// An argument as text. Numbers and blobs are possible only in files that another program wrote.
fn text<'a>(args: &'a [ValueRef<'_>], i: usize) -> SqlResult<std::borrow::Cow<'a, str>> {
    match args.get(i) {
        Some(ValueRef::Text(t)) => Ok(String::from_utf8_lossy(t)),
        Some(ValueRef::Int(n)) => Ok(n.to_string().into()),
        Some(ValueRef::Real(r)) => Ok(r.to_string().into()),
        other => Err(wrong(other, "text")),
    }
}

fn wrong(found: Option<&ValueRef<'_>>, wanted: &str) -> SqlError {
    let found = match found {
        None => "nothing",
        Some(ValueRef::Null) => "NULL",
        Some(ValueRef::Int(_)) => "an integer",
        Some(ValueRef::Real(_)) => "a real",
        Some(ValueRef::Text(_)) => "text",
        Some(ValueRef::Blob(_)) => "a blob",
    };
    SqlError::new(SqlState::DATATYPE_MISMATCH, format!("a stored value is {found} where {wanted} is needed"))
}
