//! A cell's value as SQLite stores it, in one of five storage classes. Its representation for a PostgreSQL client
//! depends on the column's type, which is kept separately (see [`crate::desc`]).

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

/// A value in memory owned by SQLite or another holder.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    Null,
    Int(i64),
    Real(f64),
    /// Text as stored. SQLite does not check that it is UTF-8, so this type does not either.
    Text(&'a [u8]),
    Blob(&'a [u8]),
}

impl Value {
    /// Borrows the value.
    pub fn as_ref(&self) -> ValueRef<'_> {
        match self {
            Value::Null => ValueRef::Null,
            Value::Int(i) => ValueRef::Int(*i),
            Value::Real(r) => ValueRef::Real(*r),
            Value::Text(t) => ValueRef::Text(t.as_bytes()),
            Value::Blob(b) => ValueRef::Blob(b),
        }
    }

    /// The bytes of a text or blob.
    pub fn bytes(&self) -> usize {
        match self {
            Value::Text(t) => t.len(),
            Value::Blob(b) => b.len(),
            Value::Null | Value::Int(_) | Value::Real(_) => 0,
        }
    }
}

impl ValueRef<'_> {
    /// Makes an owned copy; invalid bytes in text that is not UTF-8 are replaced.
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
