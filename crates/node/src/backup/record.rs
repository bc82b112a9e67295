//! The file `backups.json` in the data directory: what was dumped and drilled last, so that a restart neither repeats nor forgets
//! it.
//!
//! Failure: a file that cannot be read counts as absent, and is logged: the next dump is made at once. One that cannot be
//! written is logged.

use holdfast_seams::{RealDisk, replace};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::Path;

const FILE_NAME: &str = "backups.json";

/// See the module.
#[derive(Serialize, Deserialize, Clone, Default, Debug, PartialEq)]
#[serde(default)]
pub struct Record {
    /// Where the last dump is.
    pub to: String,
    pub trail: String,
    /// No dump can be rolled forward to what the server has now.
    pub due: bool,
    pub dump: Option<DumpDone>,
    pub dumps: u64,
    pub dump_failures: u64,
    pub last_failure: Option<Failure>,
    pub drill: Option<DrillDone>,
    pub drills: u64,
    pub drill_failures: u64,
}

/// A dump that is complete.
#[derive(Serialize, Deserialize, Clone, Default, Debug, PartialEq)]
pub struct DumpDone {
    pub name: String,
    pub lsn: u64,
    pub clock_unix_ms: u64,
    pub at_unix_ms: u64,
    pub seconds: f64,
    pub bytes: u64,
    pub stored_bytes: u64,
}

/// A drill that has ended.
#[derive(Serialize, Deserialize, Clone, Default, Debug, PartialEq)]
pub struct DrillDone {
    pub at_unix_ms: u64,
    pub ok: bool,
    /// The report in one line.
    pub text: String,
    /// What was restored.
    pub lsn: Option<u64>,
    pub restore_seconds: f64,
    pub seconds: f64,
}

/// The last dump or drill that failed.
#[derive(Serialize, Deserialize, Clone, Default, Debug, PartialEq)]
pub struct Failure {
    pub at_unix_ms: u64,
    pub text: String,
}

/// A server that dumps itself does so at its next start: an import brings in what its trail, and so no older dump, has.
pub fn dump_soon(dir: &Path) {
    if dir.join(FILE_NAME).exists() {
        Record { due: true, ..Record::read(dir) }.write(dir);
    }
}

impl Record {
    pub fn read(dir: &Path) -> Record {
        let path = dir.join(FILE_NAME);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Record::default(),
            Err(error) => Err(error.to_string()),
            Ok(text) => serde_json::from_str(&text).map_err(|error| error.to_string()),
        };
        text.unwrap_or_else(|error| {
            tracing::warn!("{} is ignored: it cannot be read: {error}", path.display());
            Record::default()
        })
    }

    pub fn write(&self, dir: &Path) {
        let path = dir.join(FILE_NAME);
        let text = serde_json::to_vec_pretty(self).map_err(|error| error.to_string());
        let written = text.and_then(|text| {
            replace(&RealDisk::new(), &path, &text).map_err(|error| std::io::Error::from(error).to_string())
        });
        if let Err(error) = written {
            tracing::warn!("{} cannot be written: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_there_and_back_and_a_damaged_one_is_absent() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(dir.path()), Record::default());
        let drill = DrillDone { ok: true, lsn: Some(7), seconds: 1.5, ..DrillDone::default() };
        let record = Record { to: "/d".into(), dumps: 3, drill: Some(drill), ..Record::default() };
        record.write(dir.path());
        assert_eq!(Record::read(dir.path()), record);
        std::fs::write(dir.path().join(FILE_NAME), "{\"dumps\": 4}").unwrap();
        assert_eq!(Record::read(dir.path()).dumps, 4, "of an earlier release");
        std::fs::write(dir.path().join(FILE_NAME), "{").unwrap();
        assert_eq!(Record::read(dir.path()), Record::default());
    }
}
