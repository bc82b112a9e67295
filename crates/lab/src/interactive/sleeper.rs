//! One client that sleeps inside a transaction which has changed a row of its own, while the others run
//! authorizations on other rows: by turns with and without it, on each server.

use super::bed::{Bed, Stand};
use super::results::{Results, Sleeper};
use crate::pg_client::Client;
use crate::pgbench;
use crate::pgbench_run::{Run, Script};
use crate::study_results::Checked;

/// The sleeper's row: no authorization asks for it.
const ROW_ID: u64 = 1_000_000;

/// Measures all servers, each round one after the other.
pub fn measure(bed: &Bed<'_>, results: &mut Results) -> anyhow::Result<()> {
    let seconds = bed.sizes.sleep_seconds;
    bed.each(results, "one client asleep in a transaction", |stand, results| {
        let row = format!("insert into terminal values ({ROW_ID}, 'asleep', 'asleep', 0, 0, 'asleep')");
        Client::connect(stand.peer.addr)?.run(&row)?;
        let clients = bed.sizes.clients.first().copied().unwrap_or(1);
        let mut sleeper = Sleeper {
            server: stand.name().to_string(),
            sleep_seconds: seconds,
            clients,
            tps_without: Vec::new(),
            tps_with: Vec::new(),
        };
        for round in 1..=bed.sizes.sleep_rounds {
            // Every second round the other way round: a rate that only falls with the size of the log falls for both.
            for with in if round % 2 == 1 { [false, true] } else { [true, false] } {
                let who = if with { "one client" } else { "no client" };
                bed.progress.now(format!("round {round} at {}, {who} asleep", stand.name()));
                if with {
                    sleeper.tps_with.push(asleep(stand, || others(bed, stand, clients))?);
                } else {
                    sleeper.tps_without.push(others(bed, stand, clients)?);
                }
            }
        }
        let slept =
            Client::connect(stand.peer.addr)?.number(&format!("select last_at from terminal where id = {ROW_ID}"))?;
        let found = format!("{slept} of {} updates", bed.sizes.sleep_rounds);
        results.check(stand.name(), "the sleeper's updates are kept", slept == bed.sizes.sleep_rounds as f64, found);
        results.sleepers.push(sleeper);
        Ok(())
    })
}

/// Runs `meanwhile` with a transaction open, which commits afterwards.
fn asleep<T>(stand: &Stand, meanwhile: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let mut client = Client::connect(stand.peer.addr)?;
    client.run("begin")?;
    client.run(&format!("update terminal set last_at = last_at + 1 where id = {ROW_ID}"))?;
    let done = meanwhile()?;
    client.run("commit")?;
    Ok(done)
}

/// The rate of everybody else.
fn others(bed: &Bed<'_>, stand: &Stand, clients: usize) -> anyhow::Result<f64> {
    let seconds = bed.sizes.sleep_seconds;
    let script = Script::Text(pgbench::five_messages());
    let (peer, dir) = (&stand.peer, stand.dir.path());
    let printed = Run { addr: peer.addr, mode: "prepared", clients, seconds, script, dir }.start()?.finish()?;
    bed.progress.advance(seconds as f64);
    anyhow::ensure!(printed.failed == 0, "{} transactions failed", printed.failed);
    Ok(printed.tps)
}
