//! Numbers and times as a reader wants them.

use holdfast_types::calendar::civil_from_days;
use std::time::{SystemTime, UNIX_EPOCH};

/// A rate or count with thousands separated: `12 345` with a thin space; one decimal below ten, two digits below one.
pub fn number(value: f64) -> String {
    if value.abs() < 1.0 {
        return three(value);
    }
    if value.abs() < 10.0 && value.fract() != 0.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push('\u{2009}');
        }
        out.push(digit);
    }
    if value < 0.0 { format!("\u{2212}{out}") } else { out }
}

/// A rate for an axis: `500`, `2k`, `1M`.
pub fn short(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", trim(v / 1e6)),
        v if v >= 1e3 => format!("{}k", trim(v / 1e3)),
        v => trim(v),
    }
}

/// A time given in microseconds, for an axis or a table: `85 µs`, `3.2 ms`, `1.5 s`.
pub fn time(us: f64) -> String {
    match us {
        v if v >= 1e6 => format!("{} s", three(v / 1e6)),
        v if v >= 1e3 => format!("{} ms", three(v / 1e3)),
        v => format!("{} µs", three(v)),
    }
}

/// How many times: `2.31`, `16.4`, `120`.
pub fn times(value: f64) -> String {
    three(value)
}

/// About three significant digits; two below a tenth, so that a small figure is never shown as 0.
fn three(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => trim((value * 10.0).round() / 10.0),
        v if v >= 0.0995 || v == 0.0 || !v.is_finite() => trim((value * 100.0).round() / 100.0),
        v => {
            let decimals = (1.0 - v.log10().floor()).min(12.0);
            let unit = 10f64.powf(decimals);
            trim((value * unit).round() / unit)
        }
    }
}

/// A number of clients.
pub fn clients(count: usize) -> String {
    if count == 1 { "1 client".into() } else { format!("{count} clients") }
}

/// `1`, `1 and 40`, `1, 10 and 40`.
pub fn list(counts: &[usize]) -> String {
    let words: Vec<String> = counts.iter().map(usize::to_string).collect();
    match words.split_last() {
        Some((last, first)) if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => words.concat(),
    }
}

fn trim(value: f64) -> String {
    format!("{value}")
}

/// Bytes in the largest fitting unit.
pub fn bytes(value: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    UNITS.iter().find(|(_, unit)| value >= *unit).map_or_else(
        || format!("{value} bytes"),
        |(name, unit)| format!("{} {name}", three(value as f64 / *unit as f64)),
    )
}

/// `YYYY-MM-DD HH:MM` in UTC.
pub fn utc(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (year, month, day) = civil_from_days((seconds / 86_400) as i64);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn numbers_read_well() {
        assert_eq!(number(1_234_567.4), "1\u{2009}234\u{2009}567");
        assert_eq!((number(999.6), number(3.25), number(3.0)), ("1\u{2009}000".into(), "3.2".into(), "3".into()));
        assert_eq!([500.0, 2000.0, 1e6].map(short), ["500", "2k", "1M"]);
        assert_eq!([85.0, 3210.0, 999.9, 1.5e6].map(time), ["85 µs", "3.21 ms", "1000 µs", "1.5 s"]);
        assert_eq!([2.314, 16.44, 119.6].map(times), ["2.31", "16.4", "120"]);
        assert_eq!([0.07, 0.0712, 0.0042, 0.00031, 0.0].map(times), ["0.07", "0.071", "0.0042", "0.00031", "0"]);
        assert_eq!((number(0.07), number(0.0), number(0.5)), ("0.07".into(), "0".into(), "0.5".into()));
        assert_eq!([512, 3 << 20, 5 << 29].map(bytes), ["512 bytes", "3 MiB", "2.5 GiB"]);
    }

    #[test]
    fn counts_are_listed_as_people_write_them() {
        assert_eq!([&[1][..], &[1, 20], &[1, 10, 40], &[]].map(list), ["1", "1 and 20", "1, 10 and 40", ""]);
        assert_eq!((clients(1), clients(40)), ("1 client".into(), "40 clients".into()));
    }

    #[test]
    fn dates_are_gregorian() {
        let at = |s| utc(UNIX_EPOCH + Duration::from_secs(s));
        assert_eq!(at(0), "1970-01-01 00:00");
        assert_eq!(at(951_827_696), "2000-02-29 12:34");
        assert_eq!(at(4_102_444_799), "2099-12-31 23:59");
    }
}
