//! The configurations on stock SQLite: its own `unix` VFS, its own journal or WAL. The only thing between is a shim
//! that counts syncs and, when asked, makes each take longer ([`SlowVfs`]).
//!
//! The clients share one connection behind a mutex, held for one authorization. That is the fairest way to give many
//! writers to SQLite: a connection a client would make them poll for the write lock with sleeps. The mutex is also
//! the terminal's record lock where there is no transaction.
//!
//! Failure: SQLite's error with its code, naming the step.

use crate::drive::{Outcome, Target};
use crate::ffi::SlowVfs;
use crate::prefill;
use crate::results::Fact;
use crate::workload::{self, Request};
use anyhow::Context;
use holdfast_store::sqlite::{Conn, OpenFlags, StmtId};
use holdfast_types::{Value, ValueRef};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// Page cache of the one connection, in KiB; the study had "very large disk caches".
const CACHE_KIB: u32 = 256 * 1024;
/// Log records the streamlined insert gathers before they are written.
const APPEND_BATCH: usize = 64;

/// How an authorization is done on stock SQLite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StockMode {
    /// Rollback journal, synced, each statement a commit.
    Unaudited,
    /// SQLite without audit, never synced.
    Buffered,
    /// SQLite without audit, never synced, log inserts through an append buffer.
    Nainsert,
    /// WAL at synchronous FULL, one transaction.
    WalFull,
    /// WAL at synchronous NORMAL, one transaction.
    WalNormal,
    /// WAL at synchronous OFF, one transaction.
    WalOff,
    /// WAL at synchronous FULL, triggers copy every change.
    CaptureTriggers,
}

impl StockMode {
    fn journal_mode(self) -> &'static str {
        match self {
            StockMode::Unaudited | StockMode::Buffered | StockMode::Nainsert => "delete",
            _ => "wal",
        }
    }

    fn synchronous(self) -> &'static str {
        match self {
            StockMode::Unaudited | StockMode::WalFull | StockMode::CaptureTriggers => "full",
            StockMode::WalNormal => "normal",
            StockMode::Buffered | StockMode::Nainsert | StockMode::WalOff => "off",
        }
    }

    /// One transaction around the authorization.
    fn transaction(self) -> bool {
        self.journal_mode() == "wal"
    }

    /// The pragmas it runs with, for the report.
    pub fn settings(self) -> Vec<Fact> {
        [
            ("journal_mode", self.journal_mode().to_string()),
            ("synchronous", self.synchronous().to_string()),
            ("cache_size", format!("-{CACHE_KIB}")),
            ("page_size", "4096".to_string()),
        ]
        .map(|(name, value)| Fact::new(name, value))
        .to_vec()
    }
}

/// The paper's interception: a second record, with the whole row, for every change.
const CAPTURE: &str = "\
create table capture (id integer primary key, op text not null, tbl text not null, row_id integer not null, \
image text not null);
create trigger capture_terminal after update on terminal begin
  insert into capture (op, tbl, row_id, image) values ('U', 'terminal', new.id,
    new.term_no || char(9) || new.site || char(9) || new.approved_count || char(9) || new.last_at || char(9) ||
    new.profile);
end;
create trigger capture_log after insert on txn_log begin
  insert into capture (op, tbl, row_id, image) values ('I', 'txn_log', new.id,
    new.card || char(9) || new.term_no || char(9) || new.auth_code || char(9) || new.at || char(9) || new.body);
end;";

/// A database file with one writer.
pub struct Stock {
    writer: Mutex<Writer>,
    vfs: SlowVfs,
}

struct Writer {
    conn: Conn,
    mode: StockMode,
    begin: StmtId,
    commit: StmtId,
    rollback: StmtId,
    select: StmtId,
    update: StmtId,
    insert: StmtId,
    /// Log records answered and not yet written (nainsert).
    append: Vec<Request>,
}

impl Stock {
    /// Copies the pre-filled `template` to `path` and opens it for `mode`.
    pub fn open(template: &Path, path: &Path, mode: StockMode, vfs: SlowVfs) -> anyhow::Result<Stock> {
        prefill::copy(template, path)?;
        let name = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
        let mut conn = Conn::open(name, OpenFlags { write: true, create: false }, Some(vfs.name()))?;
        let journal = conn.query_value(&format!("pragma journal_mode = {}", mode.journal_mode()))?;
        anyhow::ensure!(
            journal == Value::Text(mode.journal_mode().into()),
            "SQLite would not set journal_mode {}: it is {journal:?}",
            mode.journal_mode()
        );
        conn.exec(&format!("pragma synchronous = {}; pragma cache_size = -{CACHE_KIB};", mode.synchronous()))?;
        if mode == StockMode::CaptureTriggers {
            conn.exec(CAPTURE).context("cannot create the capture triggers")?;
        }
        Ok(Stock { writer: Mutex::new(Writer::new(conn, mode)?), vfs })
    }

    fn writer(&self) -> anyhow::Result<MutexGuard<'_, Writer>> {
        self.writer.lock().map_err(|_| anyhow::anyhow!("another client panicked while it was writing"))
    }

    /// The connection, for looking at the result.
    #[cfg(test)]
    pub fn query(&self, sql: &str) -> Value {
        self.writer().unwrap().conn.query_value(sql).unwrap()
    }
}

impl Target for Stock {
    fn authorize(&self, request: &Request, give_up: Instant) -> anyhow::Result<Outcome> {
        let mut writer = self.writer()?;
        if Instant::now() >= give_up {
            return Ok(Outcome::GivenUp);
        }
        writer.authorize(request).map(|()| Outcome::Answered)
    }

    fn syncs(&self) -> Option<u64> {
        Some(self.vfs.syncs())
    }

    fn settle(&self) -> anyhow::Result<()> {
        self.writer()?.write_appended()
    }

    fn log_rows(&self) -> anyhow::Result<u64> {
        match self.writer()?.conn.query_value("select count(*) from txn_log")? {
            Value::Int(rows) => Ok(rows as u64),
            other => anyhow::bail!("count(*) returned {other:?}"),
        }
    }
}

impl Writer {
    fn new(mut conn: Conn, mode: StockMode) -> anyhow::Result<Writer> {
        Ok(Writer {
            mode,
            begin: conn.prepare("begin immediate")?,
            commit: conn.prepare("commit")?,
            rollback: conn.prepare("rollback")?,
            select: conn.prepare(&workload::select_sql("?1", false))?,
            update: conn.prepare(&workload::update_sql("?1", "?2"))?,
            insert: conn.prepare(&workload::insert_sql(["?1", "?2", "?3", "?4", "?5"]))?,
            append: Vec::with_capacity(APPEND_BATCH),
            conn,
        })
    }

    fn authorize(&mut self, request: &Request) -> anyhow::Result<()> {
        if !self.mode.transaction() {
            return self.steps(request);
        }
        self.conn.run(self.begin).context("BEGIN")?;
        match self.steps(request) {
            Ok(()) => self.conn.run(self.commit).context("COMMIT"),
            Err(e) => {
                // The first error is the one to report; a transaction SQLite ended by itself cannot be rolled back.
                let _ = self.conn.run(self.rollback);
                Err(e)
            }
        }
    }

    fn steps(&mut self, request: &Request) -> anyhow::Result<()> {
        self.read(request).context("cannot read the terminal")?;
        self.conn.bind(self.update, 1, ValueRef::Int(request.at))?;
        self.conn.bind(self.update, 2, text(&request.term_no))?;
        self.conn.run(self.update).context("cannot update the terminal")?;
        anyhow::ensure!(self.conn.changes() == 1, "terminal {} was not updated", request.term_no);
        if self.mode != StockMode::Nainsert {
            return self.insert(request).context("cannot insert the log record");
        }
        self.append.push(request.clone());
        if self.append.len() >= APPEND_BATCH { self.write_appended() } else { Ok(()) }
    }

    fn read(&mut self, request: &Request) -> anyhow::Result<()> {
        self.conn.bind(self.select, 1, text(&request.term_no))?;
        let found =
            self.conn.step(self.select).map(|found| found && self.conn.column(self.select, 0) != ValueRef::Null);
        self.conn.reset(self.select);
        anyhow::ensure!(found?, "terminal {} does not exist", request.term_no);
        Ok(())
    }

    fn insert(&mut self, request: &Request) -> anyhow::Result<()> {
        let (conn, insert) = (&mut self.conn, self.insert);
        conn.bind(insert, 1, text(&request.card))?;
        conn.bind(insert, 2, text(&request.term_no))?;
        conn.bind(insert, 3, text(&request.auth_code))?;
        conn.bind(insert, 4, ValueRef::Int(request.at))?;
        conn.bind(insert, 5, text(&request.body))?;
        Ok(conn.run(insert)?)
    }

    fn write_appended(&mut self) -> anyhow::Result<()> {
        if self.append.is_empty() {
            return Ok(());
        }
        self.conn.run(self.begin)?;
        let mut batch = std::mem::take(&mut self.append);
        batch.iter().try_for_each(|request| self.insert(request)).context("cannot write the append buffer")?;
        self.conn.run(self.commit)?;
        batch.clear();
        self.append = batch;
        Ok(())
    }
}

fn text(s: &str) -> ValueRef<'_> {
    ValueRef::Text(s.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Requests;
    use std::time::Duration;

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    fn answered(stock: &Stock, request: &Request) {
        assert_eq!(stock.authorize(request, later()).unwrap(), Outcome::Answered);
    }

    #[test]
    fn every_mode_runs_the_whole_authorization() {
        let dir = tempfile::tempdir().unwrap();
        let template = dir.path().join("template.db");
        prefill::build(&template, 100, &mut |_| ()).unwrap();
        let vfs = SlowVfs::register("stock-test", Duration::ZERO).unwrap();
        for mode in [
            StockMode::Unaudited,
            StockMode::Buffered,
            StockMode::Nainsert,
            StockMode::WalFull,
            StockMode::WalNormal,
            StockMode::WalOff,
            StockMode::CaptureTriggers,
        ] {
            let path = dir.path().join(format!("{mode:?}.db"));
            let stock = Stock::open(&template, &path, mode, vfs).unwrap();
            let mut requests = Requests::new(0, 1, 9);
            let before = vfs.syncs();
            (0..70).for_each(|_| answered(&stock, &requests.next_request()));
            stock.settle().unwrap();
            let synced = vfs.syncs() - before;
            assert_eq!(stock.query("select count(*) from txn_log"), Value::Int(170), "{mode:?}");
            assert_eq!(stock.query("select sum(approved_count) from terminal"), Value::Int(70), "{mode:?}");
            match mode {
                StockMode::Unaudited => assert!(synced >= 4 * 70, "two commits each: {synced}"),
                StockMode::WalFull => assert!((70..80).contains(&synced), "one sync each: {synced}"),
                StockMode::Buffered | StockMode::Nainsert | StockMode::WalOff => assert_eq!(synced, 0, "{mode:?}"),
                StockMode::CaptureTriggers => {
                    assert_eq!(stock.query("select count(*) from capture"), Value::Int(140));
                }
                StockMode::WalNormal => assert!(synced < 70),
            }
        }
    }

    #[test]
    fn an_unknown_terminal_is_an_error_and_leaves_no_transaction() {
        let dir = tempfile::tempdir().unwrap();
        let template = dir.path().join("template.db");
        prefill::build(&template, 0, &mut |_| ()).unwrap();
        let vfs = SlowVfs::register("stock-test-unknown", Duration::ZERO).unwrap();
        let stock = Stock::open(&template, &dir.path().join("a.db"), StockMode::WalFull, vfs).unwrap();
        let mut request = Requests::new(0, 1, 1).next_request();
        let good = request.clone();
        request.term_no = "00000000".into();
        assert!(stock.authorize(&request, later()).unwrap_err().to_string().contains("terminal"));
        answered(&stock, &good);
        assert_eq!(stock.authorize(&good, Instant::now()).unwrap(), Outcome::GivenUp);
    }
}
