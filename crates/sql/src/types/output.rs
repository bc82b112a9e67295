//! Converts a stored value to the text that a client sees, as PostgreSQL's output functions do.

use super::decimal::Decimal;
use super::names::{by_oid, format_type};
use super::sql_type::{Type, more};
use holdfast_types::ValueRef;
use holdfast_types::array::Array;
use holdfast_types::desc::{element_of, oid};
use std::io::Write;

/// Appends the text form of a value that is not NULL. A value whose storage class does not fit the type (possible
/// in files that other programs wrote) is printed by its storage class.
pub fn output(type_oid: u32, typmod: i32, value: ValueRef<'_>, out: &mut Vec<u8>) {
    match (type_oid, value) {
        (oid::BOOL, ValueRef::Int(b)) => out.push(if b != 0 { b't' } else { b'f' }),
        (oid::FLOAT8 | oid::FLOAT4, ValueRef::Int(i)) => float(i as f64, type_oid == oid::FLOAT4, out),
        (oid::FLOAT8 | oid::FLOAT4, ValueRef::Real(r)) => float(r, type_oid == oid::FLOAT4, out),
        (oid::NUMERIC, ValueRef::Real(r)) => match Decimal::from_f64(r) {
            Ok(number) => append(out, format_args!("{number}")),
            Err(_) => append(out, format_args!("{r}")),
        },
        (oid::BPCHAR, ValueRef::Text(text)) => {
            out.extend_from_slice(text);
            let width = (typmod - 4).max(0) as usize;
            let length = String::from_utf8_lossy(text).chars().count();
            out.extend(std::iter::repeat_n(b' ', width.saturating_sub(length)));
        }
        (more::REGTYPE | oid::REGPROC | more::REGPROCEDURE, ValueRef::Int(0)) => out.push(b'-'),
        (more::REGTYPE, ValueRef::Int(i)) => {
            match u32::try_from(i).ok().filter(|o| by_oid(*o).is_some() || element_of(*o).is_some()) {
                Some(o) => out.extend_from_slice(format_type(o, -1).as_bytes()),
                None => append(out, format_args!("{i}")),
            }
        }
        (_, ValueRef::Null) => {}
        (_, ValueRef::Text(text)) if matches!(element_of(type_oid), Some(oid::TIMESTAMPTZ | oid::INTERVAL)) => {
            array(type_oid, typmod, text, out);
        }
        (_, ValueRef::Int(i)) => append(out, format_args!("{i}")),
        (_, ValueRef::Real(r)) => float(r, false, out),
        (_, ValueRef::Text(text)) => out.extend_from_slice(text),
        (_, ValueRef::Blob(bytes)) => {
            out.extend_from_slice(b"\\x");
            for b in bytes {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                out.push(HEX[usize::from(b >> 4)]);
                out.push(HEX[usize::from(b & 15)]);
            }
        }
    }
}

/// Appends an array whose elements are shown in another form than they are stored in.
fn array(type_oid: u32, typmod: i32, text: &[u8], out: &mut Vec<u8>) {
    let element = Type { oid: element_of(type_oid).unwrap_or(oid::TEXT), typmod };
    match Array::parse(&String::from_utf8_lossy(text)) {
        Ok(mut array) => {
            array
                .elements
                .iter_mut()
                .flatten()
                .for_each(|item| *item = text_of(element, ValueRef::Text(item.as_bytes())));
            out.extend_from_slice(array.to_text().as_bytes());
        }
        Err(_) => out.extend_from_slice(text),
    }
}

/// The text form of a value as a string.
pub fn text_of(ty: Type, value: ValueRef<'_>) -> String {
    let mut out = Vec::new();
    output(ty.oid, ty.typmod, value, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn append(out: &mut Vec<u8>, args: std::fmt::Arguments<'_>) {
    // Writing to a Vec cannot fail.
    let _ = out.write_fmt(args);
}

/// Writes the shortest digits that read back as the same number, as PostgreSQL's float8out and float4out do: with an
/// exponent below 1e-4 and from 1e15 (real: 1e6) on.
fn float(value: f64, single: bool, out: &mut Vec<u8>) {
    if value == 0.0 {
        return out.extend_from_slice(if value.is_sign_negative() { b"-0" } else { b"0" });
    }
    if !value.is_finite() {
        let text: &[u8] = if value.is_nan() {
            b"NaN"
        } else if value > 0.0 {
            b"Infinity"
        } else {
            b"-Infinity"
        };
        return out.extend_from_slice(text);
    }
    let scientific = if single { format!("{:e}", value as f32) } else { format!("{value:e}") };
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..if single { 6 } else { 15 }).contains(&exponent) {
        return if single {
            append(out, format_args!("{}", value as f32))
        } else {
            append(out, format_args!("{value}"))
        };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    append(out, format_args!("{mantissa}e{sign}{:02}", exponent.abs()));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected texts as PostgreSQL 15 prints them.
    #[test]
    fn floats_print_as_postgresql_does() {
        let cases = [
            (0.1, "0.1"),
            (100000.0, "100000"),
            (1e14, "100000000000000"),
            (1e15, "1e+15"),
            (123456789012345680.0, "1.2345678901234568e+17"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-2.5, "-2.5"),
            (1e300, "1e+300"),
        ];
        for (value, expected) in cases {
            assert_eq!(text_of(Type::FLOAT8, ValueRef::Real(value)), expected);
        }
        assert_eq!(text_of(Type::new(oid::FLOAT4), ValueRef::Real(f64::from(0.1f32))), "0.1");
        assert_eq!(text_of(Type::new(oid::FLOAT4), ValueRef::Real(1e6)), "1e+06");
    }

    #[test]
    fn other_types() {
        assert_eq!(text_of(Type::BOOL, ValueRef::Int(1)), "t");
        assert_eq!(text_of(Type { oid: oid::BPCHAR, typmod: 9 }, ValueRef::Text(b"ab")), "ab   ");
        assert_eq!(text_of(Type::new(oid::BYTEA), ValueRef::Blob(&[0, 255])), "\\x00ff");
        assert_eq!(text_of(Type::new(more::REGTYPE), ValueRef::Int(23)), "integer");
    }
}
