//! Interval constants that are added to a date or a timestamp.

use holdfast_types::{SqlError, SqlResult, SqlState};

/// Months, days and microseconds, kept apart as in PostgreSQL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    pub months: i64,
    pub days: i64,
    pub us: i64,
}

/// Reads `1 day`, `2 years 3 mons -04:05:06.7`, `1 hour ago`. 22007 for anything else.
pub fn parse(text: &str) -> SqlResult<Interval> {
    let bad = || {
        let message = format!("invalid input syntax for type interval: \"{text}\"");
        SqlError::new(SqlState::INVALID_DATETIME_FORMAT, message)
    };
    let lower = text.trim().to_ascii_lowercase();
    let (body, ago) = match lower.strip_suffix("ago") {
        Some(body) => (body.trim(), true),
        None => (lower.as_str(), false),
    };
    let mut total = Interval::default();
    let mut words = body.split_ascii_whitespace().peekable();
    if words.peek().is_none() {
        return Err(bad());
    }
    while let Some(word) = words.next() {
        if word.contains(':') {
            total.us = total.us.checked_add(clock(word).ok_or_else(bad)?).ok_or_else(bad)?;
            continue;
        }
        let split = word.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(word.len());
        let (number, glued) = word.split_at(split);
        let amount: f64 = number.parse().map_err(|_| bad())?;
        let unit = if glued.is_empty() { words.next().unwrap_or("seconds") } else { glued };
        add(&mut total, amount, unit).ok_or_else(bad)?;
    }
    if ago {
        total = Interval { months: -total.months, days: -total.days, us: -total.us };
    }
    Ok(total)
}

fn clock(word: &str) -> Option<i64> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, word.trim_start_matches('+')),
    };
    let mut parts = digits.split(':');
    let hours: i64 = parts.next()?.parse().ok()?;
    let minutes: i64 = parts.next()?.parse().ok()?;
    let seconds: f64 = parts.next().unwrap_or("0").parse().ok()?;
    if !(0..60).contains(&minutes) || !(0.0..60.0).contains(&seconds) || parts.next().is_some() {
        return None;
    }
    let us = hours.checked_mul(3_600_000_000)?.checked_add(minutes * 60_000_000)?;
    Some(sign * us.checked_add((seconds * 1e6).round() as i64)?)
}

/// Adds an amount of one unit. A fraction of a larger unit becomes smaller units; a month has 30 days.
fn add(total: &mut Interval, amount: f64, unit: &str) -> Option<()> {
    const DAY_US: f64 = 86_400e6;
    let months = |total: &mut Interval, n: f64| {
        total.months += n.trunc() as i64;
        let days = n.fract() * 30.0;
        total.days += days.trunc() as i64;
        total.us += (days.fract() * DAY_US).round() as i64;
    };
    let days = |total: &mut Interval, n: f64| {
        total.days += n.trunc() as i64;
        total.us += (n.fract() * DAY_US).round() as i64;
    };
    if !amount.is_finite() || amount.abs() > 1e9 {
        return None;
    }
    match unit.trim_end_matches('s') {
        "year" | "yr" | "y" => total.months += (amount * 12.0).round() as i64,
        "month" | "mon" => months(total, amount),
        "week" | "w" => days(total, amount * 7.0),
        "day" | "d" => days(total, amount),
        "hour" | "hr" | "h" => total.us += (amount * 3600e6).round() as i64,
        "minute" | "min" | "m" => total.us += (amount * 60e6).round() as i64,
        "second" | "sec" | "" => total.us += (amount * 1e6).round() as i64,
        "millisecond" | "msec" => total.us += (amount * 1e3).round() as i64,
        "microsecond" | "usec" => total.us += amount.round() as i64,
        "decade" => total.months += (amount * 120.0).round() as i64,
        "century" | "centurie" => total.months += (amount * 1200.0).round() as i64,
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_usual_forms() {
        let i = |months, days, us| Interval { months, days, us };
        for (text, expected) in [
            ("1 day", i(0, 1, 0)),
            ("2 years 3 mons -04:05:06.5", i(27, 0, -14_706_500_000)),
            ("1.5 hours", i(0, 0, 5_400_000_000)),
            ("1 week 2d", i(0, 9, 0)),
            ("1 month ago", i(-1, 0, 0)),
            ("90", i(0, 0, 90_000_000)),
        ] {
            assert_eq!(parse(text).unwrap(), expected, "{text}");
        }
        assert!(parse("").is_err() && parse("soon").is_err() && parse("1 fortnight").is_err());
    }
}
