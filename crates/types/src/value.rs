//! A cell's value as SQLite stores it: five storage classes. What a PostgreSQL client is shown of it depends on the
//! column's type, which is kept apart (see [`crate::desc`]).

/// An owned value.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Value {
    #[default]
    Null,
    Int(i64),
    Real(f64),
    /// UTF-8 text.
    Text(String),
    Blob(Vec<u8>),
}

/// A value that lives in SQLite's or somebody else's memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    Null,
    Int(i64),
    Real(f64),
    /// Text as stored. SQLite does not check that it is UTF-8, so neither does the type.
    Text(&'a [u8]),
    Blob(&'a [u8]),
}

impl Value {
    /// The same value, borrowed.
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::Null => ValueRef::Null,
            Value::Int(i) => ValueRef::Int(*i),
            Value::Real(r) => ValueRef::Real(*r),
            Value::Text(t) => ValueRef::Text(t.as_bytes()),
            Value::Blob(b) => ValueRef::Blob(b),
        }
    }
}

impl ValueRef<'_> {
    /// An owned copy; text that is not UTF-8 has its bad bytes replaced.
    pub fn to_value(&self) -> Value {
        match *self {
            ValueRef::Null => Value::Null,
            ValueRef::Int(i) => Value::Int(i),
            ValueRef::Real(r) => Value::Real(r),
            ValueRef::Text(t) => Value::Text(String::from_utf8_lossy(t).into_owned()),
            ValueRef::Blob(b) => Value::Blob(b.to_vec()),
        }
    }
}
