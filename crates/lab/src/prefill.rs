//! The database every in-process configuration starts from: all terminals and a given number of log records, built
//! once with stock SQLite and copied for each.
//!
//! Failure: SQLite's or the file system's error, naming the file.

use crate::interrupt;
use crate::workload::{self, Requests};
use anyhow::Context;
use holdfast_store::sqlite::{Conn, OpenFlags};
use holdfast_types::Value;
use std::path::Path;

/// Bytes of database for each log record, indexes included: for estimating room.
pub const LOG_ROW_FILE_BYTES: u64 = 1300;
/// Bytes of database the terminal file takes.
pub const TERMINAL_FILE_BYTES: u64 = 85 << 20;

/// A row of the pre-filled log in column order.
pub fn log_row(id: i64, requests: &mut Requests) -> [Value; 6] {
    let r = requests.next_request();
    [
        Value::Int(id),
        Value::Text(r.card),
        Value::Text(r.term_no),
        Value::Text(r.auth_code),
        Value::Int(r.at),
        Value::Text(r.body.to_string()),
    ]
}

/// A row of the terminal file in column order.
pub fn terminal_row(n: u64) -> [Value; 6] {
    let t = workload::terminal(n);
    [
        Value::Int(t.id),
        Value::Text(t.term_no),
        Value::Text(t.site),
        Value::Int(t.approved_count),
        Value::Int(t.last_at),
        Value::Text(t.profile),
    ]
}

/// The requests whose rows fill the log.
pub fn log_requests() -> Requests {
    Requests::new(0, 1, 0)
}

/// Builds the database at `path`, which must not exist; `progress` gets the number of log rows written so far.
pub fn build(path: &Path, log_rows: u64, progress: &mut dyn FnMut(u64)) -> anyhow::Result<()> {
    let name = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
    let mut conn = Conn::open(name, OpenFlags { write: true, create: true }, None)?;
    // Nothing here needs to survive a crash: every run makes the file again.
    conn.exec("pragma journal_mode = off; pragma synchronous = off; pragma cache_size = -262144;")?;
    conn.exec(workload::SCHEMA_SQLITE).context("cannot create the schema")?;
    conn.exec("begin")?;
    let load = conn.prepare(workload::LOAD_TERMINAL_SQLITE)?;
    for n in 1..=workload::TERMINALS {
        insert(&mut conn, load, &terminal_row(n))?;
    }
    let load = conn.prepare(workload::LOAD_LOG_SQLITE)?;
    let mut requests = log_requests();
    for id in 1..=log_rows {
        insert(&mut conn, load, &log_row(id as i64, &mut requests))?;
        if id % 1000 == 0 {
            interrupt::check()?;
            progress(id);
        }
    }
    conn.exec("commit").with_context(|| format!("cannot fill {}", path.display()))
}

fn insert(conn: &mut Conn, stmt: holdfast_store::sqlite::StmtId, row: &[Value]) -> anyhow::Result<()> {
    row.iter().enumerate().try_for_each(|(i, v)| conn.bind(stmt, i + 1, v.as_ref()))?;
    Ok(conn.run(stmt)?)
}

/// Copies a built database and syncs the copy, so that no write-back of it falls into a measurement.
pub fn copy(template: &Path, path: &Path) -> anyhow::Result<()> {
    let naming = || format!("copying {} to {}", template.display(), path.display());
    std::fs::copy(template, path).with_context(naming)?;
    std::fs::File::open(path).and_then(|f| f.sync_all()).with_context(naming)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_what_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.db");
        build(&path, 2500, &mut |_| ()).unwrap();
        let mut conn = Conn::open(path.to_str().unwrap(), OpenFlags { write: false, create: false }, None).unwrap();
        assert_eq!(conn.query_value("select count(*) from terminal").unwrap(), Value::Int(10_000));
        assert_eq!(conn.query_value("select count(*) from txn_log").unwrap(), Value::Int(2500));
        let indexes = "select count(*) from sqlite_schema where type = 'index' and tbl_name = ";
        assert_eq!(conn.query_value(&format!("{indexes}'txn_log'")).unwrap(), Value::Int(4), "four alternate keys");
        assert_eq!(conn.query_value(&format!("{indexes}'terminal'")).unwrap(), Value::Int(2), "two alternate keys");
        let bytes = "select min(16 + length(card) + length(term_no) + length(auth_code) + length(body)) from txn_log";
        assert_eq!(conn.query_value(bytes).unwrap(), Value::Int(998));
    }
}
