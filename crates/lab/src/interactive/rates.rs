//! Interactive transactions as fast as they go, driven by pgbench: the authorization as five messages, pgbench's own
//! TPC-B, and the authorization with a pause before each statement. After each run the tables must agree with each
//! other and with what pgbench counted.

use super::bed::{Bed, Stand};
use super::results::Results;
use crate::pg_client::Client;
use crate::pgbench;
use crate::pgbench_run::{self, Printed, Run, Script, whole_seconds};
use crate::results::PgbenchResult;
use crate::study_results::Checked;
use crate::text;

/// The pause before each statement.
pub const THINK_MS: u32 = 1;
/// The authorization with it.
pub const THINKING: &str = "authorization, five messages, 1 ms think time before each";

/// TPC-B's name in results.
pub fn tpcb_name(scale: u32) -> String {
    format!("TPC-B, prepared, scale {scale}")
}

/// The authorization as five messages.
pub fn authorization(bed: &Bed<'_>, results: &mut Results) -> anyhow::Result<()> {
    for &clients in &bed.sizes.clients {
        authorizations(bed, results, pgbench::FIVE_MESSAGES, clients, pgbench::five_messages)?;
    }
    Ok(())
}

/// The authorization with think time.
pub fn think_time(bed: &Bed<'_>, results: &mut Results) -> anyhow::Result<()> {
    for &clients in &bed.sizes.clients_thinking {
        authorizations(bed, results, THINKING, clients, || pgbench::five_messages_thinking(THINK_MS))?;
    }
    Ok(())
}

fn authorizations(
    bed: &Bed<'_>,
    results: &mut Results,
    name: &str,
    clients: usize,
    script: impl Fn() -> String,
) -> anyhow::Result<()> {
    by_turns(bed, results, name, clients, |stand, results| {
        let before = Written::read(stand)?;
        let printed = run(bed, stand, results, name, clients, Script::Text(script()))?;
        let after = Written::read(stand)?;
        let (updates, inserts) = (after.updates - before.updates, after.inserts - before.inserts);
        let holds = updates == inserts && updates == printed.transactions as f64;
        let found = format!("{updates} updates, {inserts} inserts, {} transactions", printed.transactions);
        results.check(stand.name(), &format!("{name}, {clients} clients: every transaction whole"), holds, found);
        Ok(())
    })
}

/// What authorizations have written so far.
pub struct Written {
    pub updates: f64,
    pub inserts: f64,
}

impl Written {
    pub fn read(stand: &Stand) -> anyhow::Result<Written> {
        let mut client = Client::connect(stand.peer.addr)?;
        let updates = client.number("select sum(approved_count) from terminal")?;
        Ok(Written { updates, inserts: stand.peer.log_rows()? as f64 })
    }
}

/// pgbench's TPC-B at each scale, on tables made for it.
pub fn tpcb(bed: &Bed<'_>, results: &mut Results) -> anyhow::Result<()> {
    for scale in bed.sizes.scales {
        let name = tpcb_name(scale);
        bed.each(results, &format!("filling TPC-B's tables, scale {scale},"), |stand, _| {
            pgbench_run::fill(&stand.peer, scale)?;
            stand.peer.settle(&mut Client::connect(stand.peer.addr)?)
        })?;
        for &clients in &bed.sizes.clients {
            by_turns(bed, results, &name, clients, |stand, results| {
                run(bed, stand, results, &name, clients, Script::Builtin("tpcb-like"))?;
                balances(stand, results, &format!("{name}, {clients} clients: the balances agree"))
            })?;
        }
    }
    Ok(())
}

/// Accounts, tellers, branches and history have the same sum.
fn balances(stand: &Stand, results: &mut Results, what: &str) -> anyhow::Result<()> {
    let mut client = Client::connect(stand.peer.addr)?;
    let sums = ["abalance) from pgbench_accounts", "tbalance) from pgbench_tellers", "bbalance) from pgbench_branches"];
    let history = client.number("select sum(delta) from pgbench_history")?;
    let mut holds = true;
    let mut found = vec![format!("history {history}")];
    for sum in sums {
        let value = client.number(&format!("select sum({sum}"))?;
        holds &= value == history;
        found.push(format!("{} {value}", sum.rsplit('_').next().unwrap_or(sum)));
    }
    results.check(stand.name(), what, holds, found.join(", "));
    Ok(())
}

/// Measures the servers by turns, several times: what happens on the machine meanwhile meets all of them.
fn by_turns(
    bed: &Bed<'_>,
    results: &mut Results,
    name: &str,
    clients: usize,
    measure: impl Fn(&Stand, &mut Results) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    for _ in 0..bed.sizes.rounds {
        bed.each(results, &format!("{name}, {clients} clients"), &measure)?;
    }
    for stand in &bed.stands {
        let (runs, others) = std::mem::take(&mut results.rates)
            .into_iter()
            .partition(|r| r.server == stand.name() && r.case == name && r.clients == clients);
        results.rates = others;
        results.rates.extend(middle(runs));
    }
    Ok(())
}

/// The run with the middle rate, saying what the others were; one that failed where none succeeded.
fn middle(runs: Vec<PgbenchResult>) -> Option<PgbenchResult> {
    let (mut good, failed): (Vec<_>, Vec<_>) = runs.into_iter().partition(|r| r.skipped.is_none());
    good.sort_by(|a, b| a.tps.total_cmp(&b.tps));
    let (Some(least), Some(most)) = (good.first(), good.last()) else { return failed.into_iter().next() };
    let (count, range) = (good.len(), format!("{} to {} tps", text::number(least.tps), text::number(most.tps)));
    let mut middle = good.swap_remove(count / 2);
    middle.remark = (count > 1).then(|| format!("the middle one of {count} runs, {range}"));
    Some(middle)
}

/// One run of pgbench, recorded whether it succeeds or not.
fn run(
    bed: &Bed<'_>,
    stand: &Stand,
    results: &mut Results,
    name: &str,
    clients: usize,
    script: Script,
) -> anyhow::Result<Printed> {
    let mut result = PgbenchResult::empty(stand.name(), name, clients);
    let seconds = whole_seconds(bed.study.seconds);
    let (peer, dir) = (&stand.peer, stand.dir.path());
    let printed = Run { addr: peer.addr, mode: "prepared", clients, seconds, script, dir }.measure(peer, &mut result);
    bed.progress.advance(seconds as f64);
    if let Err(e) = &printed {
        result.skipped = Some(format!("{e:#}"));
    }
    results.rates.push(result);
    let printed = printed?;
    let found = format!("{} of {} failed", printed.failed, printed.transactions + printed.failed);
    results.check(
        stand.name(),
        &format!("{name}, {clients} clients: no transaction fails"),
        printed.failed == 0,
        found,
    );
    Ok(printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_run_counts_and_a_failed_one_does_not() {
        let run = |tps| PgbenchResult { tps, ..PgbenchResult::empty("holdfast", "case", 40) };
        let failed = PgbenchResult { skipped: Some("gone".into()), ..run(0.0) };
        let found = middle(vec![run(30.0), failed.clone(), run(10.0), run(20.0)]).unwrap();
        assert_eq!((found.tps, found.remark.as_deref()), (20.0, Some("the middle one of 3 runs, 10 to 30 tps")));
        assert_eq!(middle(vec![run(10.0)]).unwrap().remark, None);
        assert_eq!(middle(vec![failed.clone()]), Some(failed));
        assert_eq!(middle(Vec::new()), None);
    }
}
