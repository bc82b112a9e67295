//! Time zones: a name, an abbreviation or an offset, and the offset that it means at a moment.
//!
//! The rules are those of the IANA database that the crate jiff contains, so a server needs no files for them. The
//! functions are pure: the session's zone is an argument. A zone is looked up as PostgreSQL does: `SET TimeZone` takes
//! hours, names of the database and POSIX specifications ([`Zone::of_setting`]); input and AT TIME ZONE take
//! abbreviations first ([`Zone::named`]). A local time that occurs twice means the later moment, one that does not
//! occur is read with the offset before the change, as in PostgreSQL. An unknown zone is 22023.

use super::abbreviations::{Meaning, meaning};
use holdfast_types::{SqlError, SqlResult, SqlState};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Timestamp, ToSpan};
use std::cell::RefCell;
use std::sync::OnceLock;

/// The name of the zone in which values are stored.
pub const UTC: &str = "UTC";

/// A time zone.
#[derive(Clone, Debug)]
pub struct Zone {
    name: String,
    rule: Rule,
}

#[derive(Clone, Debug)]
enum Rule {
    /// Seconds east of UTC, and what is printed as its abbreviation.
    Fixed(i32, String),
    Changing(TimeZone),
}

fn database() -> &'static TimeZoneDatabase {
    static DATABASE: OnceLock<TimeZoneDatabase> = OnceLock::new();
    DATABASE.get_or_init(TimeZoneDatabase::bundled)
}

/// 22023 of a zone that does not exist.
pub fn unknown(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("time zone \"{name}\" not recognized"))
}

/// `HH`, `HH:MM` or `HH:MM:SS` without a sign.
fn clock(seconds: i32) -> String {
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (m, s) {
        (0, 0) => format!("{h:02}"),
        (_, 0) => format!("{h:02}:{m:02}"),
        _ => format!("{h:02}:{m:02}:{s:02}"),
    }
}

/// Appends an offset as PostgreSQL prints it after a time: `+02`, `-03:30`, `+00:53:28`.
pub fn format_offset(seconds: i32, out: &mut String) {
    out.push(if seconds < 0 { '-' } else { '+' });
    out.push_str(&clock(seconds.abs()));
}

impl Zone {
    pub fn utc() -> Zone {
        Zone { name: UTC.into(), rule: Rule::Fixed(0, UTC.into()) }
    }

    /// A fixed offset, in seconds east of UTC, with the name that PostgreSQL gives it: `<+02>-02`.
    pub fn fixed(seconds: i32) -> Zone {
        let digits = clock(seconds.abs());
        let (shown, posix) = if seconds < 0 { ('-', '+') } else { ('+', '-') };
        let abbreviation = format!("{shown}{digits}");
        Zone { name: format!("<{abbreviation}>{posix}{digits}"), rule: Rule::Fixed(seconds, abbreviation) }
    }

    /// The zone that a value of the parameter TimeZone means: hours east of UTC, a name, or a POSIX specification.
    pub fn of_setting(value: &str) -> Option<Zone> {
        let value = value.trim();
        match value.parse::<f64>() {
            Ok(hours) if hours.is_finite() && hours.abs() <= 167.0 => Some(Zone::fixed((hours * 3600.0) as i32)),
            _ => Zone::by_name(value),
        }
    }

    /// The zone that a text in SQL means: an abbreviation, a name, or a POSIX specification.
    pub fn named(text: &str) -> SqlResult<Zone> {
        let text = text.trim();
        match meaning(text) {
            Some(Meaning::Offset(seconds)) => {
                Ok(Zone { name: text.to_ascii_uppercase(), rule: Rule::Fixed(seconds, text.to_ascii_uppercase()) })
            }
            Some(Meaning::Zone(name)) => Zone::by_name(name).ok_or_else(|| unknown(text)),
            None => Zone::by_name(text).ok_or_else(|| unknown(text)),
        }
    }

    /// The zone of an abbreviation alone, such as `EST`.
    pub fn abbreviated(text: &str) -> Option<Zone> {
        meaning(text).and_then(|_| Zone::named(text).ok())
    }

    fn by_name(name: &str) -> Option<Zone> {
        if name.eq_ignore_ascii_case(UTC) {
            return Some(Zone::utc());
        }
        if let Ok(found) = database().get(name)
            && !found.is_unknown()
        {
            let name = found.iana_name().unwrap_or(name).to_owned();
            return Some(Zone { name, rule: Rule::Changing(found) });
        }
        posix(name)
    }

    /// The zone's name as SHOW prints it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is UTC, in which values are stored.
    pub fn is_utc(&self) -> bool {
        matches!(self.rule, Rule::Fixed(0, _)) && self.name == UTC
    }

    /// Seconds east of UTC at a moment: microseconds since 1970 UTC.
    pub fn offset_at(&self, unix_us: i64) -> i32 {
        match &self.rule {
            Rule::Fixed(seconds, _) => *seconds,
            Rule::Changing(zone) => zone.to_offset(timestamp(unix_us)).seconds(),
        }
    }

    /// Seconds east of UTC at a local time: microseconds since 1970-01-01 00:00 of the zone's clock.
    pub fn offset_of_local(&self, local_us: i64) -> i32 {
        match &self.rule {
            Rule::Fixed(seconds, _) => *seconds,
            Rule::Changing(zone) => {
                let Some(local) = civil(local_us) else { return self.offset_at(local_us) };
                match zone.to_ambiguous_timestamp(local).offset() {
                    AmbiguousOffset::Unambiguous { offset } => offset.seconds(),
                    AmbiguousOffset::Gap { before, .. } => before.seconds(),
                    AmbiguousOffset::Fold { after, .. } => after.seconds(),
                }
            }
        }
    }

    /// A local time as microseconds since 1970 UTC.
    pub fn to_utc(&self, local_us: i64) -> i64 {
        local_us - i64::from(self.offset_of_local(local_us)) * 1_000_000
    }

    /// A moment as microseconds since 1970-01-01 00:00 of the zone's clock.
    pub fn to_local(&self, unix_us: i64) -> i64 {
        unix_us + i64::from(self.offset_at(unix_us)) * 1_000_000
    }

    /// The abbreviation at a moment: `CEST`.
    pub fn abbreviation_at(&self, unix_us: i64) -> String {
        match &self.rule {
            Rule::Fixed(_, abbreviation) => abbreviation.clone(),
            Rule::Changing(zone) => zone.to_offset_info(timestamp(unix_us)).abbreviation().to_owned(),
        }
    }
}

/// A moment within the years that jiff knows.
fn timestamp(unix_us: i64) -> Timestamp {
    let ends = (Timestamp::MIN.as_microsecond(), Timestamp::MAX.as_microsecond());
    Timestamp::from_microsecond(unix_us.clamp(ends.0, ends.1)).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A local time; `None` beyond the years that jiff knows.
fn civil(local_us: i64) -> Option<DateTime> {
    DateTime::constant(1970, 1, 1, 0, 0, 0, 0).checked_add(local_us.microseconds()).ok()
}

/// Reads a POSIX specification: `EST5`, `<-03>+03`, `FOO-2BAR`. Offsets count to the west. Without rules summer time is
/// that of the United States, as in PostgreSQL.
fn posix(text: &str) -> Option<Zone> {
    let (name, rest) = match text.strip_prefix('<') {
        Some(quoted) => quoted.split_once('>')?,
        None => text.split_at(text.find(|c: char| c.is_ascii_digit() || ",+-".contains(c))?),
    };
    if !name.chars().all(|c| c.is_ascii_alphanumeric() || "+-:".contains(c)) {
        return None;
    }
    let end = rest.find(|c: char| !(c.is_ascii_digit() || "+-:".contains(c))).unwrap_or(rest.len());
    let seconds = -offset(&rest[..end])?;
    if end == rest.len() {
        return Some(Zone { name: text.to_owned(), rule: Rule::Fixed(seconds, name.to_owned()) });
    }
    let full = if text.contains(',') { text.to_owned() } else { format!("{text},M3.2.0,M11.1.0") };
    TimeZone::posix(&full).ok().map(|zone| Zone { name: text.to_owned(), rule: Rule::Changing(zone) })
}

/// Reads `[+-]HH[:MM[:SS]]` as seconds.
fn offset(text: &str) -> Option<i32> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let mut seconds = 0;
    let mut unit = 3600;
    for part in digits.split(':') {
        let most = if unit == 3600 { 167 } else { 59 };
        let n: i32 =
            part.parse().ok().filter(|n| (0..=most).contains(n) && part.bytes().all(|b| b.is_ascii_digit()))?;
        seconds += n.checked_mul(unit)?;
        unit /= 60;
    }
    (unit >= 0 && digits.split(':').count() <= 3).then_some(sign * seconds)
}

thread_local! {
    /// The zones used last: the session's, and one that a statement names.
    static LAST: RefCell<Vec<(String, Zone)>> = const { RefCell::new(Vec::new()) };
}

/// The number of zones that a thread keeps.
const KEPT_MAX: usize = 4;

/// Runs `f` with the zone of a session's setting. A setting that is not a zone is UTC.
pub fn with_setting<T>(value: &str, f: impl FnOnce(&Zone) -> T) -> T {
    if value == UTC {
        return f(&Zone::utc());
    }
    let known = LAST.with(|last| last.borrow().iter().find(|(n, _)| n == value).map(|(_, zone)| zone.clone()));
    let zone = known.unwrap_or_else(|| {
        let zone = Zone::of_setting(value).unwrap_or_else(Zone::utc);
        LAST.with(|last| {
            let mut last = last.borrow_mut();
            last.truncate(KEPT_MAX - 1);
            last.insert(0, (value.to_owned(), zone.clone()));
        });
        zone
    });
    f(&zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i32 = 3600;

    fn us(text: &str) -> i64 {
        super::super::datetime::to_unix_us(text).unwrap()
    }

    /// Offsets as PostgreSQL 15 gives them.
    #[test]
    fn zones_change_their_offset() {
        let berlin = Zone::of_setting("europe/berlin").unwrap();
        assert_eq!(berlin.name(), "Europe/Berlin");
        assert_eq!(berlin.offset_at(us("2026-01-01 00:00:00")), HOUR);
        assert_eq!(berlin.offset_at(us("2026-07-01 00:00:00")), 2 * HOUR);
        assert_eq!(berlin.abbreviation_at(us("2026-07-01 00:00:00")), "CEST");
        // 02:30 does not occur on 2026-03-29 and occurs twice on 2026-10-25.
        assert_eq!(berlin.offset_of_local(us("2026-03-29 02:30:00")), HOUR);
        assert_eq!(berlin.offset_of_local(us("2026-10-25 02:30:00")), HOUR);
        assert_eq!(berlin.offset_of_local(us("2026-10-25 01:30:00")), 2 * HOUR);
        let kathmandu = Zone::named("Asia/Kathmandu").unwrap();
        assert_eq!(kathmandu.offset_at(us("2026-01-01 00:00:00")), 5 * HOUR + 45 * 60);
    }

    #[test]
    fn settings_are_hours_names_and_posix() {
        for (value, name, offset) in [
            ("-7", "<-07>+07", -7 * HOUR),
            ("5.5", "<+05:30>-05:30", 5 * HOUR + 1800),
            ("<-03>+03", "<-03>+03", -3 * HOUR),
            ("FOO-2", "FOO-2", 2 * HOUR),
            ("+3", "<+03>-03", 3 * HOUR),
            ("utc", "UTC", 0),
            ("Etc/GMT+5", "Etc/GMT+5", -5 * HOUR),
        ] {
            let zone = Zone::of_setting(value).unwrap();
            assert_eq!((zone.name(), zone.offset_at(0)), (name, offset), "{value}");
        }
        for value in ["", "Mars/Olympus", "soon", "1000", "a b"] {
            assert!(Zone::of_setting(value).is_none(), "{value}");
        }
        let eastern = Zone::of_setting("EST5EDT").unwrap();
        assert_eq!(eastern.offset_at(us("2026-07-01 00:00:00")), -4 * HOUR);
    }

    #[test]
    fn abbreviations_come_first_in_sql() {
        assert_eq!(Zone::named("PDT").unwrap().offset_at(0), -7 * HOUR);
        assert_eq!(Zone::named("cest").unwrap().offset_at(0), 2 * HOUR);
        assert_eq!(Zone::named("+02").unwrap().offset_at(0), -2 * HOUR);
        assert_eq!(Zone::named("Nowhere/At_All").unwrap_err().state(), SqlState::INVALID_PARAMETER_VALUE);
    }
}
