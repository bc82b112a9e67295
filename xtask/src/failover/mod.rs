//! Takes the master away from a loaded pair again and again, promotes the standby, and looks for what was acknowledged.
//!
//! A round: the recorder's clients write to the master; at a random moment it fails in one of the ways of [`Fault`]; the
//! standby is promoted; the old master rejoins; the two have changed their roles and the next round begins. The
//! acknowledgements are in this process's memory, which no fault reaches. Then
//!
//! | level | of what was acknowledged |
//! |---|---|
//! | hot, commit | all is on the new master |
//! | warm | the same, unless both servers had failed |
//! | local | what is missing stands in the lost-*.sql of the old master |
//!
//! and at every level: nothing that was written down as lost is on the new master, no transaction is half there, and the
//! rejoined standby shows the same rows as its master.
//!
//! With `--power-cut` each server's directory is on an unsafe disk of its own, and whoever is killed loses what was not
//! synced there.
//!
//! After damage the directories are kept and named, and the test goes on with a new pair. The seed decides faults and
//! moments; what the servers and clients do in between is up to their threads.

mod lost;
mod pair;
mod rounds;
mod table;

use std::fmt;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::kill_test::fresh_seed;
use crate::{server, tools};

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

/// How a master is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// kill -9.
    Killed,
    /// SIGSTOP; killed after the promotion.
    Hung,
    /// SIGSTOP; after the promotion it goes on for a while, then it is killed.
    Resumed,
    /// The standby gets kill -9 first and is started again after the master got it, too.
    BothKilled,
    /// The standby gets kill -9, comes back, and is catching up or has done so when the master gets it.
    StandbyBack,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::Killed => "killed",
            Fault::Hung => "hung",
            Fault::Resumed => "hung and resumed",
            Fault::BothKilled => "both killed",
            Fault::StandbyBack => "killed after its standby was back",
        })
    }
}

/// `cargo xtask failover-test`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask failover-test --level hot
  cargo xtask failover-test --rounds 200 --level local --seed 7
  cargo xtask failover-test --rounds 50 --level commit --power-cut

The exit code is 1 when anything acknowledged was lost against the promise of the level, half there, or not written down.")]
pub struct Arguments {
    /// How often the master is lost
    #[arg(long, value_name = "N", default_value_t = 20)]
    rounds: u32,
    /// What the answer to a commit waits for
    #[arg(long, value_enum, default_value = "hot")]
    level: Level,
    /// Clients that write
    #[arg(long, value_name = "N", default_value_t = 40)]
    clients: u32,
    /// Decides the faults and their moments
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Each server has a disk of its own that forgets what was not synced when its power is cut; whoever is killed is
    #[arg(long)]
    power_cut: bool,
    /// Test this server binary instead of building one
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
}

/// True when nothing was lost.
pub fn command(arguments: Arguments) -> anyhow::Result<bool> {
    tools::require(&["psql"])?;
    let Arguments { rounds, level, clients, seed, power_cut, server } = arguments;
    if let Some(why) = holdfast_unsafe_disk::cannot_mount().filter(|_| power_cut) {
        anyhow::bail!("--power-cut: {why}");
    }
    let binary = server.map_or_else(server::build, Ok)?;
    let seed = seed.unwrap_or_else(fresh_seed);
    let totals = rounds::run(&binary, &rounds::Plan { rounds, level, clients, seed, power_cut })?;
    println!("{}", totals.table());
    Ok(totals.is_clean())
}

/// A few rounds at level hot, for `cargo xtask test`.
pub fn smoke(binary: &Path, rounds: u32, power_cut: bool) -> anyhow::Result<Totals> {
    rounds::run(binary, &rounds::Plan { rounds, level: Level::Hot, clients: 20, seed: fresh_seed(), power_cut })
}
