//! Times as people write them: `2026-11-23 15:04:05.678`, with `T` for the blank, with `Z` or an offset such as `+01:00`;
//! without one it is UTC.

use holdfast_types::calendar::{civil_from_days, days_from_civil, days_in_month};

const DAY_MS: u64 = 86_400_000;

/// Year, month, day, and the milliseconds of the day.
fn parts(unix_ms: u64) -> (i64, i64, i64, u64) {
    let (year, month, day) = civil_from_days((unix_ms / DAY_MS) as i64);
    (year, month, day, unix_ms % DAY_MS)
}

/// A time for people and programs, to the millisecond, in UTC. 0 is a clock that was not read.
pub fn show_moment(unix_ms: u64) -> String {
    if unix_ms == 0 { "an unknown time".to_owned() } else { show(unix_ms) }
}

fn show(unix_ms: u64) -> String {
    let (year, month, day, ms) = parts(unix_ms);
    let (h, m, s) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}.{:03}Z", ms % 1000)
}

/// For names: the order of the texts is that of the times.
pub fn compact(unix_ms: u64) -> String {
    show(unix_ms).replace(['-', ':', '.'], "").replace(' ', "T")
}

/// Number of the day, of the ISO week (from Monday on) and of the month.
pub fn calendar_numbers(unix_ms: u64) -> (i64, i64, i64) {
    let (year, month, _, _) = parts(unix_ms);
    let days = (unix_ms / DAY_MS) as i64;
    // 1970-01-01 was a Thursday.
    (days, (days + 3) / 7, year * 12 + month)
}

/// Reads a time; milliseconds since 1970-01-01 UTC.
pub fn parse_moment(text: &str) -> Result<u64, String> {
    let refuse = || format!("{text:?} is not a time: write it as 2026-11-23 15:04:05.678, followed by Z or +01:00");
    parse(text.trim()).ok_or_else(refuse)
}

fn parse(text: &str) -> Option<u64> {
    let (date, rest) = text.split_once([' ', 'T', 't'])?;
    let (time, offset_minutes) = split_offset(rest.trim())?;
    let mut date = date.split('-').map(|part| number(part, 4));
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let valid =
        (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day);
    if date.next().is_some() || !valid {
        return None;
    }
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut time = time.split(':').map(|part| number(part, 2));
    let (hour, minute, second) = (time.next()??, time.next()??, time.next().unwrap_or(Some(0))?);
    if time.next().is_some() || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let millis = match fraction {
        "" => 0,
        digits if digits.len() <= 9 => number(&format!("{digits:0<9}"), 9)? / 1_000_000,
        _ => return None,
    };
    let seconds = ((days_from_civil(year, month, day) * 24 + hour) * 60 + minute - offset_minutes) * 60 + second;
    u64::try_from(seconds * 1000 + millis).ok()
}

fn split_offset(rest: &str) -> Option<(&str, i64)> {
    if let Some(time) = rest.strip_suffix(['Z', 'z']) {
        return Some((time.trim(), 0));
    }
    let Some(at) = rest.find(['+', '-']) else { return Some((rest, 0)) };
    let (time, offset) = rest.split_at(at);
    let (hours, minutes) = offset[1..].split_once(':').unwrap_or((&offset[1..], "0"));
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    let size = (hours <= 15 && minutes <= 59).then_some(hours * 60 + minutes)?;
    Some((time.trim(), if offset.starts_with('-') { -size } else { size }))
}

fn number(digits: &str, digits_max: usize) -> Option<i64> {
    let plain = (1..=digits_max).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    if plain { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_there_and_back() {
        for text in ["2026-11-23 15:04:05.678Z", "1970-01-01 00:00:00.000Z", "2024-02-29 23:59:59.999Z"] {
            assert_eq!(show(parse_moment(text).unwrap()), text);
        }
        let at = |text: &str| parse_moment(text).map(show_moment).unwrap();
        assert_eq!(show_moment(0), "an unknown time");
        assert_eq!(at("2026-11-23T15:04"), "2026-11-23 15:04:00.000Z");
        assert_eq!(at("2026-11-23 01:04:05+02:00"), "2026-11-22 23:04:05.000Z");
        assert_eq!(at("2026-11-23 15:04:05.5 -05"), "2026-11-23 20:04:05.500Z");
        assert_eq!(at("2026-11-23 15:04:05.123456"), "2026-11-23 15:04:05.123Z");
        for bad in [
            "",
            "yesterday",
            "2026-11-23",
            "2026-02-30 00:00",
            "2026-11-23 24:00",
            "2026-11-23 1:2:3:4",
            "1969-12-31 23:00",
        ] {
            assert!(parse_moment(bad).is_err(), "{bad}");
        }
        assert_eq!(compact(parse_moment("2026-11-23 15:04:05.678").unwrap()), "20261123T150405678Z");
    }

    #[test]
    fn weeks_begin_on_monday() {
        let week = |text: &str| calendar_numbers(parse_moment(text).unwrap()).1;
        assert_eq!(week("2026-11-23 00:00"), week("2026-11-29 23:59"));
        assert_eq!(week("2026-11-22 23:59") + 1, week("2026-11-23 00:00"));
    }
}
