//! Takes servers away from a loaded group again and again, promotes another one, and looks for what was acknowledged.
//!
//! A round: the recorder's clients write to the master; at a random moment a server fails in one of the ways of [`Fault`]; a
//! standby is promoted; the lost server comes back and the next round begins. The acknowledgements are in this process's
//! memory, which no fault reaches. Then
//!
//! | level | of what was acknowledged |
//! |---|---|
//! | hot, commit | all is on the new master |
//! | warm | the same, unless both servers had failed |
//! | local | what is missing stands in the lost-*.sql of the old master |
//!
//! and at every level: nothing that was written down as lost is on the new master, and the standbys show the same rows as
//! their master. A server that refuses to serve or to be promoted is right if it names the server that has everything: the
//! test does what the refusal says and judges the result. What is counted:
//!
//! | word | counts |
//! |---|---|
//! | lost | acknowledged transactions that the master does not have after the fault |
//! | half | transactions of which a part is there |
//! | stale | transactions that an answer lacked although it was given as current, or showed although no master has them |
//! | astray | clients with a list of hosts that did not arrive at the new master |
//! | refused | rounds in which a refusal was followed |
//! | unnamed | rounds in which a rolled-back server refused and did not name the server to use |
//!
//! With `--power-cut` each server's directory is on an unsafe disk of its own, and a server that is killed loses what was not
//! synced there.
//!
//! After damage the directories are kept and named, and the test continues with a new group. The seed decides faults and
//! moments; what the servers and clients do in between is up to their threads.

mod advice;
mod arrival;
mod bed;
mod deposed;
mod fault;
mod group;
mod lost;
mod node;
mod rollback;
mod rounds;
mod settings;
mod table;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::ValueEnum;

use crate::failover::fault::Fault;
use crate::kill_test::fresh_seed;
use crate::{server, tools};

pub use bed::ended;
pub use fault::Setup;
pub use group::{ELECTION, Group};
pub use node::{Node, Start, Until, Witness};
pub use table::Totals;

/// What the answer to a commit waits for: `level` of holdfast.toml.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Level {
    #[value(alias = "cold")]
    Local,
    Warm,
    Hot,
    Commit,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Local => "local",
            Level::Warm => "warm",
            Level::Hot => "hot",
            Level::Commit => "commit",
        })
    }
}

/// `cargo xtask failover-test`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask failover-test --level hot
  cargo xtask failover-test --setup any --faults third-server,rolled-back-master --rounds 20 --seed 7
  cargo xtask failover-test --rounds 50 --level commit --power-cut

The exit code is 1 when anything acknowledged was lost against the promise of the level, half there, or not written down,
when a server gave a stale answer, or when a client did not find the new master.")]
pub struct Arguments {
    /// How often a server is lost
    #[arg(long, value_name = "N", default_value_t = 20)]
    rounds: u32,
    /// The servers, and what decides which of them is the master
    #[arg(long, value_enum, default_value = "none")]
    setup: Setup,
    /// Only these faults, separated by commas [default: all that the set-up can have]
    #[arg(long, value_enum, value_delimiter = ',')]
    faults: Vec<Fault>,
    /// What the answer to a commit waits for
    #[arg(long, value_enum, default_value = "hot")]
    level: Level,
    /// Clients that write
    #[arg(long, value_name = "N", default_value_t = 40)]
    clients: u32,
    /// Decides the faults and their moments
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Each server has a disk of its own that forgets what was not synced when its power is cut; a killed server's power is
    #[arg(long)]
    power_cut: bool,
    /// Keep the directories of so many rounds with damage
    #[arg(long, value_name = "N", default_value_t = 5)]
    keep: usize,
    /// Print the summary as JSON on standard output, and the rounds on standard error
    #[arg(long)]
    json: bool,
    /// Test this server binary instead of building one
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
}

/// What a run does.
#[derive(Clone)]
pub struct Plan {
    rounds: u32,
    setup: Setup,
    faults: Vec<Fault>,
    level: Level,
    clients: u32,
    seed: u64,
    power_cut: bool,
    keep: usize,
    json: bool,
}

impl Plan {
    /// Reports progress.
    fn say(&self, line: &str) {
        if self.json {
            eprintln!("{line}");
        } else {
            println!("{line}");
        }
    }
}

/// True when nothing was lost.
pub fn command(arguments: Arguments) -> anyhow::Result<bool> {
    tools::require(&["psql"])?;
    let Arguments { rounds, setup, faults, level, clients, seed, power_cut, keep, json, server } = arguments;
    if let Some(why) = holdfast_unsafe_disk::cannot_mount().filter(|_| power_cut) {
        bail!("--power-cut: {why}");
    }
    let faults = chosen(faults, setup, level, power_cut)?;
    let binary = server.map_or_else(server::build, Ok)?;
    let seed = seed.unwrap_or_else(fresh_seed);
    let plan = Plan { rounds, setup, faults, level, clients, seed, power_cut, keep, json };
    let totals = rounds::run(&binary, &plan)?;
    println!("{}", if json { totals.json() } else { totals.table() });
    Ok(totals.is_clean())
}

/// The faults of a run. An older copy of a directory lacks what only that server had, so its faults need a level at which a
/// standby has everything, and a disk that keeps the copy.
fn chosen(faults: Vec<Fault>, setup: Setup, level: Level, power_cut: bool) -> anyhow::Result<Vec<Fault>> {
    let safe = level >= Level::Hot && !power_cut;
    if faults.is_empty() {
        return Ok(Fault::of(setup, safe));
    }
    for fault in &faults {
        if *fault == Fault::ThirdServer && setup != Setup::Any {
            bail!("the fault third-server needs --setup any");
        }
        if fault.is_rollback() && !safe {
            bail!("the fault {fault} needs --level hot or commit, without --power-cut");
        }
    }
    Ok(faults)
}

/// A few rounds of a pair at level hot, for `cargo xtask test`.
pub fn smoke(binary: &Path, rounds: u32, power_cut: bool) -> anyhow::Result<Totals> {
    let (faults, seed) = (Fault::OF_A_PAIR.to_vec(), fresh_seed());
    let (setup, level, json) = (Setup::None, Level::Hot, false);
    rounds::run(binary, &Plan { rounds, setup, faults, level, clients: 20, seed, power_cut, keep: usize::MAX, json })
}
