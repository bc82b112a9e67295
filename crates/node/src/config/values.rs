//! Values of `holdfast.toml`: sizes and times with units, and errors that name the line, the setting and what it takes.
//!
//! Failure: a value that cannot be read is an error of the file; nothing is guessed.

use super::{Auto, DelayUs};
use crate::settings::{bytes as parse_bytes, duration};
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// A time in whole milliseconds.
fn parse_ms(text: &str) -> Option<u64> {
    let time = duration(text)?;
    time.subsec_nanos().is_multiple_of(1_000_000).then(|| u64::try_from(time.as_millis()).ok()).flatten()
}

/// A time in microseconds. A number without a unit counts microseconds here.
fn parse_us(text: &str) -> Option<u64> {
    match text.trim().parse() {
        Ok(us) => Some(us),
        Err(_) => u64::try_from(duration(text)?.as_micros()).ok(),
    }
}

/// A number that may have a unit.
struct Number<T> {
    expects: &'static str,
    parse: fn(&str) -> Option<u64>,
    of: PhantomData<T>,
}

impl<T: TryFrom<u64>> Visitor<'_> for Number<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expects)
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<T, E> {
        T::try_from(n).map_err(|_| E::invalid_value(Unexpected::Unsigned(n), &self))
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<T, E> {
        let found = u64::try_from(n).ok().and_then(|n| T::try_from(n).ok());
        found.ok_or_else(|| E::invalid_value(Unexpected::Signed(n), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        let found = (self.parse)(text).and_then(|n| T::try_from(n).ok());
        found.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

pub fn bytes<'de, D: Deserializer<'de>, T: TryFrom<u64>>(from: D) -> Result<T, D::Error> {
    let expects = "a size in bytes such as 268435456, or one with a unit such as \"256MB\"";
    from.deserialize_any(Number { expects, parse: parse_bytes, of: PhantomData })
}

pub fn ms<'de, D: Deserializer<'de>, T: TryFrom<u64>>(from: D) -> Result<T, D::Error> {
    let expects = "a time in milliseconds such as 10000, or one with a unit such as \"10s\"";
    from.deserialize_any(Number { expects, parse: parse_ms, of: PhantomData })
}

pub fn count<'de, D: Deserializer<'de>, T: TryFrom<u64>>(from: D) -> Result<T, D::Error> {
    from.deserialize_any(Number { expects: "a whole number", parse: |_| None, of: PhantomData })
}

/// Reads `commit_delay_us`.
struct Delay;

impl Visitor<'_> for Delay {
    type Value = DelayUs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("microseconds from 0 to 100000, a time with a unit such as \"2ms\", or \"auto\"")
    }

    fn visit_u64<E: Error>(self, us: u64) -> Result<DelayUs, E> {
        Ok(DelayUs::Fixed(us))
    }

    fn visit_i64<E: Error>(self, us: i64) -> Result<DelayUs, E> {
        u64::try_from(us).map(DelayUs::Fixed).map_err(|_| E::invalid_value(Unexpected::Signed(us), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<DelayUs, E> {
        match (text, parse_us(text)) {
            ("auto", _) => Ok(DelayUs::Auto(Auto::Auto)),
            (_, Some(us)) => Ok(DelayUs::Fixed(us)),
            (_, None) => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}

pub fn delay_us<'de, D: Deserializer<'de>>(from: D) -> Result<DelayUs, D::Error> {
    from.deserialize_any(Delay)
}

/// The parser's error as one line: where, which setting, what is wrong with its value.
pub fn explain(text: &str, error: &toml::de::Error) -> String {
    let message = error.message().trim_end();
    let Some(span) = error.span() else { return message.to_owned() };
    let before = &text[..span.start.min(text.len())];
    let line = before.matches('\n').count() + 1;
    if let Some(why) = unknown_setting(message) {
        return format!("line {line}: {why}");
    }
    let begin = before.rfind('\n').map_or(0, |at| at + 1);
    let statement = text[begin..].lines().next().unwrap_or_default();
    let setting = statement.split_once('=').map(|(name, _)| name.trim());
    let value = text.get(span).unwrap_or_default();
    match (setting, message.rsplit_once(", expected ")) {
        (Some(name), Some((what, expected))) if is_about_a_value(what) => {
            format!("line {line}: {name} = {value} is not valid; it must be {}", for_people(expected))
        }
        (Some(name), _) if !value.contains('\n') && value.starts_with(['"', '\'']) => {
            format!("line {line}: {name}: {message}")
        }
        _ => format!("line {line}: {message}"),
    }
}

fn is_about_a_value(what: &str) -> bool {
    ["invalid type", "invalid value", "unknown variant"].iter().any(|begin| what.starts_with(begin))
}

/// What serde expects, without its names of types.
fn for_people(expected: &str) -> String {
    match expected {
        "a boolean" => "true or false".to_owned(),
        "a string" | "path string" | "string" => "a text in quotation marks".to_owned(),
        other => other.replace('`', "\""),
    }
}

/// Two names that are less alike than this are not taken for one another.
const ALIKE: f64 = 0.8;

fn unknown_setting(message: &str) -> Option<String> {
    let rest = message.strip_prefix("unknown field `")?;
    let (name, known) = rest.split_once('`')?;
    let alike = |known: &str| strsim::jaro_winkler(&name.to_ascii_lowercase(), known);
    let nearest = known.split('`').skip(1).step_by(2).max_by(|a, b| alike(a).total_cmp(&alike(b)));
    Some(match nearest.filter(|known| alike(known) >= ALIKE) {
        Some(nearest) => format!("there is no setting \"{name}\"; did you mean \"{nearest}\"?"),
        None => {
            format!("there is no setting \"{name}\"; the holdfast.toml that a first start writes names every setting")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn sizes_and_times_take_units() {
        for (text, bytes) in [
            ("268435456", 256 << 20),
            ("\"256MB\"", 256 << 20),
            ("\"256 MiB\"", 256 << 20),
            ("\"262144 kB\"", 256 << 20),
            ("\"1GB\"", 1 << 30),
            ("\"1gib\"", 1 << 30),
        ] {
            let config = Config::parse(&format!("memory_bytes_max = {text}"));
            assert_eq!(config.map(|c| c.memory_bytes_max), Ok(bytes), "{text}");
        }
        for (text, ms) in [("10000", 10_000), ("\"10s\"", 10_000), ("\"100 ms\"", 100), ("\"1 h\"", 3_600_000)] {
            let config = Config::parse(&format!("standby_timeout_ms = {text}"));
            assert_eq!(config.map(|c| c.standby_timeout_ms), Ok(ms), "{text}");
        }
        let delay = |text: &str| Config::parse(&format!("commit_delay_us = {text}")).map(|c| c.commit_delay_us);
        assert_eq!(delay("\"2ms\""), Ok(DelayUs::Fixed(2000)));
        assert_eq!(delay("\"200\""), Ok(DelayUs::Fixed(200)));
        for wrong in ["\"256 apples\"", "\"MB\"", "-1", "true", "1.5", "\"99999999999 TB\""] {
            let message = Config::parse(&format!("memory_bytes_max = {wrong}")).unwrap_err();
            assert_eq!(
                message,
                format!(
                    "line 1: memory_bytes_max = {wrong} is not valid; it must be a size in bytes such as 268435456, or \
                     one with a unit such as \"256MB\""
                )
            );
        }
        assert!(Config::parse("lock_timeout_ms = \"10us\"").unwrap_err().contains("a time in milliseconds"));
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        let message = |text: &str| Config::parse(text).unwrap_err();
        assert_eq!(
            message("\nconnection_max = 3\n"),
            "line 2: there is no setting \"connection_max\"; did you mean \"connections_max\"?"
        );
        assert_eq!(
            message("colour = 3"),
            "line 1: there is no setting \"colour\"; the holdfast.toml that a first start writes names every setting"
        );
        assert_eq!(message("workers = \"many\""), "line 1: workers = \"many\" is not valid; it must be a whole number");
        assert_eq!(
            message("\n\nauto_transaction = \"yes\""),
            "line 3: auto_transaction = \"yes\" is not valid; it must be true or false"
        );
        assert_eq!(
            message("node_name = 3"),
            "line 1: node_name = 3 is not valid; it must be a text in quotation marks"
        );
        assert_eq!(
            message("mirror_away = \"never\""),
            "line 1: mirror_away = \"never\" is not valid; it must be \"wait\" or \"go_on\""
        );
        assert_eq!(message("listen = \"5433\""), "line 1: listen: \"5433\" is not HOST:PORT: the port is missing");
        assert!(message("workers = ").starts_with("line 1: "));
    }
}
