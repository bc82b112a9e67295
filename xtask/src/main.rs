//! The project's own commands: `cargo xtask check` is what to run before a commit, `cargo xtask test` runs every test,
//! `cargo xtask isolation` prints which
//! isolation anomalies can happen, `cargo xtask kill-test` kills a loaded server again and again and looks for lost rows,
//! `cargo xtask power-cut` does the same with a disk that forgets, `cargo xtask failover-test` with a master that has a
//! standby to take its place, `cargo xtask put-back-test` with directories that are replaced by older copies,
//! `cargo xtask fuzz` feeds the readers with nonsense, `cargo xtask peer-faults` measures what other databases do about each
//! fault, `cargo xtask cluster-test` injects random faults into a cluster, `cargo xtask takeovers` measures how long a cluster is
//! without a master, `cargo xtask feeds` measures logical replication, `cargo xtask layers` looks for imports that go the wrong way.
//!
//! Each command does its own set-up (it builds the server, makes a Python environment, fetches the drivers, starts a
//! private PostgreSQL) below the target directory and a temporary directory, and takes down what it started.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod cluster_soak;
mod cluster_test;
mod connections;
mod coverage;
mod dumps;
mod failover;
mod feeds;
mod findings;
mod fuzz;
mod kill_test;
mod layers;
mod lint;
mod observed;
mod paired;
mod paths;
mod peer_faults;
mod power_cut;
mod put_back;
mod recorder;
mod rules;
mod server;
mod suites;
mod switchover;
mod takeovers;
mod tally;
mod tools;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Builds and tests Holdfast")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs every test: the crates' own, and real clients against the real server with PostgreSQL as oracle
    #[command(after_help = "Examples:\n  cargo xtask test\n  cargo xtask test --only psql,pgbench\n\n\
        The suites run on the server that the crates' tests build (development profile); --server takes another one.\n\
        A part whose tools are missing is skipped and named. With CI=true in the environment it fails instead.")]
    Test {
        /// Run only these suites (see --list), separated by commas
        #[arg(long, value_name = "SUITE", value_delimiter = ',')]
        only: Vec<String>,
        /// Print the suites and what each needs, and run nothing
        #[arg(long)]
        list: bool,
        /// Test this server binary instead of building one
        #[arg(long, value_name = "FILE")]
        server: Option<std::path::PathBuf>,
    },
    /// Checks format, lints, documentation and imports and runs the tests inside the crates: what to run before a commit
    Check,
    /// Checks format, Clippy and the documentation, and dependencies where cargo-deny is installed
    Lint,
    /// Checks licences, sources, duplicates and advisories of the dependencies; installs cargo-deny if it is missing
    Deny,
    /// Shows which lines the crates' tests run
    Coverage(coverage::Arguments),
    /// Prints which isolation anomalies happen at which level, on PostgreSQL and on Holdfast side by side
    #[command(after_help = "Example:\n  cargo xtask isolation")]
    Isolation {
        /// Test this server binary instead of building one
        #[arg(long, value_name = "FILE")]
        server: Option<std::path::PathBuf>,
    },
    /// Kills a loaded server (kill -9) at random moments and checks that no acknowledged row is missing
    #[command(after_help = "Example:\n  cargo xtask kill-test --rounds 20")]
    KillTest {
        /// How many times the server is killed and restarted
        #[arg(long, default_value_t = 20)]
        rounds: u32,
        /// Clients that insert rows and record what was acknowledged
        #[arg(long, default_value_t = 40)]
        clients: u32,
        /// Repeats the random moments of an earlier run
        #[arg(long)]
        seed: Option<u64>,
        /// Test this server binary instead of building one
        #[arg(long, value_name = "FILE")]
        server: Option<std::path::PathBuf>,
    },
    /// Cuts the power of a loaded server on a disk that forgets, tears and reorders, and looks for what was acknowledged
    PowerCut(power_cut::Arguments),
    /// Takes servers away from a loaded group, promotes another one, brings the lost one back, and looks for what was lost
    FailoverTest(failover::Arguments),
    /// Puts older copies of a master's directory back, and looks for what was acknowledged
    PutBackTest(put_back::Arguments),
    /// Switches over under load and measures the gap and what clients see
    Switchover(switchover::Arguments),
    /// Feeds what reads files, messages and statements with seeded mutations of small corpora
    Fuzz(fuzz::Arguments),
    /// Checks that imports go down the floors of each crate and that no import circle is large
    Layers(layers::Arguments),
    /// Checks that every rule and every guarantee in docs/rules.md names tests that exist
    Rules(rules::Arguments),
    /// Measures what Holdfast, SQLite and PostgreSQL do about each fault of the disk below them
    PeerFaults(peer_faults::Arguments),
    /// Disturbs a loaded cluster for hours by what must not cost its master its place, and shows the least that was left of the lease
    ClusterSoak(cluster_soak::Arguments),
    /// Injects random faults into a cluster while clients record histories, and has these checked
    ClusterTest(cluster_test::Arguments),
    /// Measures how long a cluster accepts no commits when its master is lost, and how long Patroni does
    Takeovers(takeovers::Arguments),
    /// Measures logical replication next to PostgreSQL's: what a subscriber costs, how fast changes and copies arrive
    Feeds(feeds::Arguments),
    /// Compares the speed of two server binaries in alternating runs
    Paired(paired::Arguments),
    /// Measures what statistics, privileges, /metrics and the console cost
    Observed(observed::Arguments),
    /// Compares what connections, TLS and idle sessions cost with PostgreSQL
    Connections(connections::Arguments),
    /// Compares dumps, restores and roll-forward with PostgreSQL and pgBackRest
    Dumps(dumps::Arguments),
    /// Uses SQLite for `power-cut --peer sqlite`
    #[command(hide = true)]
    PowerCutSqlite(power_cut::SqliteChild),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Test { list: true, .. } => {
            suites::list();
            Ok(true)
        }
        Command::Test { only, server, .. } => suites::run(&only, server),
        Command::Check => lint::run().and_then(|clean| Ok(suites::quick()? && clean)),
        Command::Lint => lint::run(),
        Command::Deny => lint::deny(),
        Command::Coverage(arguments) => coverage::command(&arguments),
        Command::Isolation { server } => suites::isolation(server),
        Command::KillTest { rounds, clients, seed, server } => kill_test::command(rounds, clients, seed, server),
        Command::PowerCut(arguments) => power_cut::command(arguments),
        Command::FailoverTest(arguments) => failover::command(arguments),
        Command::PutBackTest(arguments) => put_back::command(arguments),
        Command::Switchover(arguments) => switchover::command(arguments),
        Command::Fuzz(arguments) => fuzz::command(&arguments),
        Command::Layers(arguments) => layers::command(&arguments),
        Command::Rules(arguments) => rules::command(&arguments),
        Command::PeerFaults(arguments) => peer_faults::command(&arguments),
        Command::ClusterSoak(arguments) => cluster_soak::command(&arguments),
        Command::ClusterTest(arguments) => cluster_test::command(&arguments),
        Command::Takeovers(arguments) => takeovers::command(&arguments),
        Command::Feeds(arguments) => feeds::command(&arguments),
        Command::Paired(arguments) => paired::command(&arguments),
        Command::Observed(arguments) => observed::command(&arguments),
        Command::Connections(arguments) => connections::command(&arguments),
        Command::Dumps(arguments) => dumps::command(&arguments),
        Command::PowerCutSqlite(child) => power_cut::sqlite_child::run(&child),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
