//! A dump's copy, as a running server sends it, a master or a standby; `holdfast dump create` fetches it ([`crate::fetch`]).
//!
//! It goes over the link as a base copy does, but nothing is kept for the receiver afterwards. The plan has, in addition to a
//! base copy's, the server's settings, and the checksum of the boxcar that ends where the copy is taken: it shows which
//! history the dump belongs to.
//!
//! Failure: as of a base copy: while its link is broken the copy is kept for a while.

use holdfast_engine::{CopyPlan, Engine};
use holdfast_replication::send_copy;
use holdfast_replication::settings::FILE_NAME;
use holdfast_standby::base_copy::BaseCopy;
use holdfast_types::{Lsn, SqlError, SqlResult, SqlState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::path::Path;

/// The files of a data directory that a dump contains, apart from the databases and their list. Keys are not among them.
pub const FILES: [&str; 3] = [FILE_NAME, "pg_hba.conf", "pg_ident.conf"];

/// The longest of them.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What a dump's copy is taken of.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct DumpPlan {
    /// The server's name.
    pub node: String,
    pub plan: CopyPlan,
    /// Of the boxcar that ends where the copy is taken; 0 in front of the trail's first.
    pub shown_checksum: u32,
    /// Settings, by name of the file.
    pub files: BTreeMap<String, String>,
    /// The latest epoch in the trail. On a standby the copy's own is that of its start. 0: of an earlier release.
    #[serde(default)]
    pub trail_epoch: u32,
}

/// Begins to send a dump's copy of all databases.
pub fn begin(engine: &Engine, node: &str, dir: &Path) -> SqlResult<Box<dyn BaseCopy>> {
    let copy = engine.dump_copy()?;
    let plan = copy.plan().clone();
    // So that the archive has the moment of the dump soon, and the dump can be rolled forward from it.
    engine.want_archived(Lsn(plan.shown));
    let failed = |why: String| SqlError::new(SqlState::IO_ERROR, why);
    let shown_checksum = checksum_before(engine, Lsn(plan.shown)).map_err(failed)?;
    let files = settings(dir).map_err(|e| failed(format!("cannot read the settings in {}: {e}", dir.display())))?;
    let plan = DumpPlan { node: node.to_owned(), plan, shown_checksum, files, trail_epoch: engine.trail().epoch().0 };
    let text = serde_json::to_string(&plan).map_err(|e| failed(e.to_string()))?;
    send_copy(engine, copy, text)
}

/// The checksum of the boxcar that ends at `lsn`.
fn checksum_before(engine: &Engine, lsn: Lsn) -> Result<u32, String> {
    let trail = engine.trail();
    let (end, checksum) = trail.tip();
    if end == lsn {
        return Ok(checksum);
    }
    let next = trail.read_shipped(lsn).map_err(|e| e.to_string())?.next();
    match next {
        Some(Ok(boxcar)) => Ok(boxcar.previous_checksum),
        Some(Err(error)) => Err(error.to_string()),
        None => Err(format!("the trail has no boxcar at LSN {lsn}, and ends at {end}")),
    }
}

fn settings(dir: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    for name in FILES {
        let path = dir.join(name);
        match std::fs::metadata(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Ok(found) if found.len() > FILE_BYTES_MAX => {
                return Err(io::Error::other(format!(
                    "{name} has {} bytes; the limit is {FILE_BYTES_MAX}",
                    found.len()
                )));
            }
            found => found?,
        };
        files.insert(name.to_owned(), std::fs::read_to_string(&path)?);
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_engine::{Collect, Options, Report, Step, Submission};

    #[test]
    fn settings_are_those_that_are_there_and_no_keys() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        assert_eq!(settings(dir.path()).unwrap(), BTreeMap::new());
        put(FILE_NAME, "workers = 2");
        put("pg_hba.conf", "local all all trust");
        put("authentication_secret", "secret");
        let files = settings(dir.path()).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), [FILE_NAME, "pg_hba.conf"]);
        assert_eq!(files[FILE_NAME], "workers = 2");
        put("pg_hba.conf", &"#".repeat(FILE_BYTES_MAX as usize));
        settings(dir.path()).unwrap();
        put("pg_hba.conf", &"#".repeat(FILE_BYTES_MAX as usize + 1));
        let error = settings(dir.path()).unwrap_err().to_string();
        assert!(error.contains("pg_hba.conf has 1048577 bytes; the limit is 1048576"), "{error}");
    }

    #[test]
    fn the_checksum_is_of_the_boxcar_that_ends_there() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(dir.path(), Options { segment_bytes: 1 << 20, ..Options::default() }).unwrap();
        let db = engine.database("holdfast").unwrap();
        let mut ends = Vec::new();
        for sql in ["create table t(a)", "insert into t values(1)", "insert into t values(2)"] {
            let step = Step { stmt: db.prepare(sql, Report::default()).unwrap(), params: Vec::new() };
            let ticket = db.submit(Submission::new(vec![step], Box::new(Collect::new()))).unwrap();
            ticket.wait().unwrap().result.unwrap();
            ends.push(engine.trail().tip());
        }
        for (end, checksum) in ends {
            assert_eq!(checksum_before(&engine, end), Ok(checksum), "{end}");
        }
        let (end, _) = engine.trail().tip();
        assert!(checksum_before(&engine, Lsn(end.0 + 4096)).is_err(), "the trail ends before");
    }
}
