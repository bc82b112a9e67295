//! Dates and times: the proleptic Gregorian calendar between the years 1 and 9999, in microseconds since
//! 1970-01-01 00:00 UTC, and their canonical text, which sorts as the times do.
//!
//! Years outside that range, BC and infinity are refused with 22008; bad text is 22007.

use holdfast_types::calendar::{civil_from_days, days_from_civil, days_in_month};
use holdfast_types::{SqlError, SqlResult, SqlState};

pub const DAY_US: i64 = 86_400_000_000;

/// A parsed date and time; each part may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parsed {
    /// Days since 1970-01-01.
    pub days: Option<i64>,
    /// Microseconds since midnight.
    pub time_us: Option<i64>,
    /// Seconds east of UTC.
    pub offset_s: Option<i64>,
}

fn field_overflow(text: &str) -> SqlError {
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, format!("date/time field value out of range: \"{text}\""))
}

/// Reads ISO 8601 as PostgreSQL prints it: `2026-11-20 19:30:00.5+01`, with `T` between the parts, with `Z`, or one
/// part alone.
pub fn parse(text: &str, type_name: &str) -> SqlResult<Parsed> {
    let bad = || {
        let message = format!("invalid input syntax for type {type_name}: \"{text}\"");
        SqlError::new(SqlState::INVALID_DATETIME_FORMAT, message)
    };
    let mut rest = text.trim();
    let mut parsed = Parsed::default();
    if matches!(rest, "infinity" | "-infinity") || rest.to_ascii_uppercase().ends_with("BC") {
        return Err(SqlError::unsupported(format!("the {type_name} value {rest}")));
    }
    if rest == "epoch" {
        return Ok(Parsed { days: Some(0), time_us: Some(0), offset_s: Some(0) });
    }
    let date_end = rest.find([' ', 'T', 't']).unwrap_or(rest.len());
    if rest[..date_end].contains('-') && !rest[..date_end].contains(':') || is_compact_date(&rest[..date_end]) {
        parsed.days = Some(parse_date(&rest[..date_end]).ok_or_else(bad)?.ok_or_else(|| field_overflow(text))?);
        rest = rest[date_end..].trim_start_matches(['T', 't', ' ']);
    }
    if rest.is_empty() {
        return if parsed.days.is_some() { Ok(parsed) } else { Err(bad()) };
    }
    let time_end = rest.find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.')).unwrap_or(rest.len());
    parsed.time_us = Some(parse_time(&rest[..time_end]).ok_or_else(bad)?.ok_or_else(|| field_overflow(text))?);
    let zone = rest[time_end..].trim();
    if !zone.is_empty() {
        parsed.offset_s = Some(parse_offset(zone).ok_or_else(bad)?);
    }
    Ok(parsed)
}

fn is_compact_date(text: &str) -> bool {
    text.len() == 8 && text.bytes().all(|b| b.is_ascii_digit())
}

fn number(text: &str) -> Option<i64> {
    (!text.is_empty() && text.len() <= 9 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

/// Reads a date. The outer `None` means "not a date", the inner one "out of range".
fn parse_date(text: &str) -> Option<Option<i64>> {
    let (year, month, day) = if is_compact_date(text) {
        (number(&text[..4])?, number(&text[4..6])?, number(&text[6..])?)
    } else {
        let mut parts = text.split('-');
        let year = parts.next()?;
        if year.len() < 3 {
            return None;
        }
        let found = (number(year)?, number(parts.next()?)?, number(parts.next()?)?);
        if parts.next().is_some() {
            return None;
        }
        found
    };
    if !(1..=9999).contains(&year) || !(1..=12).contains(&month) || day < 1 || day > days_in_month(year, month) {
        return Some(None);
    }
    Some(Some(days_from_civil(year, month, day)))
}

fn parse_time(text: &str) -> Option<Option<i64>> {
    let mut parts = text.split(':');
    let hour = number(parts.next()?)?;
    let minute = number(parts.next()?)?;
    let (second, micros) = match parts.next() {
        None => (0, 0),
        Some(seconds) => match seconds.split_once('.') {
            None => (number(seconds)?, 0),
            Some((whole, fraction)) => {
                if fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
                    return None;
                }
                // Rounded to microseconds.
                let shown = format!("0.{fraction}").parse::<f64>().ok()?;
                (number(whole)?, (shown * 1e6).round() as i64)
            }
        },
    };
    if parts.next().is_some() {
        return None;
    }
    if hour > 24 || minute > 59 || second > 60 || (hour == 24 && (minute, second, micros) != (0, 0, 0)) {
        return Some(None);
    }
    let total_us = ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros;
    Some((total_us <= DAY_US).then_some(total_us))
}

fn parse_offset(text: &str) -> Option<i64> {
    if text.eq_ignore_ascii_case("z") || text.eq_ignore_ascii_case("utc") || text.eq_ignore_ascii_case("gmt") {
        return Some(0);
    }
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let digits = &text[1..];
    let (h, m, s) = match digits.split(':').collect::<Vec<_>>().as_slice() {
        [h] if h.len() == 4 => (number(&h[..2])?, number(&h[2..])?, 0),
        [h] => (number(h)?, 0, 0),
        [h, m] => (number(h)?, number(m)?, 0),
        [h, m, s] => (number(h)?, number(m)?, number(s)?),
        _ => return None,
    };
    (h <= 15 && m <= 59 && s <= 59).then_some(sign * (h * 3600 + m * 60 + s))
}

/// Writes `YYYY-MM-DD`; 22008 outside the years 1 to 9999.
pub fn format_date(days: i64) -> SqlResult<String> {
    let (year, month, day) = civil_from_days(days);
    if !(1..=9999).contains(&year) {
        return Err(SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "date out of range"));
    }
    Ok(format!("{year:04}-{month:02}-{day:02}"))
}

/// Writes `HH:MM:SS[.ffffff]`, without trailing zeros.
pub fn format_time(time_us: i64) -> String {
    let (seconds, micros) = (time_us / 1_000_000, time_us % 1_000_000);
    let mut text = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if micros != 0 {
        text.push_str(format!(".{micros:06}").trim_end_matches('0'));
    }
    text
}

/// Writes microseconds since 1970 as `YYYY-MM-DD HH:MM:SS[.ffffff]`.
pub fn format_timestamp(unix_us: i64) -> SqlResult<String> {
    let days = unix_us.div_euclid(DAY_US);
    Ok(format!("{} {}", format_date(days)?, format_time(unix_us.rem_euclid(DAY_US))))
}

/// Reads the canonical forms, and all that [`parse`] reads, as microseconds since 1970 UTC.
pub fn to_unix_us(text: &str) -> SqlResult<i64> {
    let parsed = parse(text, "timestamp")?;
    let days = parsed.days.unwrap_or(0);
    Ok(days * DAY_US + parsed.time_us.unwrap_or(0) - parsed.offset_s.unwrap_or(0) * 1_000_000)
}

/// Rounds to `digits` of a second.
pub fn round_us(value_us: i64, digits: i32) -> i64 {
    if !(0..6).contains(&digits) {
        return value_us;
    }
    let unit = 10i64.pow(6 - digits as u32);
    (value_us + unit / 2).div_euclid(unit) * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calendar_goes_both_ways() {
        for days in [-719_162, -1, 0, 59, 60, 11_016, 11_017, 20_777, 2_932_896] {
            let (y, m, d) = civil_from_days(days);
            assert_eq!(days_from_civil(y, m, d), days);
        }
        assert_eq!(civil_from_days(0), (1970, 1, 1));
        assert_eq!(format_date(days_from_civil(2024, 2, 29)).unwrap(), "2024-02-29");
    }

    #[test]
    fn reads_what_it_writes_and_iso() {
        for (text, expected) in [
            ("2026-11-20 19:30:00.5+01", "2026-11-20 18:30:00.5"),
            ("2026-11-20T19:30:00Z", "2026-11-20 19:30:00"),
            ("2026-11-20", "2026-11-20 00:00:00"),
            ("1969-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999"),
            ("2026-01-01 00:30:00+05:30", "2025-12-31 19:00:00"),
        ] {
            assert_eq!(format_timestamp(to_unix_us(text).unwrap()).unwrap(), expected);
        }
    }

    #[test]
    fn bad_text_and_bad_fields_differ() {
        assert_eq!(parse("tomorrowish", "date").unwrap_err().state(), SqlState::INVALID_DATETIME_FORMAT);
        assert_eq!(parse("2026-02-30", "date").unwrap_err().state(), SqlState::DATETIME_FIELD_OVERFLOW);
        assert_eq!(parse("2026-01-01 25:00:00", "timestamp").unwrap_err().state(), SqlState::DATETIME_FIELD_OVERFLOW);
        assert_eq!(parse("", "date").unwrap_err().state(), SqlState::INVALID_DATETIME_FORMAT);
    }
}
