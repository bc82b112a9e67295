//! `[dump]` and `[drill]` in `holdfast.toml`: the server backs itself up, and tries its backups.
//!
//! The template has them as `dump.to = ""`, which is the same in TOML: a line that is added at the end of the file is then
//! never taken for a part of a table.
//!
//! Failure: a value that cannot be read is an error of the file that names the setting.

use super::Config;
use crate::settings::duration;
use holdfast_archive::ArchiveLocation;
use serde::de::{Deserializer, Error, Unexpected};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;

/// A dump that is due more often would only be busy with itself.
const EVERY_MIN: Duration = Duration::from_secs(1);
const RATE_MB_MAX: u64 = 1_000_000;

/// `[dump]`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct DumpSettings {
    /// Directory or object store. Empty: the server does not dump itself.
    pub to: String,
    #[serde(deserialize_with = "time")]
    pub every: Duration,
    pub keep: KeepSettings,
    /// Megabytes of pages a second; 0: no limit.
    #[serde(deserialize_with = "super::values::count")]
    pub rate_mb: u64,
    /// The node that dumps; empty: the master.
    pub node: String,
    /// How long trail that no dump needs stays in the archive; zero: the archive is not shortened.
    #[serde(deserialize_with = "time")]
    pub archive_keep: Duration,
    /// Recipients in the age format, separated by blanks, of a place that is dumped to for the first time; empty: it is not
    /// encrypted.
    pub encrypt_to: String,
    /// The file with an identity that opens an encrypted place; empty: none.
    pub identity: PathBuf,
}

/// `keep` in `[dump]`: as `holdfast dump forget` has it.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct KeepSettings {
    #[serde(default)]
    pub last: u32,
    #[serde(default)]
    pub daily: u32,
    #[serde(default)]
    pub weekly: u32,
    #[serde(default)]
    pub monthly: u32,
}

/// `[drill]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, default)]
pub struct DrillSettings {
    /// Zero: no drill.
    #[serde(deserialize_with = "time")]
    pub every: Duration,
    /// Where it restores to; empty: `drill` in the data directory.
    pub scratch: PathBuf,
}

impl Default for DumpSettings {
    fn default() -> DumpSettings {
        DumpSettings {
            to: String::new(),
            every: Duration::from_secs(3600),
            keep: KeepSettings { last: 24, daily: 7, weekly: 4, monthly: 12 },
            rate_mb: 0,
            node: String::new(),
            archive_keep: Duration::ZERO,
            encrypt_to: String::new(),
            identity: PathBuf::new(),
        }
    }
}

impl Config {
    pub(super) fn check_backups(&self) -> Result<(), String> {
        let (dump, drill) = (&self.dump, &self.drill);
        let place = ArchiveLocation::parse(&dump.to).map_err(|e| e.to_string().replacen("archive", "dump.to", 1))?;
        if place.is_some() && dump.every < EVERY_MIN {
            return Err(format!("dump.every = {:?} is too small, the least is 1 s", dump.every));
        }
        let archive = ArchiveLocation::parse(&self.archive).ok().flatten();
        if place.as_ref().zip(archive.as_ref()).is_some_and(|(place, archive)| place.is_same_place(archive)) {
            let (to, archive) = (&dump.to, &self.archive);
            return Err(format!(
                "dump.to {to:?} and archive {archive:?} are both the same place; choose another for dump.to"
            ));
        }
        if !dump.encrypt_to.trim().is_empty() && dump.identity.as_os_str().is_empty() {
            return Err("dump.encrypt_to is set and dump.identity is not: each dump but the first is compared with the one before, \
                        which can be read with an identity only. `holdfast dump key` makes one"
                .to_owned());
        }
        if dump.rate_mb > RATE_MB_MAX {
            return Err(format!("dump.rate_mb = {} is too large, the most is {RATE_MB_MAX}", dump.rate_mb));
        }
        if !drill.every.is_zero() && place.is_none() {
            return Err("drill.every is set and dump.to is not: a drill restores the newest dump".to_owned());
        }
        if !drill.every.is_zero() && drill.every < EVERY_MIN {
            return Err(format!("drill.every = {:?} is too small, the least is 1 s", drill.every));
        }
        if !drill.scratch.as_os_str().is_empty() && !drill.scratch.is_absolute() {
            return Err(format!("drill.scratch = {:?} is not a whole path, from \"/\" on", drill.scratch.display()));
        }
        Ok(())
    }
}

/// Units in words; the others are PostgreSQL's.
const WORDS: [(&str, u64); 8] = [
    ("second", 1),
    ("seconds", 1),
    ("minute", 60),
    ("minutes", 60),
    ("hour", 3600),
    ("hours", 3600),
    ("day", 86_400),
    ("days", 86_400),
];

/// "1 h", "1 day", "0".
fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    let (number, unit) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    match WORDS.iter().find(|(word, _)| *word == unit.trim()) {
        Some((_, seconds)) => Some(Duration::from_secs(number.parse::<u64>().ok()?.checked_mul(*seconds)?)),
        // Without a unit it would be milliseconds, which is not meant.
        None if unit.is_empty() && number.bytes().any(|digit| digit != b'0') => None,
        None => duration(text),
    }
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(from)?;
    parse(&text).ok_or_else(|| D::Error::invalid_value(Unexpected::Str(&text), &"a time such as \"1 h\" or \"1 day\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_and_dotted_keys_are_the_same() {
        let table =
            Config::parse("[dump]\nto = \"/d\"\nevery = \"2 hours\"\nkeep = { daily = 3 }\n[drill]\nevery = \"1 day\"");
        let dotted = "dump.to = \"/d\"\ndump.every = \"2 h\"\ndump.keep = { daily = 3 }\ndrill.every = \"24 h\"";
        let config = table.unwrap();
        assert_eq!(Config::parse(dotted), Ok(config.clone()));
        assert_eq!((config.dump.keep.daily, config.dump.keep.last), (3, 0));
        assert_eq!(config.dump.every, Duration::from_secs(7200));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (text, word) in [
            ("dump.every = \"often\"", "a time such as"),
            ("dump.every = \"3600\"", "a time such as"),
            ("dump.to = \"/d\"\ndump.every = \"0\"", "dump.every"),
            ("dump.to = \"d\"", "dump.to"),
            ("dump.to = \"/d\"\narchive = \"/d/\"", "both"),
            ("dump.to = \"/d\"\narchive = \"file:///d\"", "both"),
            ("drill.every = \"1 day\"", "dump.to is not"),
            ("dump.to = \"/d\"\ndump.encrypt_to = \"age1\"", "dump.identity is not"),
            ("[dump]\ntoo = \"/d\"", "\"to\""),
            ("dump.keep = { hourly = 3 }", "hourly"),
        ] {
            let message = Config::parse(text).unwrap_err();
            assert!(message.contains(word), "{text}: {message}");
        }
    }
}
