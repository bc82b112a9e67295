//! Reads an interval: PostgreSQL's words (`1 day 2 hours ago`), the SQL standard's `1-2 3 04:05:06`, and ISO 8601
//! (`P1Y2M3DT4H5M6S`).
//!
//! As in PostgreSQL the fields are read from the last to the first, so that a unit is known before its number, and each
//! unit may occur once.

use super::{DAY_US, Interval, MONTH_DAYS};
use crate::{SqlError, SqlResult, SqlState};

/// The fields of `interval '...' day to minute`: the first and the last.
pub type Fields<'a> = Option<(&'a str, &'a str)>;

const SECOND_US: i64 = 1_000_000;
const MINUTE_US: i64 = 60 * SECOND_US;
const HOUR_US: i64 = 60 * MINUTE_US;

/// Why a text is not an interval.
enum Bad {
    Format,
    Range,
}

/// Reads an interval. 22007 for bad text, 22015 for a field that is too large.
pub fn parse(text: &str, fields: Fields<'_>) -> SqlResult<Interval> {
    let default = match fields {
        None => Unit::Second,
        Some((_, last)) => Unit::named(last).filter(|u| u.mask() & 0b11_1111 != 0).unwrap_or(Unit::Second),
    };
    let lower = text.trim().to_ascii_lowercase();
    let read = words(&lower, default).or_else(|bad| match bad {
        Bad::Format if lower.starts_with('p') => iso(&lower[1..]),
        bad => Err(bad),
    });
    let value = read.map_err(|bad| match bad {
        Bad::Format => {
            let message = format!("invalid input syntax for type interval: \"{text}\"");
            SqlError::new(SqlState::INVALID_DATETIME_FORMAT, message)
        }
        Bad::Range => {
            let message = format!("interval field value out of range: \"{text}\"");
            SqlError::new(SqlState("22015"), message)
        }
    })?;
    Ok(match fields {
        None => value,
        Some((_, last)) => match last {
            "second" => value,
            last => value.truncated(last).unwrap_or(value),
        },
    })
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Unit {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
    Microsecond,
    Week,
    Decade,
    Century,
    Millennium,
}

impl Unit {
    fn named(word: &str) -> Option<Unit> {
        use Unit::*;
        Some(match word {
            "y" | "year" | "years" | "yr" | "yrs" => Year,
            "mon" | "mons" | "month" | "months" => Month,
            "w" | "week" | "weeks" => Week,
            "d" | "day" | "days" => Day,
            "h" | "hour" | "hours" | "hr" | "hrs" => Hour,
            "m" | "min" | "mins" | "minute" | "minutes" => Minute,
            "s" | "sec" | "second" | "seconds" | "secs" => Second,
            "ms" | "msec" | "msecond" | "mseconds" | "msecs" | "millisecond" | "milliseconds" => Millisecond,
            "us" | "usec" | "usecond" | "useconds" | "usecs" | "microsecond" | "microseconds" => Microsecond,
            "dec" | "decade" | "decades" | "decs" => Decade,
            "c" | "cent" | "century" | "centuries" => Century,
            "mil" | "mils" | "millennia" | "millennium" => Millennium,
            _ => return None,
        })
    }

    fn mask(self) -> u32 {
        1 << self as u32
    }
}

/// The units that a fraction of a second fills.
const SECONDS: u32 = 1 << Unit::Second as u32 | 1 << Unit::Millisecond as u32 | 1 << Unit::Microsecond as u32;
const TIME: u32 = 1 << Unit::Hour as u32 | 1 << Unit::Minute as u32 | SECONDS;

#[derive(Debug, PartialEq)]
enum Field<'a> {
    Number(&'a str),
    Word(&'a str),
}

/// Splits a text into numbers, with sign, point, colons and dashes, and words. Other punctuation separates.
fn split(text: &str) -> Result<Vec<Field<'_>>, Bad> {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let start = at;
        let b = bytes[at];
        let numeric = |b: u8| b.is_ascii_digit() || matches!(b, b':' | b'.' | b'-');
        if b.is_ascii_digit() || (b == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit)) {
            at += bytes[at..].iter().take_while(|b| numeric(**b)).count();
            out.push(Field::Number(&text[start..at]));
        } else if b == b'+' || b == b'-' {
            at += 1 + bytes[at + 1..].iter().take_while(|b| b.is_ascii_whitespace()).count();
            let digits = bytes[at..].iter().take_while(|b| numeric(**b)).count();
            if digits == 0 {
                return Err(Bad::Format);
            }
            at += digits;
            out.push(Field::Number(&text[start..at]));
        } else if b.is_ascii_alphabetic() {
            at += bytes[at..].iter().take_while(|b| b.is_ascii_alphabetic()).count();
            out.push(Field::Word(&text[start..at]));
        } else if b.is_ascii_whitespace() || b.is_ascii_punctuation() {
            at += 1;
        } else {
            return Err(Bad::Format);
        }
    }
    Ok(out)
}

/// A sum of fields that notes which units it has.
#[derive(Default)]
struct Sum {
    value: Interval,
    seen: u32,
}

fn whole(value: i64, unit: i64) -> Result<i32, Bad> {
    value.checked_mul(unit).and_then(|n| i32::try_from(n).ok()).ok_or(Bad::Range)
}

impl Sum {
    fn saw(&mut self, mask: u32) -> Result<(), Bad> {
        if self.seen & mask != 0 {
            return Err(Bad::Format);
        }
        self.seen |= mask;
        Ok(())
    }

    fn months(&mut self, value: i64, unit: i64, fraction: f64) -> Result<(), Bad> {
        let more = (fraction * unit as f64).round_ties_even() as i32;
        let months = whole(value, unit)?.checked_add(more).and_then(|m| self.value.months.checked_add(m));
        self.value.months = months.ok_or(Bad::Range)?;
        Ok(())
    }

    fn days(&mut self, days: i64, unit: i64) -> Result<(), Bad> {
        self.value.days = self.value.days.checked_add(whole(days, unit)?).ok_or(Bad::Range)?;
        Ok(())
    }

    fn us(&mut self, value: i64, unit: i64, fraction: f64) -> Result<(), Bad> {
        let exact = fraction * unit as f64;
        let mut more = exact.trunc() as i64;
        match exact - more as f64 {
            rest if rest > 0.5 => more += 1,
            rest if rest < -0.5 => more -= 1,
            _ => {}
        }
        let us = value.checked_mul(unit).and_then(|n| n.checked_add(more));
        self.value.us = us.and_then(|n| self.value.us.checked_add(n)).ok_or(Bad::Range)?;
        Ok(())
    }

    /// A fraction of `unit` days.
    fn part_of_days(&mut self, fraction: f64, unit: i64) -> Result<(), Bad> {
        let exact = fraction * unit as f64;
        self.days(exact.trunc() as i64, 1)?;
        self.us(0, DAY_US, exact.fract())
    }

    fn add(&mut self, unit: Unit, value: i64, fraction: f64) -> Result<(), Bad> {
        let mask = if unit == Unit::Second && fraction != 0.0 { SECONDS } else { unit.mask() };
        self.saw(mask)?;
        match unit {
            Unit::Millennium => self.months(value, 12_000, fraction),
            Unit::Century => self.months(value, 1200, fraction),
            Unit::Decade => self.months(value, 120, fraction),
            Unit::Year => self.months(value, 12, fraction),
            Unit::Month => {
                self.months(value, 1, 0.0)?;
                self.part_of_days(fraction, MONTH_DAYS)
            }
            Unit::Week => {
                self.days(value, 7)?;
                self.part_of_days(fraction, 7)
            }
            Unit::Day => {
                self.days(value, 1)?;
                self.us(0, DAY_US, fraction)
            }
            Unit::Hour => self.us(value, HOUR_US, fraction),
            Unit::Minute => self.us(value, MINUTE_US, fraction),
            Unit::Second => self.us(value, SECOND_US, fraction),
            Unit::Millisecond => self.us(value, 1000, fraction),
            Unit::Microsecond => self.us(value, 1, fraction),
        }
    }

    /// Adds a time of day of any number of hours.
    fn clock(&mut self, text: &str) -> Result<(), Bad> {
        self.saw(TIME)?;
        let (sign, digits) = signed(text);
        let mut parts: Vec<&str> = digits.split(':').collect();
        if parts.len() == 2 && parts[1].contains('.') {
            parts.insert(0, "0"); // minutes and seconds
        }
        let number = |text: &str| -> Result<i64, Bad> {
            match text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
                true => text.parse().map_err(|_| Bad::Range),
                false => Err(Bad::Format),
            }
        };
        let (second, fraction) = match parts.get(2) {
            None => (0, 0.0),
            Some(text) => match text.split_once('.') {
                None => (number(text)?, 0.0),
                Some((s, fraction)) => (number(s)?, decimals(fraction)?),
            },
        };
        if !(2..=3).contains(&parts.len()) {
            return Err(Bad::Format);
        }
        // A time without hours may begin with its colon, and one may end with it.
        let minute = if parts[1].is_empty() && parts.len() == 2 { 0 } else { number(parts[1])? };
        let hour = number(parts[0])?;
        if minute > 59 || second > 60 {
            return Err(Bad::Range);
        }
        self.us(sign * hour, HOUR_US, 0.0)?;
        self.us(sign * minute, MINUTE_US, 0.0)?;
        let micros = (fraction * 1e6).round_ties_even() as i64;
        self.us(sign * (second * SECOND_US + micros), 1, 0.0)
    }
}

/// The sign before a number, and the number.
fn signed(text: &str) -> (i64, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (-1, text[1..].trim_start()),
        Some(b'+') => (1, text[1..].trim_start()),
        _ => (1, text),
    }
}

/// The value of the digits after a point.
fn decimals(digits: &str) -> Result<f64, Bad> {
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Bad::Format);
    }
    if digits.is_empty() { Ok(0.0) } else { format!("0.{digits}").parse().map_err(|_| Bad::Format) }
}

/// Reads an integer with its fraction.
fn number(text: &str) -> Result<(i64, f64), Bad> {
    let (sign, digits) = signed(text);
    let (integer, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if !integer.bytes().all(|b| b.is_ascii_digit()) || (integer.is_empty() && fraction.is_empty()) {
        return Err(Bad::Format);
    }
    let value: i64 = if integer.is_empty() { 0 } else { integer.parse().map_err(|_| Bad::Range)? };
    Ok((sign * value, sign as f64 * decimals(fraction)?))
}

/// Reads `years-months`.
fn year_month(text: &str) -> Result<i64, Bad> {
    let (sign, digits) = signed(text);
    let (years, months) = digits.split_once('-').ok_or(Bad::Format)?;
    let read = |text: &str| match text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
        true => text.parse::<i64>().map_err(|_| Bad::Range),
        false => Err(Bad::Format),
    };
    let (years, months) = (read(years)?, read(months)?);
    if months > 11 {
        return Err(Bad::Range);
    }
    Ok(sign * years.checked_mul(12).and_then(|m| m.checked_add(months)).ok_or(Bad::Range)?)
}

fn words(text: &str, default: Unit) -> Result<Interval, Bad> {
    let fields = split(text)?;
    let (mut sum, mut ago, mut unit, mut unit_used) = (Sum::default(), false, None, true);
    for (i, field) in fields.iter().enumerate().rev() {
        match field {
            Field::Word("ago") if i + 1 == fields.len() => ago = true,
            Field::Word(word) => {
                if !unit_used {
                    return Err(Bad::Format);
                }
                unit = Some(Unit::named(word).ok_or(Bad::Format)?);
                unit_used = false;
            }
            Field::Number(text) if text.contains(':') => {
                sum.clock(text)?;
                (unit, unit_used) = (Some(Unit::Day), true);
            }
            Field::Number(text) => {
                let bare = signed(text).1;
                if bare.contains('-') {
                    sum.add(Unit::Month, year_month(text)?, 0.0)?;
                    (unit, unit_used) = (None, true);
                    continue;
                }
                let (value, fraction) = number(text)?;
                // A number without a unit: seconds at the end, days before a time, the unit of the next field elsewhere.
                sum.add(unit.unwrap_or(default), value, fraction)?;
                unit_used = true;
            }
        }
    }
    if sum.seen == 0 || !unit_used {
        return Err(Bad::Format);
    }
    let v = sum.value;
    if !ago {
        return Ok(v);
    }
    v.checked_neg().map_err(|_| Bad::Range)
}

/// Reads ISO 8601 after its `P`: with designators, or `0001-02-03T04:05:06`.
fn iso(text: &str) -> Result<Interval, Bad> {
    let (mut sum, mut rest, mut time) = (Sum::default(), text, false);
    if rest.is_empty() {
        return Err(Bad::Format);
    }
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('t') {
            if time || after.is_empty() {
                return Err(Bad::Format);
            }
            (time, rest) = (true, after);
            if rest.contains(':') {
                sum.clock(rest)?;
                break;
            }
            continue;
        }
        let end = rest.find(|c: char| !(c.is_ascii_digit() || "+-.".contains(c))).unwrap_or(rest.len());
        let digits = &rest[..end];
        let unit = match (rest.as_bytes().get(end), time) {
            (Some(b'y'), false) => Unit::Year,
            (Some(b'm'), false) => Unit::Month,
            (Some(b'w'), false) => Unit::Week,
            (Some(b'd'), false) => Unit::Day,
            (Some(b'h'), true) => Unit::Hour,
            (Some(b'm'), true) => Unit::Minute,
            (Some(b's'), true) => Unit::Second,
            (None | Some(b't'), false) => {
                let parts: Vec<&str> = digits.split('-').collect();
                let [year, month, day] = parts.as_slice() else { return Err(Bad::Format) };
                for (unit, text) in [(Unit::Year, year), (Unit::Month, month), (Unit::Day, day)] {
                    let (value, fraction) = number(text)?;
                    sum.add(unit, value, fraction)?;
                }
                rest = &rest[end..];
                continue;
            }
            _ => return Err(Bad::Format),
        };
        let (value, fraction) = number(digits)?;
        sum.add(unit, value, fraction)?;
        rest = &rest[end + 1..];
    }
    if sum.seen == 0 { Err(Bad::Format) } else { Ok(sum.value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values as PostgreSQL 15 reads them.
    #[test]
    fn intervals_are_read_as_postgresql_does() {
        for (text, shown) in [
            ("1.5 weeks", "10 days 12:00:00"),
            ("1 day 4 seconds", "1 day 00:00:04"),
            ("1 month ago", "-1 mons"),
            ("90", "00:01:30"),
            ("1-2", "1 year 2 mons"),
            ("-1-2 +3 -04:05:06.5", "-1 years -2 mons +3 days -04:05:06.5"),
            ("1 12:00", "1 day 12:00:00"),
            ("1.5 months", "1 mon 15 days"),
            ("1.5 years", "1 year 6 mons"),
            ("@ 1 day, 2 hours", "1 day 02:00:00"),
            ("1h30m", "01:30:00"),
            ("P1Y2M3DT4H5M6.7S", "1 year 2 mons 3 days 04:05:06.7"),
            ("P0001-02-03T04:05:06", "1 year 2 mons 3 days 04:05:06"),
            ("1.000001 s", "00:00:01.000001"),
        ] {
            assert_eq!(parse(text, None).unwrap().to_string(), shown, "{text}");
        }
        for text in ["", "soon", "1 day 1 day", "1 fortnight", "day", "ago", "1 2 day 3 day", "P", "1 day 1 week 2 d"] {
            assert_eq!(parse(text, None).unwrap_err().state(), SqlState::INVALID_DATETIME_FORMAT, "{text}");
        }
        assert_eq!(parse("3000000000 days", None).unwrap_err().state().0, "22015");
    }

    #[test]
    fn fields_decide_the_unit_and_cut() {
        for (text, fields, shown) in [
            ("90", ("minute", "minute"), "01:30:00"),
            ("1:30", ("hour", "hour"), "01:00:00"),
            ("2", ("year", "year"), "2 years"),
            ("1-2", ("year", "month"), "1 year 2 mons"),
            ("1 2:03", ("day", "minute"), "1 day 02:03:00"),
        ] {
            assert_eq!(parse(text, Some(fields)).unwrap().to_string(), shown, "{text}");
        }
    }
}
