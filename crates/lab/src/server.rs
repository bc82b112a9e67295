//! A server under measurement, whichever it is: where it listens, which process it is, how its syncs are counted.

use crate::pg_client::Client;
use crate::prefill;
use crate::process_cpu;
use crate::results::Fact;
use crate::workload;
use anyhow::Context;
use holdfast_testbed::Process;
use holdfast_types::Value;
use rustix::process::Signal;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// A started server with the database `holdfast` in it.
pub struct Peer {
    pub kind: Kind,
    pub addr: SocketAddr,
    pub settings: Vec<Fact>,
    /// Stops the server when dropped.
    pub process: Process,
}

/// Which server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Holdfast,
    Postgres,
}

/// What a server has used up so far.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    pub cpu: Duration,
    /// Syncs of the log or trail, where the server counts them.
    pub syncs: Option<f64>,
}

/// The name for people of a server that results call by this name.
pub fn server_name(name: &str) -> &'static str {
    if name == Kind::Holdfast.name() { "Holdfast" } else { "PostgreSQL" }
}

impl Kind {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Holdfast => "holdfast",
            Kind::Postgres => "postgres",
        }
    }

    fn syncs_sql(self) -> &'static str {
        match self {
            Kind::Holdfast => "select value from holdfast_stat_trail where name = 'syncs'",
            Kind::Postgres => "select wal_sync from pg_stat_wal",
        }
    }

    fn log_bytes_sql(self) -> &'static str {
        match self {
            Kind::Holdfast => "select value from holdfast_stat_trail where name = 'bytes'",
            Kind::Postgres => "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')",
        }
    }

    /// PostgreSQL's processes report their counters at most once a second.
    fn counters_late(self) -> Duration {
        match self {
            Kind::Holdfast => Duration::ZERO,
            Kind::Postgres => Duration::from_millis(1200),
        }
    }
}

/// Starts a server's process. When it is dropped, it stops in good order.
pub fn process(name: &str, mut command: Command, log: &Path, stop: Signal) -> anyhow::Result<Process> {
    // A process group of its own: Ctrl-C reaches the lab, which then stops the server.
    command.process_group(0);
    Process::start(name, command, log, stop, stop)
}

impl Peer {
    /// Starts a server with its files in `dir`; `program` is `holdfast`.
    pub fn start(kind: Kind, program: &Path, dir: &Path) -> anyhow::Result<Peer> {
        match kind {
            Kind::Holdfast => crate::peer_holdfast::start(program, dir),
            Kind::Postgres => crate::peer_postgres::start(dir),
        }
    }

    /// Reads the counters. A server that does not count its syncs is no error.
    pub fn usage(&self) -> anyhow::Result<Usage> {
        let cpu = process_cpu::tree_time(self.process.pid());
        std::thread::sleep(self.kind.counters_late());
        let syncs = Client::connect(self.addr)?.number(self.kind.syncs_sql()).ok();
        Ok(Usage { cpu, syncs })
    }

    /// Bytes that the log or trail has taken so far.
    pub fn log_bytes(&self) -> anyhow::Result<f64> {
        Client::connect(self.addr)?.number(self.kind.log_bytes_sql())
    }

    /// Makes the study's tables and fills them with the same rows as everywhere.
    pub fn load(&self, log_rows: u64, progress: &dyn Fn(u64)) -> anyhow::Result<()> {
        let mut client = Client::connect(self.addr)?;
        for sql in workload::TABLES_POSTGRES {
            client.run(sql)?;
        }
        let terminals = (1..=workload::TERMINALS).map(|n| copy_line(&prefill::terminal_row(n)));
        client.copy_in("copy terminal from stdin", terminals).context("cannot load the terminals")?;
        let mut requests = prefill::log_requests();
        let log = (1..=log_rows).map(|id| {
            if id % 1000 == 0 {
                progress(id);
            }
            copy_line(&prefill::log_row(id as i64, &mut requests)[1..])
        });
        client
            .copy_in("copy txn_log (card, term_no, auth_code, at, body) from stdin", log)
            .context("cannot load the log")?;
        for sql in workload::INDEXES_POSTGRES {
            client.run(sql)?;
        }
        self.settle(&mut client)
    }

    /// After rows were loaded: PostgreSQL gets its statistics and a checkpoint, as a person would see to.
    pub fn settle(&self, client: &mut Client) -> anyhow::Result<()> {
        if self.kind == Kind::Postgres {
            client.run("vacuum analyze")?;
            client.run("checkpoint")?;
        }
        Ok(())
    }

    /// Rows in the log now.
    pub fn log_rows(&self) -> anyhow::Result<u64> {
        Ok(Client::connect(self.addr)?.number("select count(*) from txn_log")? as u64)
    }
}

/// A line of COPY's text format. The rows hold no tabs, backslashes or line ends.
fn copy_line(row: &[Value]) -> String {
    let cells = row.iter().map(|value| match value {
        Value::Int(i) => i.to_string(),
        Value::Text(t) => t.clone(),
        Value::Real(r) => r.to_string(),
        Value::Null | Value::Blob(_) => "\\N".to_string(),
    });
    cells.collect::<Vec<_>>().join("\t")
}

impl Usage {
    /// Syncs and CPU microseconds for each of `transactions` since `before`.
    pub fn since(&self, before: &Usage, transactions: u64) -> (Option<f64>, Option<f64>) {
        if transactions == 0 {
            return (None, None);
        }
        let n = transactions as f64;
        let syncs = self.syncs.zip(before.syncs).map(|(after, before)| (after - before) / n);
        (syncs, Some(self.cpu.saturating_sub(before.cpu).as_secs_f64() * 1e6 / n))
    }
}
