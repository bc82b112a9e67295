//! Casts between types on stored values, for constants at translation, parameters at binding, and `hf_cast` at
//! run time.

use super::array::{cast_array, element_type};
use super::datetime::{self, DAY_US};
use super::decimal::Decimal;
use super::input::{input, out_of_range, string};
use super::output::text_of;
use super::sql_type::{Category, Type, numeric_modifier};
use holdfast_types::desc::oid;
use holdfast_types::inet::Inet;
use holdfast_types::interval::Interval;
use holdfast_types::{SqlError, SqlResult, SqlState, Value, ValueRef};

/// Casts a stored value of type `from` to `to`. `explicit` casts to varchar(n) truncate instead of failing. Errors are
/// PostgreSQL's: 22P02, 22003, 22001, 42846 where there is no such cast.
pub fn cast(value: ValueRef<'_>, from: Type, to: Type, explicit: bool) -> SqlResult<Value> {
    if matches!(value, ValueRef::Null) {
        return Ok(Value::Null);
    }
    // A numeric may be a literal's text, such as 1e5.
    if from.oid == to.oid && to.typmod == -1 && to.oid != oid::NUMERIC {
        return Ok(value.to_value());
    }
    match to.oid {
        oid::VARCHAR | oid::BPCHAR => string(&text_of(stripped(from), value), to, explicit),
        oid::TEXT | oid::UNKNOWN => Ok(Value::Text(cast_text(value, from))),
        oid::NAME | oid::CHAR => input(to.oid, to.typmod, &cast_text(value, from)),
        _ if from.is_string() => input(to.oid, to.typmod, &cast_text(value, from)),
        oid::BOOL if from.is_integer() => Ok(Value::Int(i64::from(matches!(value, ValueRef::Int(i) if i != 0)))),
        _ if to.is_oid() => integer(value, from, to),
        oid::INT2 | oid::INT4 | oid::INT8 => integer(value, from, to),
        oid::FLOAT4 | oid::FLOAT8 => float(value, from, to),
        oid::NUMERIC => numeric(value, from, to),
        oid::DATE | oid::TIME | oid::TIMESTAMP | oid::TIMESTAMPTZ if from.category() == Category::DateTime => {
            moment(value, from, to)
        }
        oid::JSON if from.oid == oid::JSONB => Ok(value.to_value()),
        oid::JSONB if from.oid == oid::JSON => input(to.oid, -1, &text_of(from, value)),
        oid::INTERVAL if from.oid == oid::TIME => {
            let time = datetime::parse(&text_of(from, value), "time")?;
            Ok(Value::Text(Interval::new(0, 0, time.time_us.unwrap_or(0)).to_string()))
        }
        oid::TIME if from.oid == oid::INTERVAL => {
            let us = holdfast_types::interval::parse(&text_of(from, value), None)?.us;
            Ok(Value::Text(datetime::format_time(us.rem_euclid(DAY_US))))
        }
        _ if element_type(to).is_some() && element_type(from).is_some() => {
            let parts = |ty: Type| element_type(ty).map(|element| (ty, element)).ok_or_else(|| no_cast(from, to));
            cast_array(&text_of(from, value), parts(from)?, parts(to)?, explicit)
        }
        _ => Err(no_cast(from, to)),
    }
}

/// The type to cast from: a char(n) loses its blanks in a cast to any other string type.
fn stripped(from: Type) -> Type {
    if from.oid == oid::BPCHAR { Type::TEXT } else { from }
}

/// Casts to text: like the output function, but a boolean is spelled out, and an address has its length.
fn cast_text(value: ValueRef<'_>, from: Type) -> String {
    match (from.oid, value) {
        (oid::BOOL, ValueRef::Int(b)) => if b != 0 { "true" } else { "false" }.to_owned(),
        (oid::INET, ValueRef::Text(_)) => {
            let text = text_of(from, value);
            Inet::parse(&text).map_or(text, |address| address.with_length())
        }
        _ => text_of(stripped(from), value),
    }
}

fn no_cast(from: Type, to: Type) -> SqlError {
    let message = format!("cannot cast type {} to {}", from.name(), to.name());
    SqlError::new(SqlState("42846"), message)
}

/// The error PostgreSQL gives for a number that a narrower type cannot hold.
pub(crate) fn integer_range(ty: Type) -> SqlError {
    let name = super::format_type(ty.oid, -1);
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{name} out of range"))
}

fn integer(value: ValueRef<'_>, from: Type, to: Type) -> SqlResult<Value> {
    let wide = match value {
        ValueRef::Int(i) => Some(i),
        // Half is rounded to even, as rint() does.
        ValueRef::Real(r) if from.is_float() => {
            let rounded = r.round_ties_even();
            (rounded >= i64::MIN as f64 && rounded < i64::MAX as f64).then_some(rounded as i64)
        }
        ValueRef::Text(_) | ValueRef::Real(_) if from.oid == oid::NUMERIC => to_decimal(value, from)?.to_i64(),
        _ => return Err(no_cast(from, to)),
    };
    let range = match to.oid {
        oid::INT2 => i64::from(i16::MIN)..=i64::from(i16::MAX),
        oid::INT4 => i64::from(i32::MIN)..=i64::from(i32::MAX),
        oid::INT8 => i64::MIN..=i64::MAX,
        _ => 0..=i64::from(u32::MAX),
    };
    wide.filter(|i| range.contains(i)).map(Value::Int).ok_or_else(|| integer_range(to))
}

fn float(value: ValueRef<'_>, from: Type, to: Type) -> SqlResult<Value> {
    let wide = match value {
        ValueRef::Int(i) => i as f64,
        ValueRef::Real(r) => r,
        ValueRef::Text(_) if from.oid == oid::NUMERIC => to_decimal(value, from)?.to_f64(),
        _ => return Err(no_cast(from, to)),
    };
    let fitted = if to.oid == oid::FLOAT4 { f64::from(wide as f32) } else { wide };
    let vanished = fitted == 0.0 && (wide != 0.0 || is_digit_not_zero(value));
    if fitted.is_finite() && !vanished { Ok(Value::Real(fitted)) } else { Err(out_of_range(wide, to)) }
}

/// Whether a number's text has a digit other than zero before its exponent.
fn is_digit_not_zero(value: ValueRef<'_>) -> bool {
    let ValueRef::Text(text) = value else { return false };
    text.iter().take_while(|b| !b.eq_ignore_ascii_case(&b'e')).any(|b| matches!(b, b'1'..=b'9'))
}

fn numeric(value: ValueRef<'_>, from: Type, to: Type) -> SqlResult<Value> {
    if from.category() != Category::Number {
        return Err(no_cast(from, to));
    }
    let number = to_decimal(value, from)?;
    Ok(match numeric_modifier(to.typmod) {
        Some((p, s)) => Value::Text(number.fit(p, s)?.to_string()),
        None => Value::Text(number.to_string()),
    })
}

/// Any stored number as a decimal.
pub(crate) fn to_decimal(value: ValueRef<'_>, from: Type) -> SqlResult<Decimal> {
    match value {
        ValueRef::Int(i) => Decimal::parse(&i.to_string()),
        ValueRef::Real(r) if from.oid == oid::FLOAT4 => Decimal::parse(&text_of(from, ValueRef::Real(r))),
        ValueRef::Real(r) => Decimal::from_f64(r),
        ValueRef::Text(t) => Decimal::parse(&String::from_utf8_lossy(t)),
        _ => Err(SqlError::new(SqlState::DATATYPE_MISMATCH, "a stored value is not a number")),
    }
}

fn moment(value: ValueRef<'_>, from: Type, to: Type) -> SqlResult<Value> {
    let ValueRef::Text(text) = value else { return Err(no_cast(from, to)) };
    let text = String::from_utf8_lossy(text);
    let unix_us = match from.oid {
        oid::TIME if to.oid == oid::TIME => datetime::parse(&text, "time")?.time_us.unwrap_or(0),
        oid::TIME => return Err(no_cast(from, to)),
        _ => datetime::to_unix_us(&text)?,
    };
    let rounded = datetime::round_us(unix_us, to.typmod);
    Ok(Value::Text(match to.oid {
        oid::DATE => datetime::format_date(unix_us.div_euclid(DAY_US))?,
        oid::TIME => datetime::format_time(rounded.rem_euclid(DAY_US)),
        oid::TIMESTAMP => datetime::format_timestamp(rounded)?,
        _ => datetime::format_timestamp(rounded)? + "+00",
    }))
}
