//! Drives both servers with PostgreSQL's own benchmark program, since the product's goals are defined with it. The
//! scripts are the same for both; what pgbench prints is read back.
//!
//! Where there is no pgbench, or a case fails on a server, the case is listed with the reason.

use crate::child;
use crate::interrupt;
use crate::peer_postgres;
use crate::pg_client::{DATABASE, USER};
use crate::progress::Progress;
use crate::results::PgbenchResult;
use crate::server::{Kind, Peer};
use crate::workload::{self, AUTH_CODES, CARDS, TERM_NO_BASE, TERMINALS};
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The whole authorization as one simple-protocol message.
pub const ONE_MESSAGE: &str = "authorization, one simple message";
/// The whole authorization as one pipeline of prepared statements.
pub const PIPELINE: &str = "authorization, prepared pipeline";
/// The authorization as BEGIN, three statements and COMMIT, each waiting for its answer.
pub const FIVE_MESSAGES: &str = "authorization, five messages";
/// One durable insert.
pub const INSERT: &str = "one durable insert, prepared";
/// One row read by its key.
pub const SELECT: &str = "one row by key, prepared";

/// A run may overstay its time by this before it is stopped.
const GRACE: Duration = Duration::from_secs(30);
/// Threads of pgbench.
const THREADS: usize = 2;

/// A script and how to run it.
struct Case {
    name: &'static str,
    /// pgbench's -M.
    mode: &'static str,
    clients: usize,
    script: fn() -> String,
    /// Said of Holdfast's figure.
    remark: Option<&'static str>,
}

const CASES: [Case; 6] = [
    Case { name: ONE_MESSAGE, mode: "simple", clients: 40, script: one_message, remark: None },
    Case { name: PIPELINE, mode: "prepared", clients: 40, script: pipeline, remark: None },
    Case {
        name: FIVE_MESSAGES,
        mode: "prepared",
        clients: 40,
        script: five_messages,
        remark: Some("in this release one transaction of several messages runs at a time (the exclusive writer)"),
    },
    Case { name: INSERT, mode: "prepared", clients: 1, script: insert, remark: None },
    Case { name: INSERT, mode: "prepared", clients: 80, script: insert, remark: None },
    Case { name: SELECT, mode: "prepared", clients: 8, script: select, remark: None },
];

/// Seconds all cases take, about.
pub fn seconds_planned(seconds: f64) -> f64 {
    CASES.len() as f64 * whole_seconds(seconds) as f64
}

/// Where a case stands among the cases.
pub fn order(case: &str) -> usize {
    CASES.iter().position(|c| c.name == case).unwrap_or(CASES.len())
}

/// pgbench counts whole seconds.
fn whole_seconds(seconds: f64) -> u64 {
    (seconds.ceil() as u64).max(1)
}

/// Runs every case against `peer`.
pub fn run(peer: &Peer, seconds: f64, dir: &Path, progress: &Progress) -> anyhow::Result<Vec<PgbenchResult>> {
    let program = child::find_program("pgbench", &peer_postgres::bin_directories());
    CASES
        .iter()
        .map(|case| {
            interrupt::check()?;
            progress.now(format!("pgbench at {}: {}, {} clients", peer.kind.name(), case.name, case.clients));
            let mut result = case.result(peer.kind);
            let measured = match &program {
                Some(program) => case.measure(program, peer, whole_seconds(seconds), dir, &mut result),
                None => Err(anyhow::anyhow!("there is no pgbench on this machine")),
            };
            interrupt::check()?;
            if let Err(e) = measured {
                result.skipped = Some(format!("{e:#}"));
            }
            progress.advance(whole_seconds(seconds) as f64);
            Ok(result)
        })
        .collect()
}

impl Case {
    fn result(&self, kind: Kind) -> PgbenchResult {
        PgbenchResult {
            server: kind.name().into(),
            case: self.name.into(),
            clients: self.clients,
            remark: self.remark.filter(|_| kind == Kind::Holdfast).map(str::to_string),
            skipped: None,
            tps: 0.0,
            latency_mean_ms: 0.0,
            failed: 0,
            syncs_per_transaction: None,
            server_cpu_us: None,
        }
    }

    fn measure(
        &self,
        program: &Path,
        peer: &Peer,
        seconds: u64,
        dir: &Path,
        result: &mut PgbenchResult,
    ) -> anyhow::Result<()> {
        let script = dir.join("script.sql");
        std::fs::write(&script, (self.script)()).with_context(|| format!("writing {}", script.display()))?;
        let before = peer.usage()?;
        let output = self.output(program, peer, seconds, &script)?;
        let read = read(&output).with_context(|| format!("pgbench printed:\n{output}"))?;
        let (syncs, cpu_us) = peer.usage()?.since(&before, read.transactions);
        result.tps = read.tps;
        result.latency_mean_ms = read.latency_mean_ms;
        result.failed = read.failed;
        result.syncs_per_transaction = syncs;
        result.server_cpu_us = cpu_us;
        Ok(())
    }

    /// Runs pgbench and returns what it printed; stops it when asked to or when it overstays.
    fn output(&self, program: &Path, peer: &Peer, seconds: u64, script: &PathBuf) -> anyhow::Result<String> {
        let threads = THREADS.min(self.clients).to_string();
        let mut command = Command::new(program);
        command.args(["-h", "127.0.0.1", "-p", &peer.addr.port().to_string(), "-U", USER, "-n", "-M", self.mode]);
        command.args(["-c", &self.clients.to_string(), "-j", &threads, "-T", &seconds.to_string()]);
        command.args(["-D", "seq=0", "-f"]).arg(script).arg(DATABASE);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("starting pgbench")?;
        let limit = Instant::now() + Duration::from_secs(seconds) + GRACE;
        while child.try_wait()?.is_none() {
            if interrupt::requested() || Instant::now() > limit {
                // It may have ended meanwhile; then there is nothing to kill.
                let _ = child.kill();
                let _ = child.wait();
                interrupt::check()?;
                anyhow::bail!("pgbench did not end within {} s after its time", GRACE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let output = child.wait_with_output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(
            output.status.success(),
            "pgbench failed: {}",
            errors.lines().find(|l| l.contains("error")).unwrap_or(&errors)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

/// Draws the request. `at` grows with each of a client's transactions; -D starts `seq`.
fn draw() -> String {
    format!(
        "\\set seq :seq + 1\n\\set at (1 << 50) + :seq * 1000 + :client_id\n\\set term random({}, {})\n\
         \\set card random({}, {})\n\\set auth random({}, {})\n",
        TERM_NO_BASE + 1,
        TERM_NO_BASE + TERMINALS,
        CARDS.0,
        CARDS.1,
        AUTH_CODES.0,
        AUTH_CODES.1
    )
}

/// Steps 2, 4 and 5. In simple mode pgbench writes variables into the text, so text values need quotes around them;
/// in prepared mode they become parameters, which must have none.
fn steps(quoted: bool) -> [String; 3] {
    let text = |name: &str| if quoted { format!("':{name}'") } else { format!(":{name}") };
    let body = format!("'{}'", workload::log_body());
    [
        workload::select_sql(&text("term"), true),
        workload::update_sql(":at", &text("term")),
        workload::insert_sql([&text("card"), &text("term"), &text("auth"), ":at", &body]),
    ]
}

fn one_message() -> String {
    format!("{}{};\n", draw(), steps(true).join(" \\; "))
}

fn pipeline() -> String {
    format!("{}\\startpipeline\n{};\n\\endpipeline\n", draw(), steps(false).join(";\n"))
}

fn five_messages() -> String {
    format!("{}begin;\n{};\ncommit;\n", draw(), steps(false).join(";\n"))
}

fn insert() -> String {
    "\\set amount random(1, 100000)\ninsert into receipt (amount, note) values (:amount, 'paid, thank you');\n".into()
}

fn select() -> String {
    format!("\\set id random(1, {TERMINALS})\nselect approved_count from terminal where id = :id;\n")
}

/// What pgbench printed, read.
#[derive(Debug, PartialEq)]
struct Read {
    tps: f64,
    latency_mean_ms: f64,
    transactions: u64,
    failed: u64,
}

fn read(output: &str) -> anyhow::Result<Read> {
    let after = |label: &str| {
        let rest = output.lines().find_map(|l| l.strip_prefix(label))?;
        let number: String = rest.trim().chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        number.parse::<f64>().ok()
    };
    let need = |label: &'static str| after(label).with_context(|| format!("no line starts with {label:?}"));
    Ok(Read {
        tps: need("tps = ")?,
        latency_mean_ms: need("latency average = ")?,
        transactions: need("number of transactions actually processed: ")? as u64,
        // Older versions have no such line.
        failed: after("number of failed transactions: ").unwrap_or(0.0) as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pgbench_prints_is_read() {
        let output = "transaction type: script.sql\nnumber of transactions actually processed: 62345\n\
                      number of failed transactions: 3 (0.005%)\nlatency average = 3.208 ms\n\
                      initial connection time = 40.1 ms\ntps = 12468.204671 (without initial connection time)\n";
        let expected = Read { tps: 12468.204671, latency_mean_ms: 3.208, transactions: 62345, failed: 3 };
        assert_eq!(read(output).unwrap(), expected);
        assert!(read("pgbench: error: no").is_err());
    }

    #[test]
    fn scripts_quote_as_the_mode_needs() {
        assert!(one_message().contains("term_no = ':term' for update \\; update"));
        assert!(pipeline().contains("term_no = :term for update;\nupdate"));
        assert_eq!(pipeline().matches("startpipeline").count(), 1);
        let (card, auth) = (CARDS.0.to_string().len(), AUTH_CODES.0.to_string().len());
        assert_eq!(16 + card + 8 + auth + workload::log_body().len(), 998, "a log record as long as the study's");
    }
}
