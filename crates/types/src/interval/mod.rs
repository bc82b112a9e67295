//! PostgreSQL's type interval: months, days and microseconds, which are kept apart because a month has no fixed number
//! of days and a day no fixed number of hours.
//!
//! The text form of the style `postgres` is also the stored form: one text for each value. Two values that differ can
//! be equal (`1 mon` and `30 days`), so comparisons use [`Interval::key`]. Bad text is 22007, a field that is too large
//! 22015, a result that is too large 22008.

mod arithmetic;
mod parse;

pub use parse::{Fields, parse};

use crate::{SqlError, SqlState};
use std::fmt;

/// Microseconds in a day.
pub const DAY_US: i64 = 86_400_000_000;
/// Days that comparisons and fractions of months count for a month.
pub const MONTH_DAYS: i64 = 30;

/// Months, days and microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    pub months: i32,
    pub days: i32,
    pub us: i64,
}

/// 22008 of a result beyond the type's range.
pub fn out_of_range() -> SqlError {
    SqlError::new(SqlState::DATETIME_FIELD_OVERFLOW, "interval out of range")
}

impl Interval {
    pub fn new(months: i32, days: i32, us: i64) -> Interval {
        Interval { months, days, us }
    }

    /// What comparisons compare: microseconds, with days of 24 hours and months of 30 days.
    pub fn span_us(&self) -> i128 {
        (i128::from(self.months) * i128::from(MONTH_DAYS) + i128::from(self.days)) * i128::from(DAY_US)
            + i128::from(self.us)
    }

    /// Bytes that sort as the values do and are equal for equal values.
    pub fn key(&self) -> Vec<u8> {
        ((self.span_us() as u128) ^ (1 << 127)).to_be_bytes().to_vec()
    }

    /// The binary form of PostgreSQL's protocol.
    ///
    /// | bytes | holds |
    /// |---|---|
    /// | 8 | microseconds, big-endian |
    /// | 4 | days |
    /// | 4 | months |
    pub fn to_binary(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.us.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.days.to_be_bytes());
        bytes[12..].copy_from_slice(&self.months.to_be_bytes());
        bytes
    }

    /// Reads the binary form.
    pub fn from_binary(bytes: &[u8; 16]) -> Interval {
        let number = |at: usize| i32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mut us = [0; 8];
        us.copy_from_slice(&bytes[..8]);
        Interval { months: number(12), days: number(8), us: i64::from_be_bytes(us) }
    }
}

/// The style `postgres`: `1 year 2 mons -3 days +04:05:06.7`.
impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut empty, mut after_negative) = (true, false);
        for (value, unit) in [(self.months / 12, "year"), (self.months % 12, "mon"), (self.days, "day")] {
            if value == 0 {
                continue;
            }
            let space = if empty { "" } else { " " };
            let plus = if after_negative && value > 0 { "+" } else { "" };
            let plural = if value == 1 { "" } else { "s" };
            write!(f, "{space}{plus}{value} {unit}{plural}")?;
            empty = false;
            after_negative = value < 0;
        }
        if !empty && self.us == 0 {
            return Ok(());
        }
        let sign = match self.us < 0 {
            true => "-",
            false if after_negative => "+",
            false => "",
        };
        let us = self.us.unsigned_abs();
        let (seconds, fraction) = (us / 1_000_000, us % 1_000_000);
        let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{}{sign}{h:02}:{m:02}:{s:02}", if empty { "" } else { " " })?;
        if fraction != 0 {
            write!(f, ".{}", format!("{fraction:06}").trim_end_matches('0'))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts as PostgreSQL 15 prints them.
    #[test]
    fn intervals_print_as_postgresql_does() {
        for (months, days, us, text) in [
            (0, 0, 0, "00:00:00"),
            (14, 3, 4_000_000, "1 year 2 mons 3 days 00:00:04"),
            (-1, 1, -1, "-1 mons +1 day -00:00:00.000001"),
            (0, -1, 3_600_000_000, "-1 days +01:00:00"),
            (-13, 0, 0, "-1 years -1 mons"),
            (0, 0, 360_000_000_000_000, "100000:00:00"),
            (12, 1, 0, "1 year 1 day"),
        ] {
            let value = Interval { months, days, us };
            assert_eq!(value.to_string(), text);
            assert_eq!(parse(text, None).unwrap(), value, "{text}");
            assert_eq!(Interval::from_binary(&value.to_binary()), value);
        }
    }

    /// The binary form, byte for byte.
    #[test]
    fn the_binary_form_is_fixed() {
        let bytes = Interval::new(-1, 2, 3).to_binary();
        assert_eq!(bytes, [0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 2, 255, 255, 255, 255]);
    }

    #[test]
    fn keys_sort_as_the_values() {
        let of = |text| parse(text, None).unwrap().key();
        for pair in ["-1 year", "-1 day", "-1 hour", "0", "1 us", "1 day", "29 days", "1 mon", "1 year"].windows(2) {
            assert!(of(pair[0]) < of(pair[1]), "{pair:?}");
        }
        assert_eq!(of("1 mon"), of("30 days"));
        assert_eq!(of("1 day"), of("24 hours"));
    }
}
