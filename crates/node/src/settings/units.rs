//! Times, sizes and numbers as PostgreSQL reads and shows them: a number with a unit.

use std::time::Duration;

/// Units of sizes. Each is a power of 1024, as in PostgreSQL; upper and lower case are the same.
const SIZE_UNITS: [(&str, u32); 10] = [
    ("b", 0),
    ("kb", 10),
    ("kib", 10),
    ("mb", 20),
    ("mib", 20),
    ("gb", 30),
    ("gib", 30),
    ("tb", 40),
    ("tib", 40),
    ("", 0),
];

/// PostgreSQL's units of sizes and times, largest first: in bytes and in microseconds.
const SIZES: [(&str, f64); 5] =
    [("TB", 1_099_511_627_776.0), ("GB", 1_073_741_824.0), ("MB", 1_048_576.0), ("kB", 1024.0), ("B", 1.0)];
const TIMES: [(&str, f64); 6] = [("d", 86_400e6), ("h", 3_600e6), ("min", 60e6), ("s", 1e6), ("ms", 1e3), ("us", 1.0)];

/// The unit that a parameter's bare number is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    None,
    Bytes,
    Kib,
    /// Pages of 8 kB.
    Blocks,
    Mib,
    Ms,
    Seconds,
    Minutes,
}

impl Unit {
    /// As `pg_settings` and messages name it.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Unit::None => None,
            Unit::Bytes => Some("B"),
            Unit::Kib => Some("kB"),
            Unit::Blocks => Some("8kB"),
            Unit::Mib => Some("MB"),
            Unit::Ms => Some("ms"),
            Unit::Seconds => Some("s"),
            Unit::Minutes => Some("min"),
        }
    }

    /// The base unit in bytes or microseconds, and the units that a value may have.
    fn scale(self) -> Option<(f64, &'static [(&'static str, f64)])> {
        let sizes: &[_] = &SIZES;
        let times: &[_] = &TIMES;
        match self {
            Unit::None => None,
            Unit::Bytes => Some((1.0, sizes)),
            Unit::Kib => Some((1024.0, sizes)),
            Unit::Blocks => Some((8192.0, sizes)),
            Unit::Mib => Some((1_048_576.0, sizes)),
            Unit::Ms => Some((1e3, times)),
            Unit::Seconds => Some((1e6, times)),
            Unit::Minutes => Some((60e6, times)),
        }
    }

    /// PostgreSQL's hint for a value with a unit that does not exist.
    pub fn hint(self) -> Option<&'static str> {
        match self {
            Unit::None => None,
            Unit::Bytes | Unit::Kib | Unit::Blocks | Unit::Mib => {
                Some("Valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\".")
            }
            Unit::Ms | Unit::Seconds | Unit::Minutes => {
                Some("Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\".")
            }
        }
    }

    /// A number with or without a unit, in the base unit. The error says whether only the unit is wrong.
    pub fn parse(self, text: &str) -> Result<f64, bool> {
        let text = text.trim_start();
        let (number, rest) = leading_number(text).ok_or(false)?;
        let unit = rest.trim();
        if unit.is_empty() {
            return Ok(number);
        }
        let (base, units) = self.scale().ok_or(false)?;
        let (_, size) = units.iter().find(|(name, _)| *name == unit).ok_or(true)?;
        Ok(number * (size / base))
    }

    /// A value of the base unit in the largest unit that gives a whole number.
    pub fn shown(self, value: i64) -> String {
        let Some((base, units)) = self.scale().filter(|_| value > 0) else { return value.to_string() };
        let total = value as f64 * base;
        match units.iter().find(|(_, size)| total % size == 0.0) {
            Some((name, size)) => format!("{}{name}", total / size),
            None => value.to_string(),
        }
    }
}

/// A decimal or hexadecimal number at the start of a text, and the rest.
fn leading_number(text: &str) -> Option<(f64, &str)> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let signed = |number: f64| if negative { -number } else { number };
    if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        let end = hex.bytes().take_while(u8::is_ascii_hexdigit).count();
        let number = u64::from_str_radix(&hex[..end], 16).ok()?;
        return Some((signed(number as f64), &hex[end..]));
    }
    let bytes = digits.as_bytes();
    let whole = bytes.iter().take_while(|b| b.is_ascii_digit()).count();
    let mut end = whole;
    if bytes.get(end) == Some(&b'.') {
        end += 1 + bytes[end + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
    }
    if end == 0 || &digits[..end] == "." {
        return None;
    }
    if let Some(exponent) = digits[end..].strip_prefix(['e', 'E']) {
        let sign = usize::from(exponent.starts_with(['+', '-']));
        let places = exponent[sign..].bytes().take_while(u8::is_ascii_digit).count();
        end += if places > 0 { 1 + sign + places } else { 0 };
    }
    Some((signed(digits[..end].parse().ok()?), &digits[end..]))
}

/// A size in bytes: a number, or one with a unit as in "256MB".
pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let (_, shift) = SIZE_UNITS.iter().find(|(name, _)| unit.trim().eq_ignore_ascii_case(name))?;
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// A duration as PostgreSQL writes it; a bare number is milliseconds.
pub fn duration(text: &str) -> Option<Duration> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let us = match unit.trim() {
        "us" => 1,
        "" | "ms" => 1_000,
        "s" => 1_000_000,
        "min" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return None,
    };
    Some(Duration::from_micros(number.checked_mul(us)?))
}

/// Milliseconds as PostgreSQL shows them: in the largest unit that gives a whole number.
pub fn shown_time(ms: u64) -> String {
    match i64::try_from(ms) {
        Ok(ms) => Unit::Ms.shown(ms),
        Err(_) => format!("{ms}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_their_largest_unit() {
        let shown = [0, 100, 1_000, 1_500, 60_000, 90_000, 3_600_000].map(shown_time);
        assert_eq!(shown, ["0", "100ms", "1s", "1500ms", "1min", "90s", "1h"]);
    }

    #[test]
    fn durations() {
        assert_eq!(duration("250"), Some(Duration::from_millis(250)));
        assert_eq!(duration("1 min"), Some(Duration::from_secs(60)));
        assert_eq!(duration("99999999999999999999"), None);
        assert_eq!(duration("1y"), None);
    }

    #[test]
    fn numbers_have_postgresqls_units() {
        assert_eq!(Unit::Kib.parse("64MB"), Ok(65536.0));
        assert_eq!(Unit::Ms.parse(" 1.5s "), Ok(1500.0));
        assert_eq!(Unit::None.parse("0x10"), Ok(16.0));
        assert_eq!(Unit::None.parse("-1e2"), Ok(-100.0));
        assert_eq!(
            (Unit::Ms.parse("1y"), Unit::None.parse("1kB"), Unit::Ms.parse("soon")),
            (Err(true), Err(false), Err(false))
        );
        assert_eq!(
            (Unit::Kib.shown(65536), Unit::Blocks.shown(5), Unit::Ms.shown(-1)),
            ("64MB".into(), "40kB".into(), "-1".to_owned())
        );
    }
}
