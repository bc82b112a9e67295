//! Converts the parameters of Bind, text or binary, to values as they are stored.

use crate::datetime;
use crate::numeric;
use holdfast_types::array::{Array, DIMENSIONS_MAX, Dimension, too_many_dimensions};
use holdfast_types::desc::{element_of, is_vector, oid};
use holdfast_types::inet::Inet;
use holdfast_types::{SqlError, SqlResult, SqlState, Value};

/// A type's input function: type OID and text to a value. Supplied by the dialect.
pub type Input = fn(u32, &str) -> SqlResult<Value>;

/// Reads parameter number `n` (from 1) of type `type_oid`.
pub fn param(n: usize, type_oid: u32, bytes: &[u8], binary: bool, input: Input) -> SqlResult<Value> {
    match (binary, element_of(type_oid)) {
        (false, _) => text_param(n, type_oid, bytes, input),
        (true, None) => binary_param(n, type_oid, bytes, input),
        (true, Some(element)) => array(n, type_oid, element, bytes, input),
    }
}

fn text_param(n: usize, type_oid: u32, bytes: &[u8], input: Input) -> SqlResult<Value> {
    let text = utf8(n, bytes)?;
    match type_oid {
        oid::TEXT | oid::VARCHAR | oid::UNKNOWN | 0 => Ok(Value::Text(text.to_owned())),
        oid::INT8 => text.parse().map(Value::Int).or_else(|_| input(type_oid, text)),
        oid::INT4 => text.parse::<i32>().map(|i| Value::Int(i64::from(i))).or_else(|_| input(type_oid, text)),
        _ => input(type_oid, text),
    }
}

fn utf8(n: usize, bytes: &[u8]) -> SqlResult<&str> {
    let text = std::str::from_utf8(bytes).ok().filter(|t| memchr::memchr(0, t.as_bytes()).is_none());
    text.ok_or_else(|| {
        SqlError::new(
            SqlState::CHARACTER_NOT_IN_REPERTOIRE,
            format!("invalid byte sequence for encoding \"UTF8\" in parameter ${n}"),
        )
    })
}

fn incorrect(n: usize) -> SqlError {
    let message = format!("incorrect binary data format in bind parameter {n}");
    SqlError::new(SqlState::INVALID_BINARY_REPRESENTATION, message)
}

/// Reads an array in binary format; `encode` has its byte table. The dialect's input function puts its text into canonical form.
fn array(n: usize, type_oid: u32, element: u32, bytes: &[u8], input: Input) -> SqlResult<Value> {
    let mut rest = bytes;
    let number = |rest: &mut &[u8]| -> SqlResult<i32> {
        let (head, tail) = rest.split_first_chunk::<4>().ok_or_else(|| incorrect(n))?;
        *rest = tail;
        Ok(i32::from_be_bytes(*head))
    };
    let (ndim, _flags, sent) = (number(&mut rest)?, number(&mut rest)?, number(&mut rest)? as u32);
    let ndim = usize::try_from(ndim).map_err(|_| incorrect(n))?;
    if ndim > DIMENSIONS_MAX {
        return Err(too_many_dimensions(ndim));
    }
    if sent != element && ndim > 0 {
        let message = format!("binary data has array element type {sent} instead of expected {element}");
        return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
    }
    let mut array = Array::default();
    let mut count: usize = usize::from(ndim > 0);
    for _ in 0..ndim {
        let (len, lower) = (number(&mut rest)?, number(&mut rest)?);
        let len = usize::try_from(len).map_err(|_| incorrect(n))?;
        count = count.saturating_mul(len);
        array.dims.push(Dimension { len, lower });
    }
    // Each element has at least its length, so the bytes bound what is reserved.
    if count > rest.len() / 4 {
        return Err(incorrect(n));
    }
    for _ in 0..count {
        let len = number(&mut rest)?;
        let Ok(len) = usize::try_from(len) else {
            array.elements.push(None);
            continue;
        };
        let (item, tail) = rest.split_at_checked(len).ok_or_else(|| incorrect(n))?;
        rest = tail;
        array.elements.push(Some(shown(element, binary_param(n, element, item, input)?)));
    }
    if !rest.is_empty() {
        return Err(incorrect(n));
    }
    if array.elements.is_empty() {
        array.dims.clear();
    }
    let text = if is_vector(type_oid) { array.to_vector_text() } else { array.to_text() };
    input(type_oid, &text)
}

/// The text of a value that the input function reads.
fn shown(type_oid: u32, value: Value) -> String {
    match value {
        Value::Int(b) if type_oid == oid::BOOL => if b != 0 { "t" } else { "f" }.to_owned(),
        Value::Int(i) => i.to_string(),
        Value::Real(r) if r.is_infinite() => if r > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        Value::Real(r) if type_oid == oid::FLOAT4 => (r as f32).to_string(),
        Value::Real(r) => r.to_string(),
        Value::Text(t) => t,
        Value::Blob(b) => b.iter().fold("\\x".to_owned(), |out, byte| out + &format!("{byte:02x}")),
        Value::Null => String::new(),
    }
}

fn binary_param(n: usize, type_oid: u32, bytes: &[u8], input: Input) -> SqlResult<Value> {
    let bad = || incorrect(n);
    fn array<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
        bytes.try_into().ok()
    }
    let value = match type_oid {
        oid::INT8 => array(bytes).map(|b| Value::Int(i64::from_be_bytes(b))),
        oid::INT4 => array(bytes).map(|b| Value::Int(i32::from_be_bytes(b).into())),
        oid::INT2 => array(bytes).map(|b| Value::Int(i16::from_be_bytes(b).into())),
        oid::OID | oid::REGCLASS => array(bytes).map(|b| Value::Int(u32::from_be_bytes(b).into())),
        oid::BOOL => array(bytes).map(|[b]| Value::Int(i64::from(b != 0))),
        oid::FLOAT8 => array(bytes).map(|b| real(f64::from_be_bytes(b))),
        oid::FLOAT4 => array(bytes).map(|b| real(f32::from_be_bytes(b).into())),
        oid::BYTEA => Some(Value::Blob(bytes.to_vec())),
        oid::DATE => array(bytes).map(|b| Value::Text(datetime::days_to_date(i32::from_be_bytes(b)))),
        oid::TIME => array(bytes).and_then(|b| datetime::us_to_time(i64::from_be_bytes(b))).map(Value::Text),
        oid::TIMESTAMP => {
            array(bytes).and_then(|b| datetime::us_to_timestamp(i64::from_be_bytes(b), "")).map(Value::Text)
        }
        oid::TIMESTAMPTZ => {
            array(bytes).and_then(|b| datetime::us_to_timestamp(i64::from_be_bytes(b), "+00")).map(Value::Text)
        }
        oid::INTERVAL => {
            array(bytes).map(|b| Value::Text(holdfast_types::interval::Interval::from_binary(&b).to_string()))
        }
        oid::UUID => array(bytes).map(|b| Value::Text(uuid(&b))),
        oid::PG_LSN => {
            array(bytes).map(u64::from_be_bytes).map(|n| Value::Text(format!("{:X}/{:X}", n >> 32, n as u32)))
        }
        oid::INET => Inet::from_binary(bytes).map(|address| Value::Text(address.to_string())),
        oid::NUMERIC => numeric::from_binary(bytes).map(Value::Text),
        oid::JSONB => match bytes {
            [1, json @ ..] => return utf8(n, json).and_then(|text| input(type_oid, text)),
            _ => None,
        },
        oid::TEXT | oid::VARCHAR | oid::BPCHAR | oid::NAME | oid::CHAR | oid::JSON | oid::UNKNOWN | 0 => {
            return utf8(n, bytes).map(|t| Value::Text(t.to_owned()));
        }
        _ => {
            return Err(SqlError::unsupported(format!("binary format for parameter ${n} of type {type_oid}"))
                .with_hint("Send the parameter in text format."));
        }
    };
    value.ok_or_else(bad)
}

/// SQLite silently converts a NaN to NULL, so it is stored as the text that PostgreSQL shows.
fn real(value: f64) -> Value {
    if value.is_nan() { Value::Text("NaN".into()) } else { Value::Real(value) }
}

fn uuid(bytes: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(type_oid: u32, text: &str) -> SqlResult<Value> {
        if type_oid == oid::JSONB {
            return Ok(Value::Text(text.to_owned()));
        }
        Err(SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, text))
    }

    fn binary(type_oid: u32, bytes: &[u8]) -> SqlResult<Value> {
        param(1, type_oid, bytes, true, refuse)
    }

    #[test]
    fn binary_parameters() {
        assert_eq!(binary(oid::INT2, &[0xff, 0xff]).unwrap(), Value::Int(-1));
        assert_eq!(binary(oid::DATE, &[0, 0, 0, 1]).unwrap(), Value::Text("2000-01-02".into()));
        assert_eq!(binary(oid::JSONB, b"\x01[]").unwrap(), Value::Text("[]".into()));
        assert_eq!(binary(oid::UUID, &[0xab; 16]).unwrap(), Value::Text("abababab-abab-abab-abab-abababababab".into()));
        assert_eq!(binary(oid::BYTEA, &[0, 255]).unwrap(), Value::Blob(vec![0, 255]));
    }

    #[test]
    fn binary_arrays() {
        fn keep(_: u32, text: &str) -> SqlResult<Value> {
            Ok(Value::Text(text.to_owned()))
        }
        let read = |type_oid, bytes: &[u8]| param(1, type_oid, bytes, true, keep);
        let ints =
            [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 23, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 1, 255, 255, 255, 255];
        assert_eq!(read(1007, &ints).unwrap(), Value::Text("{1,NULL}".into()));
        assert_eq!(read(1009, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 25]).unwrap(), Value::Text("{}".into()));
        assert_eq!(read(1016, &ints).unwrap_err().state().0, "42804");
        for cut in 0..ints.len() {
            assert_eq!(read(1007, &ints[..cut]).unwrap_err().state().0, "22P03", "{cut}");
        }
        let mut huge = ints;
        huge[12..16].copy_from_slice(&i32::MAX.to_be_bytes());
        assert_eq!(read(1007, &huge).unwrap_err().state().0, "22P03");
    }

    #[test]
    fn wrong_sizes_and_bad_text_are_refused() {
        assert_eq!(binary(oid::INT4, &[1, 2, 3]).unwrap_err().state().0, "22P03");
        assert_eq!(binary(oid::TEXT, &[0xff]).unwrap_err().state().0, "22021");
        assert_eq!(binary(oid::TEXT, b"a\0b").unwrap_err().state().0, "22021");
        assert_eq!(param(1, oid::INT4, b"99999999999", false, refuse).unwrap_err().state().0, "22P02");
        assert_eq!(binary(oid::INTERVAL, &[0; 16]).unwrap(), Value::Text("00:00:00".into()));
    }
}
