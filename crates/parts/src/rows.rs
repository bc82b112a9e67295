//! Rows on their way into the server.
//!
//! | the database's dialect | how |
//! |---|---|
//! | PostgreSQL's | COPY in text format: what the server's output functions print, its input functions store as it was |
//! | SQLite's | INSERT with parameters that have the type of each value, because a column may hold several. Numbers are binary, so no digit is lost; text that is not UTF-8, or has a zero byte, goes as bytes and is cast back |

use bytes::{BufMut, BytesMut};
use holdfast_sql::types::{self, Type};
use holdfast_types::ValueRef;
use std::error::Error;
use std::fmt::Write as _;
use tokio_postgres::types::{IsNull, ToSql, Type as PgType, to_sql_checked};

/// Appends a row in COPY's text format.
pub fn put_copy_row<'a>(values: impl Iterator<Item = (Type, ValueRef<'a>)>, scratch: &mut Vec<u8>, out: &mut BytesMut) {
    for (place, (ty, value)) in values.enumerate() {
        if place > 0 {
            out.put_u8(b'\t');
        }
        if value == ValueRef::Null {
            out.put_slice(b"\\N");
            continue;
        }
        scratch.clear();
        types::output(ty.oid, ty.typmod, value, scratch);
        for byte in scratch.iter() {
            match byte {
                b'\\' => out.put_slice(b"\\\\"),
                b'\n' => out.put_slice(b"\\n"),
                b'\r' => out.put_slice(b"\\r"),
                b'\t' => out.put_slice(b"\\t"),
                byte => out.put_u8(*byte),
            }
        }
    }
    out.put_u8(b'\n');
}

/// A value as a parameter.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    Null,
    Int(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
    /// Text that a client cannot send as such.
    Bytes(Vec<u8>),
}

impl Cell {
    pub fn of(value: ValueRef<'_>) -> Cell {
        match value {
            ValueRef::Null => Cell::Null,
            ValueRef::Int(n) => Cell::Int(n),
            ValueRef::Real(n) => Cell::Real(n),
            ValueRef::Blob(bytes) => Cell::Blob(bytes.to_vec()),
            ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) if !text.contains('\0') => Cell::Text(text.to_owned()),
                _ => Cell::Bytes(bytes.to_vec()),
            },
        }
    }

    /// About the bytes that it has in a message.
    pub fn bytes(&self) -> usize {
        8 + match self {
            Cell::Null | Cell::Int(_) | Cell::Real(_) => 8,
            Cell::Text(text) => text.len(),
            Cell::Blob(bytes) | Cell::Bytes(bytes) => bytes.len(),
        }
    }

    fn form(&self) -> Form {
        match self {
            Cell::Null => Form::Any,
            Cell::Int(_) => Form::Int,
            Cell::Real(_) => Form::Real,
            Cell::Text(_) => Form::Text,
            Cell::Blob(_) => Form::Blob,
            Cell::Bytes(_) => Form::Bytes,
        }
    }
}

impl ToSql for Cell {
    fn to_sql(&self, ty: &PgType, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Cell::Null => Ok(IsNull::Yes),
            Cell::Int(n) => n.to_sql(ty, out),
            Cell::Real(n) => n.to_sql(ty, out),
            Cell::Text(text) => text.to_sql(ty, out),
            Cell::Blob(bytes) | Cell::Bytes(bytes) => bytes.to_sql(ty, out),
        }
    }

    fn accepts(_: &PgType) -> bool {
        true
    }

    to_sql_checked!();
}

/// The type of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Form {
    /// Only NULL so far.
    Any,
    Int,
    Real,
    Text,
    Blob,
    Bytes,
}

impl Form {
    fn pg(self) -> PgType {
        match self {
            Form::Int => PgType::INT8,
            Form::Real => PgType::FLOAT8,
            Form::Any | Form::Text => PgType::TEXT,
            Form::Blob | Form::Bytes => PgType::BYTEA,
        }
    }
}

/// Most rows, parameters and bytes of an INSERT.
const ROWS_MAX: usize = 64;
const PARAMETERS_MAX: usize = 8_000;
const BYTES_MAX: usize = 1 << 20;

/// Rows of one INSERT, whose columns have the same types.
#[derive(Default)]
pub struct Rows {
    forms: Vec<Form>,
    cells: Vec<Cell>,
    rows: usize,
    bytes: usize,
}

impl Rows {
    /// Takes a row; gives it back where the INSERT has to be run first.
    pub fn take(&mut self, row: Vec<Cell>) -> Result<(), Vec<Cell>> {
        if self.rows == 0 {
            self.forms = row.iter().map(Cell::form).collect();
        }
        let fits = |(known, cell): (&Form, &Cell)| {
            let form = cell.form();
            form == Form::Any || *known == Form::Any || *known == form
        };
        let is_full = self.rows >= ROWS_MAX || self.cells.len() + row.len() > PARAMETERS_MAX || self.bytes > BYTES_MAX;
        if self.rows > 0 && (is_full || !self.forms.iter().zip(&row).all(fits)) {
            return Err(row);
        }
        for (known, cell) in self.forms.iter_mut().zip(&row) {
            if *known == Form::Any {
                *known = cell.form();
            }
        }
        self.rows += 1;
        self.bytes += row.iter().map(Cell::bytes).sum::<usize>();
        self.cells.extend(row);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The INSERT behind its list of columns, the types of its parameters, and these.
    pub fn statement(&self, into: &str) -> (String, Vec<PgType>) {
        let mut sql = format!("{into} VALUES ");
        let columns = self.forms.len();
        for row in 0..self.rows {
            sql.push_str(if row == 0 { "(" } else { ", (" });
            for (place, form) in self.forms.iter().enumerate() {
                let number = row * columns + place + 1;
                sql.push_str(if place == 0 { "" } else { ", " });
                // Writing to a String cannot fail.
                let _ = match form {
                    Form::Bytes => write!(sql, "CAST(${number} AS TEXT)"),
                    _ => write!(sql, "${number}"),
                };
            }
            sql.push(')');
        }
        let types = (0..self.rows).flat_map(|_| self.forms.iter().map(|form| form.pg())).collect();
        (sql, types)
    }

    /// The parameters; the next rows begin a new INSERT.
    pub fn clear(&mut self) -> Vec<Cell> {
        (self.rows, self.bytes) = (0, 0);
        std::mem::take(&mut self.cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_types::desc::oid;

    #[test]
    fn copy_text_has_every_byte() {
        let (mut scratch, mut out) = (Vec::new(), BytesMut::new());
        let row = [
            (Type::TEXT, ValueRef::Text(b"a\\b\tc\nd\re")),
            (Type::TEXT, ValueRef::Null),
            (Type::TEXT, ValueRef::Text(b"\\N")),
            (Type::new(oid::BYTEA), ValueRef::Blob(&[0, 92])),
            (Type::BOOL, ValueRef::Int(0)),
        ];
        put_copy_row(row.into_iter(), &mut scratch, &mut out);
        assert_eq!(&out[..], b"a\\\\b\\tc\\nd\\re\t\\N\t\\\\N\t\\\\x005c\tf\n");
    }

    #[test]
    fn rows_of_the_same_types_share_an_insert() {
        let mut rows = Rows::default();
        assert!(rows.take(vec![Cell::Int(1), Cell::Null]).is_ok());
        assert!(rows.take(vec![Cell::Null, Cell::of(ValueRef::Text(&[0xff]))]).is_ok());
        let other = vec![Cell::Int(2), Cell::Text("x".into())];
        assert_eq!(rows.take(other.clone()), Err(other.clone()));
        let (sql, types) = rows.statement("INSERT INTO t(a, b)");
        assert_eq!(sql, "INSERT INTO t(a, b) VALUES ($1, CAST($2 AS TEXT)), ($3, CAST($4 AS TEXT))");
        assert_eq!(types, [PgType::INT8, PgType::BYTEA, PgType::INT8, PgType::BYTEA]);
        assert_eq!(rows.clear().len(), 4);
        assert!(rows.is_empty() && rows.take(other).is_ok());
        assert_eq!(Cell::of(ValueRef::Text(b"a\0b")), Cell::Bytes(b"a\0b".to_vec()));
    }
}
