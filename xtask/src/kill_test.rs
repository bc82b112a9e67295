//! Kills a loaded server at random moments and looks for what was acknowledged.
//!
//! A round: pgbench with 40 clients and as many recording clients run; at a random moment the server gets kill -9;
//! it is started again on the same directory; then no acknowledged row may be missing, no transaction may be half
//! there (one of two databases neither), and pgbench's balances have to agree. The time to ready is printed, never judged.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};

use crate::recorder::{DATABASE, Recorder, Verdict};
use crate::server::{self, Address, Holdfast};
use crate::tally::{Outcome, Tally};
use crate::{paths, tools};

/// The load runs at least until so many acknowledgements came in, so that every kill meets a working server.
pub const ACKNOWLEDGED_MIN: u64 = 200;
pub const LOAD_WAIT_MAX: Duration = Duration::from_secs(60);
pub const MOMENT_MS_MAX: u64 = 1500;
const PGBENCH_SCALE: &str = "2";

/// What pgbench's transactions keep equal.
const BALANCES: &str = "SELECT coalesce((SELECT sum(abalance) FROM pgbench_accounts), 0), \
    coalesce((SELECT sum(tbalance) FROM pgbench_tellers), 0), \
    coalesce((SELECT sum(bbalance) FROM pgbench_branches), 0), \
    coalesce((SELECT sum(delta) FROM pgbench_history), 0)";

pub struct Plan {
    pub rounds: u32,
    pub clients: u32,
    pub seed: u64,
}

/// `cargo xtask kill-test`.
pub fn command(rounds: u32, clients: u32, seed: Option<u64>, binary: Option<PathBuf>) -> anyhow::Result<bool> {
    tools::require(&["psql", "pgbench"])?;
    let binary = binary.map_or_else(server::build, Ok)?;
    let plan = Plan { rounds, clients, seed: seed.unwrap_or_else(fresh_seed) };
    let mut tally = Tally::default();
    run(&binary, &plan, &mut tally)?;
    print!("{}", tally.summary());
    Ok(tally.counts().failed == 0)
}

/// A seed nobody chose; it is printed, and `--seed` repeats it.
pub fn fresh_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_nanos() as u64) | 1
}

/// Runs all rounds on one data directory and records one result a round.
pub fn run(binary: &Path, plan: &Plan, tally: &mut Tally) -> anyhow::Result<()> {
    println!("  {} rounds, {} recording clients, seed {}", plan.rounds, plan.clients, plan.seed);
    let scratch = paths::scratch("kill")?;
    let data = scratch.path().join("data");
    let address = Address::free();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let recorder = Recorder::default();
    let mut random = Random(plan.seed);
    let mut server = Holdfast::start(binary, &data, address)?;
    prepare(address, &recorder, &runtime)?;
    // After the kills one clean stop in the middle of the same load, which has to keep the same promises.
    for round in 1..=plan.rounds + 1 {
        let (how, case) = if round > plan.rounds {
            (End::Stop, "clean_stop_under_load".to_string())
        } else {
            (End::Kill, format!("round_{round}"))
        };
        let moment = Duration::from_millis(random.below(MOMENT_MS_MAX));
        let before = recorder.acknowledged();
        end_under_load(&mut server, how, plan.clients, moment, &recorder, &runtime)?;
        let started = Instant::now();
        server = Holdfast::spawn(binary, &data, address)?;
        server.wait_until_ready()?;
        let ready = started.elapsed();
        let verdict = runtime.block_on(recorder.check(address))?;
        let balances = address.sql(DATABASE, BALANCES)?;
        println!(
            "  {case}: {how} {:4} ms after the load was up, {} acknowledged in this round, {} in all, {} rows \
             found, ready in {} ms",
            moment.as_millis(),
            recorder.acknowledged() - before,
            verdict.acknowledged,
            verdict.found,
            ready.as_millis()
        );
        tally.add("kill", &case, judge(&verdict, &balances, &server.panics()));
    }
    let status = server.stop()?;
    let clean = if status.success() { Outcome::Passed } else { Outcome::Failed(format!("clean stop: {status}")) };
    tally.add("kill", "clean_stop", clean);
    Ok(())
}

fn prepare(address: Address, recorder: &Recorder, runtime: &tokio::runtime::Runtime) -> anyhow::Result<()> {
    runtime.block_on(recorder.create_tables(address))?;
    let status = pgbench(address, &["-i", "-q", "-s", PGBENCH_SCALE]).spawn()?.wait()?;
    if !status.success() {
        bail!("pgbench -i failed: {status}");
    }
    Ok(())
}

/// How a round ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Kill,
    Stop,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            End::Kill => "killed",
            End::Stop => "stopped",
        })
    }
}

/// Brings the load up, waits for the moment, ends the server, and waits for all clients to notice.
fn end_under_load(
    server: &mut Holdfast,
    how: End,
    clients: u32,
    moment: Duration,
    recorder: &Recorder,
    runtime: &tokio::runtime::Runtime,
) -> anyhow::Result<()> {
    let one_message = paths::client("pgbench").join("one_message.sql");
    let script = format!("{}@9", one_message.display());
    let load = ["-n", "-c", "40", "-j", "2", "-T", "3600", "-f", &script, "-b", "tpcb-like@1"];
    let mut pgbench = Load(pgbench(server.address, &load).spawn().context("starting pgbench")?);
    let goal = recorder.acknowledged() + ACKNOWLEDGED_MIN;
    let mut running = runtime.block_on(recorder.start(server.address, clients))?;
    let started = Instant::now();
    while recorder.acknowledged() < goal {
        if let Some(ended) = runtime.block_on(async { running.try_join_next() }) {
            bail!("a client's transaction failed before the end: {}", ended?);
        }
        if let Some(status) = pgbench.0.try_wait()? {
            bail!("pgbench ended before the end: {status}");
        }
        if started.elapsed() > LOAD_WAIT_MAX {
            bail!("only {} acknowledgements in {LOAD_WAIT_MAX:?}", recorder.acknowledged());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(moment); // the random moment itself
    if let Some(ended) = runtime.block_on(async { running.try_join_next() }) {
        bail!("a client's transaction failed before the end: {}", ended?);
    }
    match how {
        End::Kill => server.kill()?,
        End::Stop => {
            let status = server.stop()?;
            if !status.success() {
                bail!("SIGTERM under load ended the server with {status}:\n{}", server.log_end());
            }
        }
    }
    runtime.block_on(async {
        while let Some(ended) = running.join_next().await {
            ended?;
        }
        anyhow::Ok(())
    })
}

fn judge(verdict: &Verdict, balances: &str, panics: &[String]) -> Outcome {
    let sums: Vec<&str> = balances.split('|').collect();
    if !verdict.missing.is_empty() {
        let first = &verdict.missing[..verdict.missing.len().min(5)];
        return Outcome::Failed(format!("{} acknowledged rows are missing, first {first:?}", verdict.missing.len()));
    }
    if !verdict.broken.is_empty() {
        let first = &verdict.broken[..verdict.broken.len().min(5)];
        return Outcome::Failed(format!("{} transactions are half there, first {first:?}", verdict.broken.len()));
    }
    if verdict.accounts != 0 {
        return Outcome::Failed(format!("a transfer is half there: both databases together hold {}", verdict.accounts));
    }
    if sums.len() != 4 || sums.iter().any(|sum| *sum != sums[0]) {
        return Outcome::Failed(format!("the balances differ (accounts|tellers|branches|history): {balances}"));
    }
    if !panics.is_empty() {
        return Outcome::Failed(panics.join("\n"));
    }
    Outcome::Passed
}

fn pgbench(address: Address, options: &[&str]) -> Command {
    let mut command = Command::new("pgbench");
    command.args(options).envs(address.environment(DATABASE)).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null());
    command
}

/// pgbench as load; it goes when the round ends, however it ends.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        // It usually has ended by itself when its server went away.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// xorshift64: enough for choosing moments, and repeatable from its seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_fails_the_round() {
        let good = || Verdict { acknowledged: 1, found: 1, missing: vec![], broken: vec![], accounts: 0 };
        assert_eq!(judge(&good(), "5|5|5|5", &[]), Outcome::Passed);
        assert!(matches!(judge(&good(), "5|5|5|4", &[]), Outcome::Failed(_)));
        assert!(matches!(judge(&Verdict { missing: vec![1], ..good() }, "5|5|5|5", &[]), Outcome::Failed(_)));
        assert!(matches!(judge(&Verdict { accounts: 7, ..good() }, "5|5|5|5", &[]), Outcome::Failed(_)));
        assert!(matches!(judge(&Verdict { broken: vec![1], ..good() }, "5|5|5|5", &[]), Outcome::Failed(_)));
        assert!(matches!(judge(&good(), "5|5|5|5", &["panicked at".into()]), Outcome::Failed(_)));
    }
}
