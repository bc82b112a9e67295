//! A function that Holdfast registers in SQLite, and the reading of its arguments.

use holdfast_types::{Cost, SqlError, SqlResult, SqlState, Value, ValueRef};

/// A function for SQLite.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    pub name: &'static str,
    /// Number of arguments, -1 for any.
    pub args: i32,
    /// Whether equal arguments always give the same result.
    pub deterministic: bool,
    /// [`Cost::Unbounded`], unless its definition says otherwise.
    pub cost: Cost,
    pub(super) strict: bool,
    pub(super) call: fn(&[ValueRef<'_>]) -> SqlResult<Value>,
}

impl Function {
    pub const fn strict(name: &'static str, args: i32, call: fn(&[ValueRef<'_>]) -> SqlResult<Value>) -> Function {
        Function { name, args, deterministic: true, cost: Cost::Unbounded, strict: true, call }
    }

    pub const fn loose(name: &'static str, args: i32, call: fn(&[ValueRef<'_>]) -> SqlResult<Value>) -> Function {
        Function { name, args, deterministic: true, cost: Cost::Unbounded, strict: false, call }
    }

    /// Its arguments and result are numbers or short names.
    pub(super) const fn constant(self) -> Function {
        Function { cost: Cost::Constant, ..self }
    }

    /// Its time and result are at most proportional to its arguments, apart from a limit of at most some 10 KB on the result.
    pub(super) const fn linear(self) -> Function {
        Function { cost: Cost::Linear, ..self }
    }

    /// Computes the function.
    pub fn call(&self, args: &[ValueRef<'_>]) -> SqlResult<Value> {
        if self.strict && args.iter().any(|a| matches!(a, ValueRef::Null)) {
            return Ok(Value::Null);
        }
        (self.call)(args)
    }
}

/// An argument as an integer. Any other value is a bug of the translation.
pub fn int(args: &[ValueRef<'_>], i: usize) -> SqlResult<i64> {
    match args.get(i) {
        Some(ValueRef::Int(n)) => Ok(*n),
        Some(ValueRef::Real(r)) => Ok(*r as i64),
        other => Err(wrong(other, "an integer")),
    }
}

pub fn real(args: &[ValueRef<'_>], i: usize) -> SqlResult<f64> {
    match args.get(i) {
        Some(ValueRef::Int(n)) => Ok(*n as f64),
        Some(ValueRef::Real(r)) => Ok(*r),
        other => Err(wrong(other, "a number")),
    }
}

/// An argument as text. Numbers and blobs are possible only in files that another program wrote.
pub fn text<'a>(args: &'a [ValueRef<'_>], i: usize) -> SqlResult<std::borrow::Cow<'a, str>> {
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
    SqlError::new(SqlState::DATATYPE_MISMATCH, format!("a stored value is {found}, but {wanted} is required"))
}
