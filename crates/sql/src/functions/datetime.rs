//! Dates and times at run time.

use super::function::{Function, int, real, text};
use crate::types::Type;
use crate::types::datetime::{DAY_US, format_date, format_timestamp, parse, to_unix_us};
use holdfast_types::calendar::{civil_from_days, days_from_civil, days_in_month};
use holdfast_types::desc::oid;
use holdfast_types::interval;
use holdfast_types::{SqlError, SqlResult, SqlState, Value, ValueRef};

type Args<'a> = &'a [ValueRef<'a>];

pub(super) const FUNCTIONS: &[Function] = &[
    Function::strict("hf_date_add", 2, |a| {
        let days = to_unix_us(&text(a, 0)?)?.div_euclid(DAY_US);
        let moved = days.checked_add(int(a, 1)?).filter(|d| d.abs() < 4_000_000);
        let moved = moved.ok_or_else(|| SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "date out of range"))?;
        Ok(Value::Text(format_date(moved)?))
    })
    .linear(),
    Function::strict("hf_date_sub", 2, |a| {
        Ok(Value::Int((to_unix_us(&text(a, 0)?)? - to_unix_us(&text(a, 1)?)?).div_euclid(DAY_US)))
    })
    .linear(),
    Function::strict("hf_moment_add", 4, moment_add).linear(),
    Function::strict("hf_extract", 2, extract).linear(),
    Function::strict("hf_date_trunc", 3, date_trunc).linear(),
    Function::strict("hf_to_timestamp", 1, |a| {
        let us = (real(a, 0)? * 1e6).round();
        if us.abs() > 3e17 {
            return Err(SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range"));
        }
        Ok(Value::Text(format_timestamp(us as i64)? + "+00"))
    })
    .constant(),
];

/// Adds an interval to a moment. Arguments: moment, interval, sign, and the text that follows the time.
fn moment_add(args: Args<'_>) -> SqlResult<Value> {
    let range = || SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "timestamp out of range");
    let start = to_unix_us(&text(args, 0)?)?;
    let (step, sign) = (interval::parse(&text(args, 1)?, None)?, int(args, 2)?);
    let (mut year, mut month, day) = civil_from_days(start.div_euclid(DAY_US));
    let months = year * 12 + month - 1 + sign * i64::from(step.months);
    (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
    let days = days_from_civil(year, month, day.min(days_in_month(year, month))) + sign * i64::from(step.days);
    let us = days
        .checked_mul(DAY_US)
        .and_then(|d| d.checked_add(start.rem_euclid(DAY_US)))
        .and_then(|t| t.checked_add(sign.checked_mul(step.us)?))
        .ok_or_else(range)?;
    Ok(Value::Text(format_timestamp(us)? + &text(args, 3)?))
}

const TIME_FIELDS: &[&str] =
    &["hour", "minute", "second", "millisecond", "milliseconds", "microsecond", "microseconds", "epoch"];
const DATE_FIELDS: &[&str] = &[
    "century",
    "decade",
    "millennium",
    "year",
    "isoyear",
    "quarter",
    "month",
    "week",
    "day",
    "dow",
    "isodow",
    "doy",
    "julian",
];

/// Returns 22023 or 0A000 for a field that the type does not have.
pub fn check_field(field: &str, ty: Type) -> SqlResult<()> {
    let field = field.trim_end_matches(|c| c == 's' && !field.ends_with("century"));
    let known = |list: &[&str]| list.iter().any(|f| f.trim_end_matches('s') == field);
    let ok = match ty.oid {
        oid::DATE => known(DATE_FIELDS) || field == "epoch",
        oid::TIME => known(TIME_FIELDS),
        oid::TIMESTAMPTZ => known(TIME_FIELDS) || known(DATE_FIELDS) || field.starts_with("timezone"),
        _ => known(TIME_FIELDS) || known(DATE_FIELDS),
    };
    if ok && field != "julian" {
        return Ok(());
    }
    let exists = known(TIME_FIELDS) || known(DATE_FIELDS) || field.starts_with("timezone");
    let (state, what) = match exists {
        true => (SqlState::FEATURE_NOT_SUPPORTED, "not supported"),
        false => (SqlState::INVALID_PARAMETER_VALUE, "not recognized"),
    };
    Err(SqlError::new(state, format!("unit \"{field}\" {what} for type {}", ty.name())))
}

/// Monday of ISO week 1 of a year, in days since 1970.
fn iso_year_start(year: i64) -> i64 {
    let fourth = days_from_civil(year, 1, 4);
    fourth - (fourth + 3).rem_euclid(7)
}

fn iso_year(days: i64, year: i64) -> i64 {
    if days < iso_year_start(year) {
        year - 1
    } else if days >= iso_year_start(year + 1) {
        year + 1
    } else {
        year
    }
}

fn extract(args: Args<'_>) -> SqlResult<Value> {
    let field = text(args, 0)?;
    let source = text(args, 1)?;
    let parsed = parse(&source, "timestamp")?;
    let offset = parsed.offset_s.unwrap_or(0) * 1_000_000;
    let us = parsed.days.unwrap_or(0) * DAY_US + parsed.time_us.unwrap_or(0) - offset;
    let (days, time) = (us.div_euclid(DAY_US), us.rem_euclid(DAY_US));
    let (year, month, day) = civil_from_days(days);
    let decimals = |value: i64, digits: usize| {
        let unit = 10i64.pow(digits as u32);
        let sign = if value < 0 { "-" } else { "" };
        format!("{sign}{}.{:0digits$}", (value / unit).abs(), (value % unit).abs())
    };
    let number = match field.trim_end_matches('s') {
        "century" | "centurie" => (year + 99).div_euclid(100),
        "millennium" => (year + 999).div_euclid(1000),
        "decade" => year.div_euclid(10),
        "year" => year,
        "isoyear" => iso_year(days, year),
        "quarter" => (month + 2) / 3,
        "month" => month,
        "week" => (days - iso_year_start(iso_year(days, year))) / 7 + 1,
        "day" => day,
        "dow" => (days + 4).rem_euclid(7),
        "isodow" => (days + 3).rem_euclid(7) + 1,
        "doy" => days - days_from_civil(year, 1, 1) + 1,
        "hour" => time / 3_600_000_000,
        "minute" => time / 60_000_000 % 60,
        "microsecond" => time % 60_000_000,
        "second" => return Ok(Value::Text(decimals(time % 60_000_000, 6))),
        "millisecond" => return Ok(Value::Text(decimals(time % 60_000_000, 3))),
        "epoch" if parsed.time_us.is_none() => us / 1_000_000,
        "epoch" => return Ok(Value::Text(decimals(us, 6))),
        _ if field.starts_with("timezone") => 0,
        other => return Err(SqlError::unsupported(format!("the field {other}"))),
    };
    Ok(Value::Text(number.to_string()))
}

const TRUNC: &[&str] = &[
    "microseconds",
    "milliseconds",
    "second",
    "minute",
    "hour",
    "day",
    "week",
    "month",
    "quarter",
    "year",
    "decade",
    "century",
    "millennium",
];

/// Returns 22023 for a field that date_trunc does not know.
pub fn check_trunc(field: &str) -> SqlResult<()> {
    if TRUNC.iter().any(|f| f.trim_end_matches('s') == field.trim_end_matches('s')) {
        return Ok(());
    }
    Err(SqlError::new(
        SqlState::INVALID_PARAMETER_VALUE,
        format!("unit \"{field}\" not recognized for type timestamp without time zone"),
    ))
}

fn date_trunc(args: Args<'_>) -> SqlResult<Value> {
    let us = to_unix_us(&text(args, 1)?)?;
    let days = us.div_euclid(DAY_US);
    let (year, month, _) = civil_from_days(days);
    let to = |unit: i64| us.div_euclid(unit) * unit;
    let day = |days: i64| days * DAY_US;
    let field = text(args, 0)?;
    let cut = match field.trim_end_matches('s') {
        "microsecond" => us,
        "millisecond" => to(1000),
        "second" => to(1_000_000),
        "minute" => to(60_000_000),
        "hour" => to(3_600_000_000),
        "day" => day(days),
        "week" => day(days - (days + 3).rem_euclid(7)),
        "month" => day(days_from_civil(year, month, 1)),
        "quarter" => day(days_from_civil(year, (month - 1) / 3 * 3 + 1, 1)),
        "year" => day(days_from_civil(year, 1, 1)),
        "decade" => day(days_from_civil(year / 10 * 10, 1, 1)),
        "century" => day(days_from_civil((year + 99) / 100 * 100 - 99, 1, 1)),
        _ => day(days_from_civil((year + 999) / 1000 * 1000 - 999, 1, 1)),
    };
    Ok(Value::Text(format_timestamp(cut)? + &text(args, 2)?))
}
