//! Dates and times between their stored text and PostgreSQL's binary numbers: days and microseconds since
//! 2000-01-01, proleptic Gregorian calendar. Years before 1 are written with ` BC`.

use holdfast_types::calendar;

/// Microseconds in a day.
pub const DAY_US: i64 = 86_400_000_000;

/// Days from 1970-01-01 to 2000-01-01.
const EPOCH_DAYS: i64 = 10_957;

/// Binary `infinity` and `-infinity`.
pub const DATE_INFINITY: i32 = i32::MAX;
pub const DATE_MINUS_INFINITY: i32 = i32::MIN;
pub const TIMESTAMP_INFINITY: i64 = i64::MAX;
pub const TIMESTAMP_MINUS_INFINITY: i64 = i64::MIN;

/// Days since 2000-01-01 of a date.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    calendar::days_from_civil(year, month, day) - EPOCH_DAYS
}

/// Year, month and day of a day since 2000-01-01.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    calendar::civil_from_days(days + EPOCH_DAYS)
}

/// Splits off a leading unsigned number of at most `digits_max` digits.
fn number(text: &str, digits_max: usize) -> Option<(i64, &str)> {
    let n = text.bytes().take(digits_max).take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(n);
    Some((digits.parse().ok()?, rest))
}

/// Splits `YYYY-MM-DD` off the start of `text`.
fn leading_date(text: &str) -> Option<((i64, i64, i64), &str)> {
    let (year, rest) = number(text, 7)?;
    let (month, rest) = number(rest.strip_prefix('-')?, 2)?;
    let (day, rest) = number(rest.strip_prefix('-')?, 2)?;
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    Some(((year, month, day), rest))
}

/// Splits `HH:MM[:SS[.ffffff]]`, in microseconds, off the start of `text`.
fn leading_time(text: &str) -> Option<(i64, &str)> {
    let (hour, rest) = number(text, 2)?;
    let (minute, mut rest) = number(rest.strip_prefix(':')?, 2)?;
    let mut us = (hour * 60 + minute) * 60_000_000;
    if let Some(seconds) = rest.strip_prefix(':') {
        let (second, after) = number(seconds, 2)?;
        us += second * 1_000_000;
        rest = after;
        if let Some(fraction) = rest.strip_prefix('.') {
            let n = fraction.bytes().take_while(u8::is_ascii_digit).count();
            let (digits, after) = fraction.split_at(n);
            us += format!("{:0<6.6}", digits).parse::<i64>().ok()?;
            rest = after;
        }
    }
    Some((us, rest))
}

/// Reads `+HH[:MM]`, `-HH[:MM]`, `Z` or nothing as microseconds east of UTC.
fn offset_us(text: &str) -> Option<i64> {
    let (sign, rest) = match text.as_bytes().first() {
        None => return Some(0),
        Some(b'Z') => return (text.len() == 1).then_some(0),
        Some(b'+') => (1, &text[1..]),
        Some(b'-') => (-1, &text[1..]),
        Some(_) => return None,
    };
    let (hours, rest) = number(rest, 2)?;
    let minutes = if rest.is_empty() { 0 } else { number(rest.strip_prefix(':').unwrap_or(rest), 2)?.0 };
    Some(sign * (hours * 60 + minutes) * 60_000_000)
}

/// Splits off a trailing ` BC`; the year is then 1 - y, because there is no year 0.
fn era(text: &str) -> (&str, bool) {
    match text.strip_suffix(" BC") {
        Some(rest) => (rest, true),
        None => (text, false),
    }
}

/// Converts a stored date to binary; `None` if it is not a date.
pub fn date_to_days(text: &str) -> Option<i32> {
    match text {
        "infinity" => return Some(DATE_INFINITY),
        "-infinity" => return Some(DATE_MINUS_INFINITY),
        _ => {}
    }
    let (text, bc) = era(text);
    let ((year, month, day), rest) = leading_date(text)?;
    let year = if bc { 1 - year } else { year };
    rest.is_empty().then(|| i32::try_from(days_from_civil(year, month, day)).ok())?
}

/// Converts a stored time of day to binary.
pub fn time_to_us(text: &str) -> Option<i64> {
    let (us, rest) = leading_time(text)?;
    rest.is_empty().then_some(us)
}

/// Converts a stored timestamp, with or without time zone, to binary. A date without a time means midnight.
pub fn timestamp_to_us(text: &str) -> Option<i64> {
    match text {
        "infinity" => return Some(TIMESTAMP_INFINITY),
        "-infinity" => return Some(TIMESTAMP_MINUS_INFINITY),
        _ => {}
    }
    let (text, bc) = era(text);
    let ((year, month, day), rest) = leading_date(text)?;
    let year = if bc { 1 - year } else { year };
    let (time_us, rest) = match rest.strip_prefix([' ', 'T']) {
        Some(time) => leading_time(time)?,
        None => (0, rest),
    };
    days_from_civil(year, month, day).checked_mul(DAY_US)?.checked_add(time_us)?.checked_sub(offset_us(rest)?)
}

fn civil_text(days: i64) -> (String, &'static str) {
    let (year, month, day) = civil_from_days(days);
    let (year, suffix) = if year > 0 { (year, "") } else { (1 - year, " BC") };
    (format!("{year:04}-{month:02}-{day:02}"), suffix)
}

/// Converts a binary date to its stored text.
pub fn days_to_date(days: i32) -> String {
    match days {
        DATE_INFINITY => "infinity".into(),
        DATE_MINUS_INFINITY => "-infinity".into(),
        _ => {
            let (date, bc) = civil_text(i64::from(days));
            format!("{date}{bc}")
        }
    }
}

/// Converts a binary time of day to its stored text; `None` if it is not within a day.
pub fn us_to_time(us: i64) -> Option<String> {
    if !(0..=DAY_US).contains(&us) {
        return None;
    }
    let (seconds, fraction) = (us / 1_000_000, us % 1_000_000);
    let mut text = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    if fraction != 0 {
        text.push_str(format!(".{fraction:06}").trim_end_matches('0'));
    }
    Some(text)
}

/// Converts a binary timestamp to its stored text, with `zone` (`""` or `"+00"`) where PostgreSQL writes it.
pub fn us_to_timestamp(us: i64, zone: &str) -> Option<String> {
    match us {
        TIMESTAMP_INFINITY => return Some("infinity".into()),
        TIMESTAMP_MINUS_INFINITY => return Some("-infinity".into()),
        _ => {}
    }
    let (date, bc) = civil_text(us.div_euclid(DAY_US));
    let time = us_to_time(us.rem_euclid(DAY_US))?;
    Some(format!("{date} {time}{zone}{bc}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_days() {
        assert_eq!(date_to_days("2000-01-01"), Some(0));
        assert_eq!(date_to_days("1999-12-31"), Some(-1));
        assert_eq!(date_to_days("2024-02-29"), Some(8825));
        assert_eq!(date_to_days("0001-12-31 BC"), Some(days_from_civil(0, 12, 31) as i32));
        assert_eq!(date_to_days("2024-13-01"), None);
        assert_eq!(date_to_days("today"), None);
    }

    #[test]
    fn days_round_trip() {
        for days in (-800_000..800_000).step_by(37) {
            assert_eq!(date_to_days(&days_to_date(days)), Some(days));
        }
        // The ends of PostgreSQL's range.
        for (days, date) in [(-2_451_545, "4714-11-24 BC"), (2_145_031_948, "5874897-12-31")] {
            assert_eq!((days_to_date(days).as_str(), date_to_days(date)), (date, Some(days)));
        }
    }

    #[test]
    fn timestamps_round_trip() {
        for us in [0, 1, -1, 1_500_000, 757_382_400_123_456, -99_999_999_999_999_999] {
            assert_eq!(timestamp_to_us(&us_to_timestamp(us, "").unwrap()), Some(us));
            assert_eq!(timestamp_to_us(&us_to_timestamp(us, "+00").unwrap()), Some(us));
        }
        assert_eq!(us_to_timestamp(1_500_000, "+00").unwrap(), "2000-01-01 00:00:01.5+00");
        assert_eq!(timestamp_to_us("2000-01-01 02:00:00+02"), Some(0));
        assert_eq!(timestamp_to_us("2000-01-01T00:00:00Z"), Some(0));
        assert_eq!(timestamp_to_us("infinity"), Some(TIMESTAMP_INFINITY));
    }
}
