//! One transaction of many inserts while other clients run authorizations: each statement must cost the same, however
//! many went before.

use super::bed::{Bed, Stand};
use super::rates::Written;
use super::results::{LongTransaction, Results};
use crate::interrupt;
use crate::pg_client::Client;
use crate::pgbench;
use crate::pgbench_run::{Run, Running, Script};
use crate::study_results::Checked;
use crate::workload;
use std::time::{Duration, Instant};

/// Clients that write meanwhile.
pub const FOREIGN_CLIENTS: usize = 8;
/// Longest time the transaction may take; pgbench is stopped when it is done.
const SECONDS_MAX: u64 = 600;
/// Marks the transaction's rows; authorizations have times after the epoch.
const AT: &str = "-1";
const PARTS: usize = 10;
/// Between looks whether the others are at work.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a server takes, about, for the progress.
pub const SECONDS_ABOUT: f64 = 15.0;

/// Measures every server.
pub fn measure(bed: &Bed<'_>, results: &mut Results) -> anyhow::Result<()> {
    let what = format!("a transaction of {} statements", bed.sizes.statements);
    bed.each(results, &what, |stand, results| {
        let long = at(bed, stand)?;
        bed.progress.advance(SECONDS_ABOUT);
        let rows =
            Client::connect(stand.peer.addr)?.number(&format!("select count(*) from txn_log where at = {AT}"))?;
        let found = format!("{rows} of {} rows", long.statements);
        results.check(stand.name(), "the long transaction is whole", rows == long.statements as f64, found);
        results.long_transactions.push(long);
        Ok(())
    })
}

fn at(bed: &Bed<'_>, stand: &Stand) -> anyhow::Result<LongTransaction> {
    let mut client = Client::connect(stand.peer.addr)?;
    client.prepare("insert_log", &workload::insert_sql(["$1", "$2", "$3", "$4", "$5"]))?;
    let mut foreign = foreign_writes(stand)?;
    let before = Written::read(stand)?;
    let started = Instant::now();
    client.run("begin")?;
    let mut requests = workload::Requests::new(0, 1, 1);
    let mut tenths_ms = Vec::with_capacity(PARTS);
    for _ in 0..PARTS {
        let start = Instant::now();
        for _ in 0..bed.sizes.statements / PARTS {
            interrupt::check()?;
            let r = requests.next_request();
            client.execute("insert_log", &[&r.card, &r.term_no, &r.auth_code, AT, &r.body])?;
        }
        tenths_ms.push(start.elapsed().as_secs_f64() * 1e3);
        foreign.still_at_work()?;
    }
    let start = Instant::now();
    client.run("commit")?;
    let commit_ms = start.elapsed().as_secs_f64() * 1e3;
    let foreign_updates = Written::read(stand)?.updates - before.updates;
    let foreign_tps = foreign_updates / started.elapsed().as_secs_f64();
    let (server, statements) = (stand.name().to_string(), bed.sizes.statements / PARTS * PARTS);
    Ok(LongTransaction { server, statements, tenths_ms, commit_ms, foreign_tps })
}

/// Others at work: their first transactions have committed.
fn foreign_writes(stand: &Stand) -> anyhow::Result<Running> {
    let before = Written::read(stand)?.updates;
    let mut running = Run {
        addr: stand.peer.addr,
        mode: "prepared",
        clients: FOREIGN_CLIENTS,
        seconds: SECONDS_MAX,
        script: Script::Text(pgbench::five_messages()),
        dir: stand.dir.path(),
    }
    .start()?;
    while Written::read(stand)?.updates == before {
        interrupt::check()?;
        running.still_at_work()?;
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(running)
}
