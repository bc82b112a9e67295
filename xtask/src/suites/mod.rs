//! The suites of `cargo xtask test`.
//!
//! First those that need no server, and the crates' tests, which build it. Then two rows of suites next to each other,
//! because most of them wait: the client programs share a server and an oracle and run one after another; the suites that
//! start, kill and damage servers of their own do the same.

mod access;
mod access_tokio;
mod bench_load;
mod crates;
mod hosts;
mod isolation;
mod own;
mod programs;
mod psql;

pub use crates::FEATURES;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::bail;

use crate::findings::{Expectations, Findings};
use crate::server::{Address, Holdfast, Postgres, oracle};
use crate::tally::{Outcome, Tally};
use crate::{failover, kill_test, layers, paths, power_cut, put_back, rules, tools};

/// One suite: its name, what it is for, what it needs, and how it runs.
struct Suite {
    name: &'static str,
    about: &'static str,
    needs: &'static [&'static str],
    row: Row,
    run: fn(&mut Bench) -> anyhow::Result<()>,
}

/// When a suite runs. See the module.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Row {
    First,
    Clients,
    OwnServers,
}

const SUITES: &[Suite] = &[
    Suite {
        name: "layers",
        about: "floors and circles of imports, forbidden dependencies",
        needs: &[],
        row: Row::First,
        run: layers,
    },
    Suite {
        name: "rules",
        about: "every rule and guarantee names tests that exist",
        needs: &[],
        row: Row::First,
        run: rules,
    },
    Suite { name: "crates", about: "cargo test of the whole workspace", needs: &[], row: Row::First, run: crates::run },
    Suite { name: "psql", about: "scripts through psql", needs: &["psql"], row: Row::Clients, run: psql::run },
    Suite {
        name: "pgbench",
        about: "pgbench in every mode",
        needs: &["psql", "pgbench"],
        row: Row::Clients,
        run: bench_load::run,
    },
    Suite {
        name: "psycopg",
        about: "psycopg 3 (Python)",
        needs: &["psql", "python3"],
        row: Row::Clients,
        run: programs::psycopg,
    },
    Suite {
        name: "isolation",
        about: "isolation and locking, several sessions at once",
        needs: &["psql", "python3"],
        row: Row::Clients,
        run: isolation::run,
    },
    Suite {
        name: "jdbc",
        about: "pgjdbc (Java)",
        needs: &["psql", "java", "javac", "mvn"],
        row: Row::Clients,
        run: programs::jdbc,
    },
    Suite { name: "pgx", about: "pgx 5 (Go)", needs: &["psql", "go"], row: Row::Clients, run: programs::pgx },
    Suite {
        name: "hosts",
        about: "libpq, pgjdbc and pgx with two hosts, one of them deposed",
        needs: &["psql", "python3", "java", "javac", "mvn", "go"],
        row: Row::OwnServers,
        run: hosts::run,
    },
    Suite {
        name: "access",
        about: "TLS, SCRAM and privileges through six drivers, and in psql",
        needs: &["psql", "python3", "java", "javac", "mvn", "go", "node", "npm"],
        row: Row::OwnServers,
        run: access::run,
    },
    Suite {
        name: "protocol",
        about: "bad messages and bad clients",
        needs: &["psql", "python3"],
        row: Row::Clients,
        run: programs::protocol,
    },
    Suite {
        name: "directory",
        about: "bad data directories and disks",
        needs: &["python3"],
        row: Row::OwnServers,
        run: own::directory,
    },
    Suite {
        name: "shell",
        about: "the sqlite3 shell and import",
        needs: &["python3", "sqlite3"],
        row: Row::OwnServers,
        run: own::shell,
    },
    Suite {
        name: "outside",
        about: "clients in another network namespace, every packet captured",
        needs: &["psql", "python3", "ip"],
        row: Row::OwnServers,
        run: own::outside,
    },
    Suite {
        name: "histories",
        about: "recorded histories, the server killed, judged by porcupine",
        needs: &["go"],
        row: Row::OwnServers,
        run: own::histories,
    },
    Suite {
        name: "kill",
        about: "kill -9 under load, five rounds",
        needs: &["psql", "pgbench"],
        row: Row::OwnServers,
        run: kill,
    },
    Suite {
        name: "power-cut",
        about: "power cuts under load on an unsafe disk, sixteen of them",
        needs: &[],
        row: Row::OwnServers,
        run: power_cut,
    },
    Suite {
        name: "failover",
        about: "a master lost under load at level hot, three rounds",
        needs: &["psql"],
        row: Row::OwnServers,
        run: failover,
    },
    Suite {
        name: "put-back",
        about: "an older copy of a master's directory put back, two rounds of each set-up",
        needs: &["psql"],
        row: Row::OwnServers,
        run: put_back,
    },
];

/// What the suites share: the binary, both servers, the expectations and the results.
pub struct Bench {
    binary: Option<PathBuf>,
    holdfast: Option<(Holdfast, tempfile::TempDir)>,
    oracle: Option<Postgres>,
    expectations: Expectations,
    pub tally: Tally,
}

/// The names of the suites.
pub fn names() -> impl Iterator<Item = &'static str> {
    SUITES.iter().map(|suite| suite.name)
}

/// Prints the suites.
pub fn list() {
    for suite in SUITES {
        let needs = if suite.needs.is_empty() { String::new() } else { format!(" (needs {})", suite.needs.join(", ")) };
        println!("{:10} {}{needs}", suite.name, suite.about);
    }
}

/// Runs the named suites, or all. True when nothing failed.
pub fn run(only: &[String], binary: Option<PathBuf>) -> anyhow::Result<bool> {
    if let Some(unknown) = only.iter().find(|name| !SUITES.iter().any(|suite| suite.name == name.as_str())) {
        bail!("no suite named {unknown}; `cargo xtask test --list` prints them");
    }
    run_each(SUITES.iter().filter(|suite| only.is_empty() || only.iter().any(|name| name == suite.name)), binary)
}

/// Prints which of the published isolation anomalies happen on PostgreSQL and on Holdfast. True when Holdfast's
/// outcomes are PostgreSQL's or listed.
pub fn isolation(binary: Option<PathBuf>) -> anyhow::Result<bool> {
    let about = "the published anomalies at three levels";
    let suite =
        Suite { name: "isolation", about, needs: &["psql", "python3"], row: Row::Clients, run: isolation::anomalies };
    run_each([&suite], binary)
}

fn run_each<'a>(suites: impl IntoIterator<Item = &'a Suite>, binary: Option<PathBuf>) -> anyhow::Result<bool> {
    let suites: Vec<&Suite> = suites.into_iter().collect();
    let of = |row: Row| suites.iter().copied().filter(|suite| suite.row == row).collect::<Vec<_>>();
    let (clients, own) = (of(Row::Clients), of(Row::OwnServers));
    let mut first = Bench::new(binary)?;
    first.run(&of(Row::First));
    if !(clients.is_empty() && own.is_empty()) {
        // Both rows use it; when it does not build neither can run.
        match first.binary() {
            Ok(binary) => {
                let (mut shared, mut others) = (Bench::new(Some(binary.clone()))?, Bench::new(Some(binary))?);
                std::thread::scope(|scope| {
                    scope.spawn(|| others.run(&own));
                    shared.run(&clients);
                });
                first.tally.merge(shared.tally);
                first.tally.merge(others.tally);
            }
            Err(error) => first.tally.add("server", "build", Outcome::Failed(format!("{error:#}"))),
        }
    }
    print!("{}", first.tally.summary());
    Ok(first.tally.counts().failed == 0)
}

/// The tests inside the crates and the imports, for `cargo xtask check`. True when nothing failed.
pub fn quick() -> anyhow::Result<bool> {
    let about = "the tests inside the crates; no server";
    let unit = Suite { name: "unit", about, needs: &[], row: Row::First, run: crates::unit_tests };
    run_each(SUITES.iter().filter(|suite| ["layers", "rules"].contains(&suite.name)).chain([&unit]), None)
}

/// As `cargo xtask layers`, which prints more.
fn layers(bench: &mut Bench) -> anyhow::Result<()> {
    let report = layers::check()?;
    let outcome = if report.is_clean() { Outcome::Passed } else { Outcome::Failed(report.text(false)) };
    bench.tally.add("layers", "imports", outcome);
    Ok(())
}

/// As `cargo xtask rules`.
fn rules(bench: &mut Bench) -> anyhow::Result<()> {
    let faults = rules::check()?;
    let outcome = if faults.is_empty() { Outcome::Passed } else { Outcome::Failed(faults.join("\n")) };
    bench.tally.add("rules", "docs", outcome);
    Ok(())
}

fn kill(bench: &mut Bench) -> anyhow::Result<()> {
    let binary = bench.binary()?;
    let plan = kill_test::Plan { rounds: 5, clients: 40, seed: kill_test::fresh_seed() };
    kill_test::run(&binary, &plan, &mut bench.tally)
}

/// Enough to see that promotion and rejoining work; `cargo xtask failover-test` does the rest.
fn failover(bench: &mut Bench) -> anyhow::Result<()> {
    const ROUNDS: u32 = 3;
    for (name, power_cut) in [("nothing_is_lost", false), ("nothing_is_lost_when_power_is_cut", true)] {
        if let Some(why) = power_cut::unavailable().filter(|_| power_cut) {
            bench.tally.unavailable("failover", name, &format!("no unsafe disk can be mounted: {why}"));
            continue;
        }
        let totals = failover::smoke(&bench.binary()?, ROUNDS, power_cut)?;
        let table = totals.table();
        println!("{table}");
        let outcome = if totals.is_clean() { Outcome::Passed } else { Outcome::Failed(table) };
        bench.tally.add("failover", name, outcome);
    }
    Ok(())
}

/// A round with each way of copying; `cargo xtask put-back-test` does the rest.
fn put_back(bench: &mut Bench) -> anyhow::Result<()> {
    const ROUNDS: u32 = 2;
    for setup in put_back::Setup::ALL {
        let totals = put_back::run(&bench.binary()?, setup, ROUNDS, 20, kill_test::fresh_seed())?;
        let outcome = if totals.is_clean() { Outcome::Passed } else { Outcome::Failed(totals.line()) };
        bench.tally.add("put-back", setup.name(), outcome);
    }
    Ok(())
}

/// Enough to see that the disk, the harness and the server work together; `cargo xtask power-cut` does the rest.
fn power_cut(bench: &mut Bench) -> anyhow::Result<()> {
    const CUTS: u32 = 16;
    if let Some(why) = power_cut::unavailable() {
        bench.tally.unavailable("power-cut", "all", &format!("no unsafe disk can be mounted: {why}"));
        return Ok(());
    }
    let totals = power_cut::smoke(bench.binary()?, CUTS)?;
    let table = totals.table("holdfast");
    println!("{table}");
    let outcome = if totals.is_clean() { Outcome::Passed } else { Outcome::Failed(table) };
    bench.tally.add("power-cut", "nothing_is_lost", outcome);
    let worked = totals.acknowledged > 0 && totals.sectors[1] > 0;
    let outcome = if worked { Outcome::Passed } else { Outcome::Failed("the disk had nothing to lose".to_owned()) };
    bench.tally.add("power-cut", "the_disk_forgets", outcome);
    Ok(())
}

impl Bench {
    fn new(binary: Option<PathBuf>) -> anyhow::Result<Bench> {
        let expectations = Expectations::read(&paths::client("expectations.toml"))?;
        Ok(Bench { binary, holdfast: None, oracle: None, expectations, tally: Tally::default() })
    }

    /// Runs these suites one after another.
    fn run(&mut self, suites: &[&Suite]) {
        for suite in suites {
            let started = Instant::now();
            println!("==== {}: {}", suite.name, suite.about);
            if let Err(missing) = tools::require(suite.needs) {
                self.tally.unavailable(suite.name, "all", &missing.to_string());
                continue;
            }
            if let Err(error) = (suite.run)(self) {
                self.tally.add(suite.name, "all", Outcome::Failed(format!("{error:#}")));
            }
            self.look_for_trouble(suite.name);
            println!("  {} took {:.1} s", suite.name, started.elapsed().as_secs_f64());
        }
        self.stop();
    }

    /// The server's binary, built at first use.
    pub fn binary(&mut self) -> anyhow::Result<PathBuf> {
        if self.binary.is_none() {
            self.binary = Some(crates::build_server()?);
        }
        Ok(self.binary.clone().expect("set just above"))
    }

    /// The running server, started at first use and again if it has died.
    pub fn holdfast(&mut self) -> anyhow::Result<Address> {
        if let Some((server, _)) = &mut self.holdfast
            && server.is_running()
        {
            return Ok(server.address);
        }
        let binary = self.binary()?;
        let scratch = paths::scratch("clients")?;
        let server = Holdfast::start(&binary, &scratch.path().join("data"), Address::free())?;
        let address = server.address;
        self.holdfast = Some((server, scratch));
        Ok(address)
    }

    /// The oracle, started at first use.
    pub fn oracle(&mut self) -> anyhow::Result<Address> {
        if self.oracle.is_none() {
            self.oracle = Some(oracle(&[], |_, _| Ok(()))?);
        }
        Ok(self.oracle.as_ref().expect("set just above").address)
    }

    /// Runs the same program on both servers, each time in a fresh database, and compares the findings.
    pub fn compare(
        &mut self,
        suite: &str,
        program: impl Fn(Address, &str) -> anyhow::Result<Findings>,
    ) -> anyhow::Result<()> {
        if let Some((wanted, found)) = self.both(suite, program)? {
            self.judge(suite, &wanted, &found);
        }
        Ok(())
    }

    /// What PostgreSQL's run found, and Holdfast's; none, and a word about it, where there is no PostgreSQL.
    pub fn both(
        &mut self,
        suite: &str,
        program: impl Fn(Address, &str) -> anyhow::Result<Findings>,
    ) -> anyhow::Result<Option<(Findings, Findings)>> {
        let oracle = match self.oracle() {
            Ok(address) => address,
            Err(error) => {
                self.tally.unavailable(suite, "all", &format!("no PostgreSQL to compare with: {error:#}"));
                return Ok(None);
            }
        };
        let database = format!("client_{suite}");
        let create = format!("CREATE DATABASE {database}");
        oracle.sql("postgres", &create)?;
        let wanted = program(oracle, &database)?;
        let holdfast = self.holdfast()?;
        holdfast.sql("postgres", &create)?;
        let found = program(holdfast, &database)?;
        Ok(Some((wanted, found)))
    }

    /// Compares two runs, with the listed differences.
    pub fn judge(&mut self, suite: &str, wanted: &Findings, found: &Findings) {
        crate::findings::compare(suite, wanted, found, &self.expectations, &mut self.tally);
    }

    /// A server that died or panicked fails the suite that did it, whatever the clients saw.
    fn look_for_trouble(&mut self, suite: &str) {
        let Some((server, _)) = &mut self.holdfast else { return };
        let panics = server.panics();
        if !panics.is_empty() {
            self.tally.add(suite, "no_panic", Outcome::Failed(panics.join("\n")));
        }
        if !server.is_running() {
            self.tally.add(suite, "still_serving", Outcome::Failed(format!("the server died:\n{}", server.log_end())));
        }
        if !panics.is_empty() || !server.is_running() {
            self.holdfast = None; // the next suite gets a fresh one
        }
    }

    /// A clean stop at the end is a test of its own.
    fn stop(&mut self) {
        if let Some((mut server, _scratch)) = self.holdfast.take() {
            let outcome = match server.stop() {
                Ok(status) if status.success() => Outcome::Passed,
                Ok(status) => Outcome::Failed(format!("SIGTERM ended the server with {status}:\n{}", server.log_end())),
                Err(error) => Outcome::Failed(format!("{error:#}")),
            };
            self.tally.add("stop", "clean_stop_after_the_clients", outcome);
        }
        self.oracle = None;
    }
}
