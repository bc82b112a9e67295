//! Writes result values as a client receives them, in text and in binary format.
//!
//! A column's output depends on its type, not on the storage class of the value in SQLite. If the two do not match,
//! text format shows the value as it is; binary format reports an error that names the type.

use crate::datetime;
use crate::numeric;
use holdfast_types::array::Array;
use holdfast_types::desc::{element_of, oid};
use holdfast_types::inet::Inet;
use holdfast_types::lsn::parse_lsn;
use holdfast_types::{ColumnDesc, SqlError, SqlResult, SqlState, ValueRef};

/// The text form of a value of a type, appended: type OID, type modifier, value. Supplied by the dialect.
pub type Output = fn(u32, i32, ValueRef<'_>, &mut Vec<u8>);

/// Size in bytes of a type's binary form as RowDescription reports it, -1 where it varies (`pg_type.typlen`).
pub fn type_len(type_oid: u32) -> i16 {
    match type_oid {
        oid::BOOL | oid::CHAR => 1,
        oid::INT2 => 2,
        oid::INT4 | oid::OID | oid::FLOAT4 | oid::DATE | oid::REGCLASS | oid::REGPROC | oid::VOID => 4,
        oid::INT8 | oid::FLOAT8 | oid::PG_LSN | oid::TIME | oid::TIMESTAMP | oid::TIMESTAMPTZ => 8,
        oid::TIMETZ => 12,
        oid::UUID | oid::INTERVAL => 16,
        oid::NAME => 64,
        oid::UNKNOWN => -2,
        _ => -1,
    }
}

/// Appends one value as a DataRow field: length and bytes.
pub fn field(
    out: &mut Vec<u8>,
    value: ValueRef<'_>,
    column: &ColumnDesc,
    binary: bool,
    output: Output,
) -> SqlResult<()> {
    if let ValueRef::Null = value {
        out.extend_from_slice(&(-1i32).to_be_bytes());
        return Ok(());
    }
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    if binary {
        binary_value(out, value, column, output)?;
    } else {
        text_value(out, value, column, output);
    }
    let bytes = i32::try_from(out.len() - at - 4)
        .map_err(|_| SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a result value is larger than 2 GB"))?;
    out[at..at + 4].copy_from_slice(&bytes.to_be_bytes());
    Ok(())
}

/// Appends the text form of a value. Integers and plain text, the most frequent values, are written here.
pub fn text_value(out: &mut Vec<u8>, value: ValueRef<'_>, column: &ColumnDesc, output: Output) {
    match value {
        // These four are stored as numbers and shown as words; 2202 is regprocedure, 2206 regtype.
        ValueRef::Int(i) if !matches!(column.type_oid, oid::BOOL | oid::REGPROC | 2202 | 2206) => integer(out, i),
        ValueRef::Text(t) if !matches!(column.type_oid, oid::BOOL | oid::BPCHAR | oid::BYTEA) => {
            // The elements of an array are stored as text, except where the session decides how they are shown.
            match element_of(column.type_oid) {
                Some(oid::TIMESTAMPTZ | oid::INTERVAL) => output(column.type_oid, column.typmod, value, out),
                _ => out.extend_from_slice(t),
            }
        }
        _ => output(column.type_oid, column.typmod, value, out),
    }
}

/// Appends a decimal integer.
pub fn integer(out: &mut Vec<u8>, value: i64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

fn binary_value(out: &mut Vec<u8>, value: ValueRef<'_>, column: &ColumnDesc, output: Output) -> SqlResult<()> {
    let misfit = || {
        SqlError::new(
            SqlState::INVALID_BINARY_REPRESENTATION,
            format!("a value of column \"{}\" has no binary form as type {}", column.name, column.type_oid),
        )
        .with_hint("Request the column in text format, or cast it to text.")
    };
    match column.type_oid {
        oid::INT8 => out.extend_from_slice(&int(value).ok_or_else(misfit)?.to_be_bytes()),
        oid::INT4 => out.extend_from_slice(&narrow::<i32>(value, misfit)?.to_be_bytes()),
        oid::INT2 => out.extend_from_slice(&narrow::<i16>(value, misfit)?.to_be_bytes()),
        oid::OID | oid::REGCLASS | oid::REGPROC => out.extend_from_slice(&narrow::<u32>(value, misfit)?.to_be_bytes()),
        oid::BOOL => out.push(boolean(value).ok_or_else(misfit)?.into()),
        oid::FLOAT8 => out.extend_from_slice(&real(value).ok_or_else(misfit)?.to_be_bytes()),
        oid::FLOAT4 => out.extend_from_slice(&(real(value).ok_or_else(misfit)? as f32).to_be_bytes()),
        oid::BYTEA => match value {
            ValueRef::Blob(b) | ValueRef::Text(b) => out.extend_from_slice(b),
            _ => return Err(misfit()),
        },
        oid::DATE => {
            out.extend_from_slice(&text(value).and_then(datetime::date_to_days).ok_or_else(misfit)?.to_be_bytes())
        }
        oid::TIME => {
            out.extend_from_slice(&text(value).and_then(datetime::time_to_us).ok_or_else(misfit)?.to_be_bytes())
        }
        oid::TIMESTAMP | oid::TIMESTAMPTZ => {
            out.extend_from_slice(&text(value).and_then(datetime::timestamp_to_us).ok_or_else(misfit)?.to_be_bytes())
        }
        oid::INTERVAL => {
            let read = text(value).and_then(|t| holdfast_types::interval::parse(t, None).ok());
            out.extend_from_slice(&read.ok_or_else(misfit)?.to_binary());
        }
        oid::UUID => out.extend_from_slice(&text(value).and_then(uuid).ok_or_else(misfit)?),
        oid::PG_LSN => out.extend_from_slice(&text(value).and_then(parse_lsn).ok_or_else(misfit)?.to_be_bytes()),
        oid::INET => text(value).and_then(Inet::parse).ok_or_else(misfit)?.to_binary(out),
        oid::NUMERIC => {
            let mut decimal = Vec::new();
            text_value(&mut decimal, value, column, output);
            std::str::from_utf8(&decimal).ok().and_then(|t| numeric::to_binary(t, out)).ok_or_else(misfit)?;
        }
        oid::JSONB => {
            out.push(1); // version of the binary format
            text_value(out, value, column, output);
        }
        oid::VOID => {}
        _ if element_of(column.type_oid).is_some() => array(out, text(value).ok_or_else(misfit)?, column, output)?,
        oid::TEXT | oid::VARCHAR | oid::BPCHAR | oid::NAME | oid::CHAR | oid::JSON | oid::UNKNOWN => {
            text_value(out, value, column, output)
        }
        _ => return Err(misfit()),
    }
    Ok(())
}

/// Appends the binary form of an array (`array_send`):
///
/// | bytes | content |
/// |---|---|
/// | 4 | number of dimensions, 0 for an empty array |
/// | 4 | 1 if an element is NULL |
/// | 4 | type of the elements |
/// | 8 each | length of a dimension, subscript of its first element |
/// | 4 + n each | length of an element, -1 for NULL; its binary form |
fn array(out: &mut Vec<u8>, text: &str, column: &ColumnDesc, output: Output) -> SqlResult<()> {
    let read = Array::parse(text)?;
    let element = element_of(column.type_oid).unwrap_or_default();
    let inner = ColumnDesc { type_oid: element, ..column.clone() };
    let number = |out: &mut Vec<u8>, n: i32| out.extend_from_slice(&n.to_be_bytes());
    number(out, read.dims.len() as i32);
    number(out, read.elements.iter().any(Option::is_none).into());
    out.extend_from_slice(&element.to_be_bytes());
    for d in &read.dims {
        number(out, d.len as i32);
        number(out, d.lower);
    }
    for item in &read.elements {
        let bytes;
        let value = match item {
            None => ValueRef::Null,
            Some(hex) if element == oid::BYTEA => {
                bytes = from_hex(hex).ok_or_else(|| {
                    SqlError::new(SqlState::INVALID_BINARY_REPRESENTATION, "an element of a bytea[] is not hexadecimal")
                })?;
                ValueRef::Blob(&bytes)
            }
            Some(text) => ValueRef::Text(text.as_bytes()),
        };
        field(out, value, &inner, true, output)?;
    }
    Ok(())
}

/// Reads `\\x` and hexadecimal digits.
fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.strip_prefix("\\x")?.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    let digits = digits?;
    digits.len().is_multiple_of(2).then(|| digits.chunks(2).map(|pair| pair[0] * 16 + pair[1]).collect())
}

fn text(value: ValueRef<'_>) -> Option<&str> {
    match value {
        ValueRef::Text(t) => std::str::from_utf8(t).ok(),
        _ => None,
    }
}

fn int(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Int(i) => Some(i),
        ValueRef::Real(r) if r.fract() == 0.0 && r.abs() < 9e15 => Some(r as i64),
        _ => text(value)?.trim().parse().ok(),
    }
}

fn narrow<T: TryFrom<i64>>(value: ValueRef<'_>, misfit: impl Fn() -> SqlError) -> SqlResult<T> {
    T::try_from(int(value).ok_or_else(&misfit)?).map_err(|_| misfit())
}

fn real(value: ValueRef<'_>) -> Option<f64> {
    match value {
        ValueRef::Real(r) => Some(r),
        ValueRef::Int(i) => Some(i as f64),
        _ => text(value)?.trim().parse().ok(),
    }
}

fn boolean(value: ValueRef<'_>) -> Option<bool> {
    match value {
        ValueRef::Int(i) => Some(i != 0),
        _ => match text(value)? {
            "t" | "true" => Some(true),
            "f" | "false" => Some(false),
            _ => None,
        },
    }
}

/// Reads a uuid's text as 16 bytes; dashes are ignored.
fn uuid(text: &str) -> Option<[u8; 16]> {
    let mut bytes = [0u8; 16];
    let mut digits = text.bytes().filter(|b| *b != b'-').map(|b| (b as char).to_digit(16));
    for byte in &mut bytes {
        *byte = (digits.next()?? * 16 + digits.next()??) as u8;
    }
    digits.next().is_none().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(_: u32, _: i32, value: ValueRef<'_>, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{value:?}").as_bytes());
    }

    fn binary(value: ValueRef<'_>, type_oid: u32) -> SqlResult<Vec<u8>> {
        let mut out = Vec::new();
        field(&mut out, value, &ColumnDesc::new("c", type_oid), true, plain)?;
        assert_eq!(out[..4], (out.len() as i32 - 4).to_be_bytes());
        Ok(out[4..].to_vec())
    }

    #[test]
    fn integers_as_text() {
        for i in [0, 1, -1, 42, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            integer(&mut out, i);
            assert_eq!(String::from_utf8(out).unwrap(), i.to_string());
        }
    }

    #[test]
    fn golden_binary_forms() {
        assert_eq!(binary(ValueRef::Int(-2), oid::INT4).unwrap(), [0xff, 0xff, 0xff, 0xfe]);
        assert_eq!(binary(ValueRef::Int(1), oid::BOOL).unwrap(), [1]);
        assert_eq!(binary(ValueRef::Real(1.5), oid::FLOAT8).unwrap(), 1.5f64.to_be_bytes());
        assert_eq!(binary(ValueRef::Text(b"2000-01-02"), oid::DATE).unwrap(), [0, 0, 0, 1]);
        assert_eq!(binary(ValueRef::Text(b"{}"), oid::JSONB).unwrap(), [1, b'{', b'}']);
        let uuid = b"00112233-4455-6677-8899-aabbccddeeff";
        assert_eq!(binary(ValueRef::Text(uuid), oid::UUID).unwrap()[..3], [0, 0x11, 0x22]);
        assert_eq!(binary(ValueRef::Int(12), oid::NUMERIC).unwrap(), [0, 1, 0, 0, 0, 0, 0, 0, 0, 12]);
    }

    #[test]
    fn golden_binary_arrays() {
        let ints = binary(ValueRef::Text(b"{1,NULL}"), 1007).unwrap();
        let expected =
            [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 23, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1, 255, 255, 255, 255];
        assert_eq!(ints, expected);
        assert_eq!(binary(ValueRef::Text(b"{}"), 1009).unwrap(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 25]);
        let vector = binary(ValueRef::Text(b"3"), 22).unwrap();
        assert_eq!(vector[..20], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 21, 0, 0, 0, 1, 0, 0, 0, 0]);
        let bytes = binary(ValueRef::Text(br#"{"\\x00ff"}"#), 1001).unwrap();
        assert_eq!(bytes[20..], [0, 0, 0, 2, 0, 255]);
        let nested = binary(ValueRef::Text(b"{{t},{f}}"), 1000).unwrap();
        assert_eq!(nested[12..28], [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(nested[28..], [0, 0, 0, 1, 1, 0, 0, 0, 1, 0]);
        assert!(binary(ValueRef::Text(b"{a}"), 1007).is_err() && binary(ValueRef::Text(b"{1"), 1007).is_err());
    }

    #[test]
    fn a_misfit_is_an_error_in_binary_only() {
        assert_eq!(binary(ValueRef::Int(1 << 40), oid::INT4).unwrap_err().state().0, "22P03");
        assert!(binary(ValueRef::Text(b"abc"), oid::INT8).is_err());
        assert!(binary(ValueRef::Text(b"123"), oid::UUID).is_err());
        let mut out = Vec::new();
        field(&mut out, ValueRef::Text(b"abc"), &ColumnDesc::new("c", oid::INT8), false, plain).unwrap();
        assert_eq!(out, b"\0\0\0\x03abc");
    }
}
