//! Intervals at run time: arithmetic, differences of moments, fields, and aggregates over `group_concat`.

use super::function::{Function, int, real, text};
use crate::types::datetime::{DAY_US, format_time, parse as parse_moment, to_unix_us};
use holdfast_types::interval::{Interval, parse};
use holdfast_types::{SqlError, SqlResult, SqlState, Value};

type Args<'a> = &'a [holdfast_types::ValueRef<'a>];

pub(super) const FUNCTIONS: &[Function] = &[
    Function::strict("hf_interval_key", 1, |a| Ok(Value::Blob(interval(a, 0)?.key()))).linear(),
    Function::strict("hf_interval_add", 2, |a| shown(interval(a, 0)?.checked_add(interval(a, 1)?))).linear(),
    Function::strict("hf_interval_sub", 2, |a| {
        shown(interval(a, 1)?.checked_neg().and_then(|b| interval(a, 0)?.checked_add(b)))
    })
    .linear(),
    Function::strict("hf_interval_neg", 1, |a| shown(interval(a, 0)?.checked_neg())).linear(),
    Function::strict("hf_interval_mul", 2, |a| shown(interval(a, 0)?.times(real(a, 1)?))).linear(),
    Function::strict("hf_interval_div", 2, |a| shown(interval(a, 0)?.over(real(a, 1)?))).linear(),
    Function::strict("hf_interval_round", 2, |a| shown(Ok(interval(a, 0)?.rounded_to(int(a, 1)? as i32)))).linear(),
    Function::strict("hf_justify_hours", 1, |a| shown(interval(a, 0)?.justify_hours())).linear(),
    Function::strict("hf_justify_days", 1, |a| shown(interval(a, 0)?.justify_days())).linear(),
    Function::strict("hf_justify_interval", 1, |a| shown(interval(a, 0)?.justify_interval())).linear(),
    Function::strict("hf_moment_sub", 2, |a| {
        let us = to_unix_us(&text(a, 0)?)? - to_unix_us(&text(a, 1)?)?;
        shown(Interval::new(0, 0, us).justify_hours())
    })
    .linear(),
    Function::strict("hf_time_sub", 2, |a| shown(Ok(Interval::new(0, 0, time_us(a, 0)? - time_us(a, 1)?)))).linear(),
    Function::strict("hf_time_add", 3, |a| {
        let step = interval(a, 1)?.us % DAY_US * int(a, 2)?;
        Ok(Value::Text(format_time((time_us(a, 0)? + step).rem_euclid(DAY_US))))
    })
    .linear(),
    Function::strict("hf_interval_extract", 2, extract).linear(),
    Function::strict("hf_interval_sum", 1, |a| match total(a)? {
        (_, 0) => Ok(Value::Null),
        (sum, _) => shown(Ok(sum)),
    }),
    Function::strict("hf_interval_avg", 1, |a| match total(a)? {
        (_, 0) => Ok(Value::Null),
        (sum, count) => shown(sum.over(count as f64)),
    }),
    Function::strict("hf_interval_min", 1, |a| extreme(a, |x, y| x < y)),
    Function::strict("hf_interval_max", 1, |a| extreme(a, |x, y| x > y)),
];

fn interval(args: Args<'_>, i: usize) -> SqlResult<Interval> {
    parse(&text(args, i)?, None)
}

fn shown(value: SqlResult<Interval>) -> SqlResult<Value> {
    Ok(Value::Text(value?.to_string()))
}

fn time_us(args: Args<'_>, i: usize) -> SqlResult<i64> {
    Ok(parse_moment(&text(args, i)?, "time")?.time_us.unwrap_or(0))
}

/// The values of a `group_concat`: the text of an interval has no comma.
fn parts(args: Args<'_>) -> SqlResult<Vec<Interval>> {
    text(args, 0)?.split(',').map(|part| parse(part, None)).collect()
}

fn total(args: Args<'_>) -> SqlResult<(Interval, usize)> {
    let values = parts(args)?;
    let count = values.len();
    Ok((values.into_iter().try_fold(Interval::default(), Interval::checked_add)?, count))
}

fn extreme(args: Args<'_>, better: impl Fn(i128, i128) -> bool) -> SqlResult<Value> {
    // Of equal values the last one is the result, as in PostgreSQL.
    let keep = |best: Interval, next: Interval| if better(best.span_us(), next.span_us()) { best } else { next };
    match parts(args)?.into_iter().reduce(keep) {
        Some(value) => shown(Ok(value)),
        None => Ok(Value::Null),
    }
}

/// A number of microseconds as a decimal with `digits` digits after the point.
fn decimal(us: i128, digits: usize) -> String {
    let unit = 10i128.pow(digits as u32);
    let sign = if us < 0 { "-" } else { "" };
    format!("{sign}{}.{:0digits$}", us.abs() / unit, us.abs() % unit)
}

fn extract(args: Args<'_>) -> SqlResult<Value> {
    let (field, v) = (text(args, 0)?, interval(args, 1)?);
    let (months, minute_us) = (v.months, v.us % 60_000_000);
    let number = match field.trim_end_matches('s') {
        "millennium" => i64::from(months / 12_000),
        "century" => i64::from(months / 1200),
        "decade" => i64::from(months / 120),
        "year" => i64::from(months / 12),
        "quarter" => i64::from(months % 12 / 3 + 1),
        "month" => i64::from(months % 12),
        "day" => i64::from(v.days),
        "hour" => v.us / 3_600_000_000,
        "minute" => v.us / 60_000_000 % 60,
        "microsecond" => minute_us,
        "second" => return Ok(Value::Text(decimal(minute_us.into(), 6))),
        "millisecond" => return Ok(Value::Text(decimal(minute_us.into(), 3))),
        "epoch" => {
            // A year of months has 365.25 days here.
            let quarter_days = i128::from(months / 12) * 1461 + i128::from(months % 12) * 120 + i128::from(v.days) * 4;
            let us = quarter_days * i128::from(DAY_US / 4) + i128::from(v.us);
            return Ok(Value::Text(decimal(us, 6)));
        }
        other => {
            let message = format!("unit \"{other}\" not supported for type interval");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
    };
    Ok(Value::Text(number.to_string()))
}
