//! Times and sizes as PostgreSQL writes them: a number with a unit.

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
    let units = [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)];
    match units.iter().find(|(_, unit)| ms > 0 && ms.is_multiple_of(*unit)) {
        Some((name, unit)) => format!("{}{name}", ms / unit),
        None if ms == 0 => "0".to_owned(),
        None => format!("{ms}ms"),
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
}
