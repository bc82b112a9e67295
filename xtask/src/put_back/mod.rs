//! Puts an older copy of a master's directory back, as a restored virtual machine or an operator's copy does, and looks for
//! what was acknowledged.
//!
//! A round has servers of its own, `n1` the master and `n2` its standby, at level hot:
//!
//! 1. Clients write, and the directory of the running master is copied. In odd rounds the clients have ended and the
//!    master runs on while `cp -a` reads; in even rounds it is frozen under load for the time of the copy, as by a snapshot,
//!    and its member of the control plane leads Raft.
//! 2. Clients write for 4 to 5 s more. Then master and standby are killed, and the copy takes the place of the directory.
//! 3. The master is started. Without a control plane nothing that is left shows what it lacks: it is started and killed
//!    three times, each start a new mastership, and then the standby is started next to it.
//! 4. A server that refuses is right if the standby has everything: it is started and promoted, and shows every row. A
//!    server that serves has to show every row itself.
//!
//! A master that is started again after a refusal, as by a service manager, has to refuse again. After a loss the directories
//! are kept and named.

mod plain;
mod round;
mod supervised;

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::kill_test::{Random, fresh_seed};
use crate::{server, tools};

use round::{Ended, Round};

/// The servers of a round, and what decides which of them is the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Setup {
    /// Two servers and a witness with a control plane; the operator promotes.
    Witness,
    /// Two servers; the operator decides.
    None,
    /// Two servers and a witness, each under `holdfast cluster run`.
    Supervisors,
}

impl Setup {
    pub const ALL: [Setup; 3] = [Setup::Witness, Setup::None, Setup::Supervisors];

    pub fn name(self) -> &'static str {
        match self {
            Setup::Witness => "witness",
            Setup::None => "none",
            Setup::Supervisors => "supervisors",
        }
    }
}

/// `cargo xtask put-back-test`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask put-back-test --setup witness --rounds 20
  cargo xtask put-back-test --setup supervisors --rounds 1 --server /usr/local/bin/holdfast

The exit code is 1 when a server serves without what was acknowledged, or when no server has it.")]
pub struct Arguments {
    /// How often a directory is put back
    #[arg(long, value_name = "N", default_value_t = 20)]
    rounds: u32,
    /// The servers, and what decides which of them is the master
    #[arg(long, value_enum, default_value = "witness")]
    setup: Setup,
    /// Clients that write
    #[arg(long, value_name = "N", default_value_t = 20)]
    clients: u32,
    /// Decides how long the clients write after the copy
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Test this server binary instead of building one
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
}

/// True when nothing was lost.
pub fn command(arguments: Arguments) -> anyhow::Result<bool> {
    tools::require(&["psql"])?;
    let Arguments { rounds, setup, clients, seed, server } = arguments;
    let binary = server.map_or_else(server::build, Ok)?;
    let totals = run(&binary, setup, rounds, clients, seed.unwrap_or_else(fresh_seed))?;
    println!("{}", totals.line());
    Ok(totals.is_clean())
}

/// Sums over all rounds.
#[derive(Default)]
pub struct Totals {
    rounds: u32,
    served: u32,
    refused: u32,
    acknowledged: u64,
    lost: u64,
    /// What went wrong in other ways: a panic, a refusal that is not repeated, a standby that cannot be promoted.
    trouble: Vec<String>,
}

impl Totals {
    pub fn is_clean(&self) -> bool {
        self.lost == 0 && self.trouble.is_empty()
    }

    /// What the rounds came to.
    pub fn line(&self) -> String {
        let Totals { rounds, served, refused, acknowledged, lost, trouble } = self;
        let trouble: String = trouble.iter().map(|what| format!("\n  {what}")).collect();
        format!("{rounds} rounds | served {served}, refused {refused} | lost {lost} of {acknowledged}{trouble}")
    }

    fn add(&mut self, number: u32, round: &Round) {
        self.rounds += 1;
        self.acknowledged += round.acknowledged;
        self.lost += round.lost as u64;
        match round.ended {
            Some(Ended::Served) => self.served += 1,
            Some(Ended::Refused) => self.refused += 1,
            None => {}
        }
        self.trouble.extend(round.trouble.iter().map(|what| format!("round {number}: {what}")));
    }
}

/// Runs all rounds. An error is a fault of the test's surroundings.
pub fn run(binary: &Path, setup: Setup, rounds: u32, clients: u32, seed: u64) -> anyhow::Result<Totals> {
    println!("  {rounds} rounds, set-up {}, {clients} clients, seed {seed}", setup.name());
    let mut random = Random(seed);
    let mut totals = Totals::default();
    for number in 1..=rounds {
        let round = round::run(binary, setup, number, clients, &mut random)?;
        println!("  round {number}: {}", round.line());
        totals.add(number, &round);
    }
    Ok(totals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_and_other_trouble_are_counted() {
        let mut totals = Totals::default();
        let good = Round { acknowledged: 10, ended: Some(Ended::Refused), ..Round::default() };
        totals.add(1, &good);
        assert!(totals.is_clean());
        assert_eq!(totals.line(), "1 rounds | served 0, refused 1 | lost 0 of 10");
        totals.add(2, &Round { ended: Some(Ended::Served), lost: 3, ..good.clone() });
        assert!(!totals.is_clean());
        assert_eq!(totals.line(), "2 rounds | served 1, refused 1 | lost 3 of 20");
        let mut other = Totals::default();
        other.add(1, &Round { trouble: vec!["a panic".to_owned()], ..good });
        assert!(!other.is_clean());
    }
}
