//! Converts text to a stored value, as PostgreSQL's input functions do.

use super::datetime::{self, DAY_US};
use super::decimal::Decimal;
use super::names::by_name;
use super::sql_type::{Type, numeric_modifier};
use super::{lsn_text, parse_lsn};
use holdfast_types::access::AclItem;
use holdfast_types::access::predefined::PUBLIC_OID;
use holdfast_types::desc::oid;
use holdfast_types::inet::Inet;
use holdfast_types::interval;
use holdfast_types::{SqlError, SqlResult, SqlState, Value};

/// Reads `text` as a value of the type and returns its stored form.
///
/// | type | stored as |
/// |---|---|
/// | bool | 0 or 1 |
/// | int2, int4, int8, oid and its aliases | integer |
/// | float4, float8 | real |
/// | numeric | text with its scale |
/// | text, varchar, json, jsonb, uuid (lower case), inet, pg_lsn, aclitem | text |
/// | arrays | text as array_out writes it, each element in its stored form |
/// | char(n) | text without its trailing blanks |
/// | bytea | blob |
/// | date | text `YYYY-MM-DD` |
/// | time | text `HH:MM:SS[.ffffff]` |
/// | timestamp | text `YYYY-MM-DD HH:MM:SS[.ffffff]` |
/// | timestamptz | the same in UTC, followed by `+00` |
/// | interval | text in the style `postgres`: `1 mon 2 days 03:04:05` |
///
/// Errors: 22P02 bad text, 22007 bad date, 22003 and 22008 out of range, 22001 too long.
pub fn input(type_oid: u32, typmod: i32, text: &str) -> SqlResult<Value> {
    let ty = Type { oid: type_oid, typmod };
    Ok(match type_oid {
        oid::BOOL => Value::Int(i64::from(boolean(text)?)),
        oid::INT2 => Value::Int(integer(text, ty, i64::from(i16::MIN), i64::from(i16::MAX))?),
        oid::INT4 => Value::Int(integer(text, ty, i64::from(i32::MIN), i64::from(i32::MAX))?),
        oid::INT8 => Value::Int(integer(text, ty, i64::MIN, i64::MAX)?),
        oid::OID => Value::Int(integer(text, ty, i64::from(i32::MIN), i64::from(u32::MAX))? & 0xffff_ffff),
        super::more::REGTYPE => Value::Int(i64::from(regtype(text)?)),
        _ if ty.is_oid() => Value::Int(integer(text, ty, 0, i64::from(u32::MAX))?),
        oid::FLOAT4 | oid::FLOAT8 => Value::Real(float(text, ty)?),
        oid::NUMERIC => {
            let number = Decimal::parse(text)?;
            let fitted = match numeric_modifier(typmod) {
                Some((p, s)) => number.fit(p, s)?,
                None => number,
            };
            Value::Text(fitted.to_string())
        }
        oid::VARCHAR | oid::BPCHAR => string(text, ty, false)?,
        oid::NAME => Value::Text(text.chars().take(63).collect()),
        oid::CHAR => Value::Text(text.chars().take(1).collect()),
        oid::BYTEA => Value::Blob(bytes(text)?),
        oid::DATE | oid::TIME | oid::TIMESTAMP | oid::TIMESTAMPTZ => Value::Text(moment(text, ty)?),
        oid::INTERVAL => Value::Text(interval::parse(text, None)?.to_string()),
        oid::UUID => Value::Text(uuid(text)?),
        oid::PG_LSN => {
            Value::Text(lsn_text(parse_lsn(text).filter(|_| text.contains('/')).ok_or_else(|| invalid(text, ty))?))
        }
        oid::INET => Value::Text(Inet::parse(text).ok_or_else(|| invalid(text, ty))?.to_string()),
        oid::JSON | oid::JSONB => json(text, ty)?,
        // Its names are looked up where it is used.
        super::more::ACLITEM => match AclItem::parse(text, |_| Some(PUBLIC_OID)) {
            Some(_) => Value::Text(text.to_owned()),
            None => return Err(invalid(text, ty)),
        },
        oid::TEXT | oid::UNKNOWN => Value::Text(text.to_owned()),
        _ => match super::array::element_type(ty) {
            Some(element) => Value::Text(super::array::read(ty, element, text)?),
            None => return Err(SqlError::unsupported(format!("a value of type {}", ty.name()))),
        },
    })
}

/// 22P02 of a text that is not a value of the type.
pub fn invalid(text: &str, ty: Type) -> SqlError {
    let name = super::format_type(ty.oid, -1);
    SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, format!("invalid input syntax for type {name}: \"{text}\""))
}

pub(super) fn out_of_range(what: impl std::fmt::Display, ty: Type) -> SqlError {
    let name = super::format_type(ty.oid, -1);
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("value \"{what}\" is out of range for type {name}"))
}

/// Reads a boolean as PostgreSQL's `boolin` does: any unique prefix of true, false, yes, no; on, off; 1, 0.
fn boolean(text: &str) -> SqlResult<bool> {
    let word = text.trim().to_ascii_lowercase();
    let prefix = |full: &str, min: usize| word.len() >= min && full.starts_with(&word);
    if prefix("true", 1) || prefix("yes", 1) || word == "on" || word == "1" {
        Ok(true)
    } else if prefix("false", 1) || prefix("no", 1) || prefix("off", 2) || word == "0" {
        Ok(false)
    } else {
        Err(invalid(text, Type::BOOL))
    }
}

fn integer(text: &str, ty: Type, min: i64, max: i64) -> SqlResult<i64> {
    let trimmed = text.trim();
    let digits = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(invalid(text, ty));
    }
    match trimmed.parse::<i64>() {
        Ok(n) if (min..=max).contains(&n) => Ok(n),
        _ => Err(out_of_range(trimmed, ty)),
    }
}

fn float(text: &str, ty: Type) -> SqlResult<f64> {
    let trimmed = text.trim();
    let unsigned = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed).to_ascii_lowercase();
    if matches!(unsigned.as_str(), "nan" | "inf" | "infinity") {
        return Err(SqlError::unsupported(format!("the {} value {trimmed}", ty.name())));
    }
    let value: f64 = trimmed.parse().map_err(|_| invalid(text, ty))?;
    let value = if ty.oid == oid::FLOAT4 { f64::from(value as f32) } else { value };
    // A number too close to zero is out of range as well.
    let digits = trimmed.split(['e', 'E']).next().unwrap_or(trimmed);
    let vanished = value == 0.0 && digits.bytes().any(|b| matches!(b, b'1'..=b'9'));
    if value.is_finite() && !vanished { Ok(value) } else { Err(out_of_range(trimmed, ty)) }
}

/// Checks the length of varchar(n) and char(n). Only an explicit cast truncates characters other than blanks.
pub(super) fn string(text: &str, ty: Type, explicit: bool) -> SqlResult<Value> {
    let mut kept = text;
    if ty.typmod >= 4 {
        let max = (ty.typmod - 4) as usize;
        if text.len() > max
            && let Some((end, _)) = text.char_indices().nth(max)
        {
            if !explicit && text[end..].bytes().any(|b| b != b' ') {
                let message = format!("value too long for type {}", ty.name());
                return Err(SqlError::new(SqlState::STRING_DATA_RIGHT_TRUNCATION, message));
            }
            kept = &text[..end];
        }
    }
    if ty.oid == oid::BPCHAR {
        kept = kept.trim_end_matches(' ');
    }
    Ok(Value::Text(kept.to_owned()))
}

/// Reads bytea: `\x` and hexadecimal digits, or the older escape form.
fn bytes(text: &str) -> SqlResult<Vec<u8>> {
    let ty = Type::new(oid::BYTEA);
    if let Some(hex) = text.strip_prefix("\\x") {
        let digits: Vec<u32> = hex
            .chars()
            .filter(|c| !c.is_ascii_whitespace())
            .map(|c| c.to_digit(16).ok_or_else(|| invalid_hex(c)))
            .collect::<SqlResult<_>>()?;
        if !digits.len().is_multiple_of(2) {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER_VALUE,
                "invalid hexadecimal data: odd number of digits",
            ));
        }
        return Ok(digits.chunks(2).map(|p| (p[0] * 16 + p[1]) as u8).collect());
    }
    let (source, mut out, mut at) = (text.as_bytes(), Vec::with_capacity(text.len()), 0);
    while at < source.len() {
        if source[at] != b'\\' {
            out.push(source[at]);
            at += 1;
        } else if source.get(at + 1) == Some(&b'\\') {
            out.push(b'\\');
            at += 2;
        } else {
            let octal = source.get(at + 1..at + 4).ok_or_else(|| invalid(text, ty))?;
            if !matches!(octal, [b'0'..=b'3', b'0'..=b'7', b'0'..=b'7']) {
                return Err(invalid(text, ty));
            }
            out.push(octal.iter().fold(0, |n, d| n * 8 + (d - b'0')));
            at += 4;
        }
    }
    Ok(out)
}

fn invalid_hex(c: char) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid hexadecimal digit: \"{c}\""))
}

fn moment(text: &str, ty: Type) -> SqlResult<String> {
    let name = super::format_type(ty.oid, -1);
    let parsed = datetime::parse(text, &name)?;
    let bad = || {
        let message = format!("invalid input syntax for type {name}: \"{text}\"");
        SqlError::new(SqlState::INVALID_DATETIME_FORMAT, message)
    };
    match ty.oid {
        oid::DATE => datetime::format_date(parsed.days.ok_or_else(bad)?),
        oid::TIME => Ok(datetime::format_time(datetime::round_us(parsed.time_us.ok_or_else(bad)?, ty.typmod))),
        _ => {
            let local = parsed.days.ok_or_else(bad)? * DAY_US + parsed.time_us.unwrap_or(0);
            let zoned = ty.oid == oid::TIMESTAMPTZ;
            let offset = if zoned { parsed.offset_s.unwrap_or(0) } else { 0 };
            let rounded = datetime::round_us(local - offset * 1_000_000, ty.typmod);
            let text = datetime::format_timestamp(rounded)?;
            Ok(if zoned { text + "+00" } else { text })
        }
    }
}

/// Reads a timestamp with time zone as microseconds since 1970-01-01 UTC; `infinity` is the largest number.
pub fn instant_us(text: &str) -> SqlResult<i64> {
    match text.trim().to_ascii_lowercase().as_str() {
        "infinity" => return Ok(i64::MAX),
        "-infinity" => return Ok(i64::MIN),
        _ => {}
    }
    let name = super::format_type(oid::TIMESTAMPTZ, -1);
    let parsed = datetime::parse(text, &name)?;
    let bad = || {
        let message = format!("invalid input syntax for type {name}: \"{text}\"");
        SqlError::new(SqlState::INVALID_DATETIME_FORMAT, message)
    };
    let local = parsed.days.ok_or_else(bad)? * DAY_US + parsed.time_us.unwrap_or(0);
    Ok(local - parsed.offset_s.unwrap_or(0) * 1_000_000)
}

/// The text of [`instant_us`].
pub fn instant_text(us: i64) -> String {
    match us {
        i64::MAX => "infinity".to_owned(),
        i64::MIN => "-infinity".to_owned(),
        us => datetime::format_timestamp(us).map_or_else(|_| us.to_string(), |text| text + "+00"),
    }
}

fn uuid(text: &str) -> SqlResult<String> {
    let bad = || invalid(text, Type::new(oid::UUID));
    let inner = text.trim().strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(text.trim());
    let hex: String = inner.chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect();
    if hex.len() != 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(bad());
    }
    Ok(format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

/// Checks json, which keeps its text, or normalises jsonb.
fn json(text: &str, ty: Type) -> SqlResult<Value> {
    if !crate::functions::json::valid(text) {
        return Err(invalid(text, ty));
    }
    if ty.oid == oid::JSON {
        return Ok(Value::Text(text.to_owned()));
    }
    let unsupported = || SqlError::new(SqlState("22P05"), "unsupported Unicode escape sequence");
    super::jsonb::normalised(text).ok_or_else(unsupported)?.map(Value::Text)
}

fn regtype(text: &str) -> SqlResult<u32> {
    if let Ok(number) = text.trim().parse() {
        return Ok(number);
    }
    by_name(text)
        .ok_or_else(|| SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type \"{}\" does not exist", text.trim())))
}
