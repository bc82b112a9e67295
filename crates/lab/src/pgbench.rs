//! Drives both servers with PostgreSQL's own benchmark program, since the product's goals are defined with it. The
//! scripts are the same for both; what pgbench prints is read back.
//!
//! Where there is no pgbench, or a case fails on a server, the case is listed with the reason.

use crate::interrupt;
use crate::pgbench_run::{Run, Script, whole_seconds};
use crate::progress::Progress;
use crate::results::PgbenchResult;
use crate::server::{Kind, Peer};
use crate::workload::{self, AUTH_CODES, CARDS, TERM_NO_BASE, TERMINALS};
use std::path::Path;

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

/// A script and how to run it.
struct Case {
    name: &'static str,
    /// pgbench's -M.
    mode: &'static str,
    clients: usize,
    script: fn() -> String,
}

const CASES: [Case; 6] = [
    Case { name: ONE_MESSAGE, mode: "simple", clients: 40, script: one_message },
    Case { name: PIPELINE, mode: "prepared", clients: 40, script: pipeline },
    Case { name: FIVE_MESSAGES, mode: "prepared", clients: 40, script: five_messages },
    Case { name: INSERT, mode: "prepared", clients: 1, script: insert },
    Case { name: INSERT, mode: "prepared", clients: 80, script: insert },
    Case { name: SELECT, mode: "prepared", clients: 8, script: select },
];

/// Seconds all cases take, about.
pub fn seconds_planned(seconds: f64) -> f64 {
    CASES.len() as f64 * whole_seconds(seconds) as f64
}

/// A case's position among the cases.
pub fn order(case: &str) -> usize {
    CASES.iter().position(|c| c.name == case).unwrap_or(CASES.len())
}

/// Runs every case against `peer`.
pub fn run(peer: &Peer, seconds: f64, dir: &Path, progress: &Progress) -> anyhow::Result<Vec<PgbenchResult>> {
    CASES
        .iter()
        .map(|case| {
            interrupt::check()?;
            progress.now(format!("pgbench at {}: {}, {} clients", peer.kind.name(), case.name, case.clients));
            let mut result = case.result(peer.kind);
            let measured = case.measure(peer, whole_seconds(seconds), dir, &mut result);
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
        PgbenchResult::empty(kind.name(), self.name, self.clients)
    }

    fn measure(&self, peer: &Peer, seconds: u64, dir: &Path, result: &mut PgbenchResult) -> anyhow::Result<()> {
        let script = Script::Text((self.script)());
        let (mode, clients) = (self.mode, self.clients);
        Run { addr: peer.addr, mode, clients, seconds, script, dir }.measure(peer, result).map(|_| ())
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

/// The authorization as a script of one simple message.
pub fn one_message() -> String {
    format!("{}{};\n", draw(), steps(true).join(" \\; "))
}

/// The authorization as a script of one pipeline, prepared.
pub fn pipeline() -> String {
    format!("{}\\startpipeline\n{};\n\\endpipeline\n", draw(), steps(false).join(";\n"))
}

/// The authorization as a script of five messages, prepared.
pub fn five_messages() -> String {
    format!("{}{};\n", draw(), five_statements().join(";\n"))
}

/// The five-message authorization with a think time before each statement.
pub fn five_messages_thinking(think_ms: u32) -> String {
    let thinking = five_statements().map(|sql| format!("\\sleep {think_ms} ms\n{sql};\n"));
    draw() + &thinking.concat()
}

fn five_statements() -> [String; 5] {
    let [select, update, insert] = steps(false);
    ["begin".into(), select, update, insert, "commit".into()]
}

/// The durable insert as a script.
pub fn insert() -> String {
    "\\set amount random(1, 100000)\ninsert into receipt (amount, note) values (:amount, 'paid, thank you');\n".into()
}

/// The row by key as a script.
pub fn select() -> String {
    format!("\\set id random(1, {TERMINALS})\nselect approved_count from terminal where id = :id;\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_quote_as_the_mode_needs() {
        assert!(one_message().contains("term_no = ':term' for update \\; update"));
        assert!(pipeline().contains("term_no = :term for update;\nupdate"));
        assert_eq!(pipeline().matches("startpipeline").count(), 1);
        assert!(five_messages().contains("begin;\nselect"));
        assert!(five_messages_thinking(1).contains("\\sleep 1 ms\nbegin;\n\\sleep 1 ms\nselect"));
        let (card, auth) = (CARDS.0.to_string().len(), AUTH_CODES.0.to_string().len());
        assert_eq!(16 + card + 8 + auth + workload::log_body().len(), 998, "a log record as long as the study's");
    }
}
