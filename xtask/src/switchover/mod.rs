//! Planned switchovers under load: how long no commit is acknowledged, and what the clients see.
//!
//! A round: clients write to the master at level hot; the standby takes its place, in order; the old master comes back as
//! the standby. With a control plane an operator runs `holdfast promote` at the standby while the master runs; without
//! one the master is stopped (SIGTERM) first. The gap lasts from the last acknowledgement of the old master to the first
//! of the new one.
//!
//! Failure: a commit that was acknowledged and is missing, or was refused and is there, ends the command with exit code 1.

mod cluster;
mod load;
mod table;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

pub use cluster::Cluster;
use load::{Answers, Load};
use table::Totals;

use crate::{server, tools};

/// Acknowledged commits before the switchover, and after it.
const COMMITS: usize = 300;

/// Longer than any switchover takes here; only one that never ends meets it.
const SWITCH_MAX: Duration = Duration::from_secs(120);

/// The pause between two looks at the load.
const LOOK: Duration = Duration::from_millis(5);

/// `cargo xtask switchover`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask switchover
  cargo xtask switchover --rounds 20 --clients 40
  cargo xtask switchover --server /usr/local/bin/holdfast

The exit code is 1 when an acknowledged commit is missing, or one that was refused is there.")]
pub struct Arguments {
    /// Switchovers with a control plane, and as many without one
    #[arg(long, value_name = "N", default_value_t = 6)]
    rounds: u32,
    /// Clients that write
    #[arg(long, value_name = "N", default_value_t = 20)]
    clients: u32,
    /// Measure this server binary instead of building one
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
}

/// True when every answer was kept.
pub fn command(arguments: Arguments) -> anyhow::Result<bool> {
    tools::require(&["psql"])?;
    let Arguments { rounds, clients, server } = arguments;
    let binary = server.map_or_else(server::build, Ok)?;
    let mut all = Vec::new();
    for witness in [true, false] {
        all.push(run(&binary, witness, rounds, clients)?);
    }
    print!("{}", table::table(&all));
    Ok(all.iter().all(Totals::is_clean))
}

fn run(binary: &Path, witness: bool, rounds: u32, clients: u32) -> anyhow::Result<Totals> {
    let runtime = tokio::runtime::Runtime::new()?;
    let mut totals = Totals::new(if witness { "`promote`, with a control plane" } else { "stop, then `promote`" });
    let mut cluster = Cluster::start(binary, witness)?;
    cluster.sql(0, "create table switched(id bigint primary key)")?;
    for round in 0..rounds {
        let old = (round % 2) as usize;
        let ports = [cluster.port(0), cluster.port(1)];
        let load = runtime.block_on(async { Load::start(ports, old, clients, round) });
        let switched = round_under(&load, &mut cluster, witness, old);
        let answers = runtime.block_on(load.end());
        switched?;
        let rows = rows(&cluster, 1 - old)?;
        println!("  round {}: {}", round + 1, totals.add(old, answers, &rows)?);
        if witness {
            cluster.stop(old)?;
        }
        cluster.rejoin(old)?;
    }
    Ok(totals)
}

fn round_under(load: &Load, cluster: &mut Cluster, witness: bool, old: usize) -> anyhow::Result<()> {
    wait(|| load.acknowledged() >= COMMITS, "the load does not begin")?;
    if !witness {
        cluster.stop(old)?;
    }
    cluster.promote(1 - old)?;
    wait(|| load.has_answered(1 - old), "the new master answers no commit")?;
    let before = load.acknowledged();
    wait(|| load.acknowledged() >= before + COMMITS, "the new master answers no more commits")
}

fn wait(is_so: impl Fn() -> bool, otherwise: &str) -> anyhow::Result<()> {
    let started = Instant::now();
    while !is_so() {
        if started.elapsed() > SWITCH_MAX {
            bail!("{otherwise} within {SWITCH_MAX:?}");
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

fn rows(cluster: &Cluster, master: usize) -> anyhow::Result<HashSet<i64>> {
    let text = cluster.sql(master, "select id from switched")?;
    text.lines().map(|line| line.parse().with_context(|| format!("{line:?} is no row"))).collect()
}

/// What a round has shown: its gap, and the answers that were not kept.
struct Judged {
    gap: Duration,
    lost: usize,
    undone: usize,
}

fn judge(old: usize, answers: &Answers, rows: &HashSet<i64>) -> anyhow::Result<Judged> {
    let [Some(before), Some(after)] = [answers.times[old], answers.times[1 - old]] else {
        bail!("one of the servers has answered nothing");
    };
    Ok(Judged {
        gap: after.0.saturating_duration_since(before.1),
        lost: answers.acknowledged.iter().filter(|row| !rows.contains(row)).count(),
        undone: answers.refused.iter().filter(|row| rows.contains(row)).count(),
    })
}
