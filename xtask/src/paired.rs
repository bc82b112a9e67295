//! Compares the speed of two server binaries: the study's card authorization in three forms, driven by pgbench.
//!
//! Both servers run at the same time on directories of their own, and only one of them has load at a time. A round
//! measures the old binary and the new one directly after each other, in alternating order, so that a machine whose
//! speed drifts slows down both. What counts is the median of the rounds' ratios; single rates are printed for
//! orientation only.
//!
//! Failure: no pgbench, a server that does not start, a script that fails; each ends the command with the cause.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::server::{self, Address, Holdfast};
use crate::{paths, tools};

/// Where each server keeps the tables.
const DATABASE: &str = "holdfast";

/// What is measured: the name, pgbench's protocol mode, the script.
const CASES: [(&str, &str, &str); 3] = [
    ("one message", "simple", "one_message.sql"),
    ("pipeline", "prepared", "pipeline.sql"),
    ("five messages", "prepared", "five_messages.sql"),
];

/// `cargo xtask paired`
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  cargo xtask paired --old /tmp/holdfast-of-last-week --seconds 10 --rounds 7

Ratios above 1 mean that the new binary is faster. Stop other work on the machine first.")]
pub struct Arguments {
    /// The binary to compare with
    #[arg(long, value_name = "FILE")]
    old: PathBuf,
    /// The binary to judge, instead of building it
    #[arg(long, value_name = "FILE")]
    new: Option<PathBuf>,
    /// Seconds each measurement lasts
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Measurements of each binary for each case
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// pgbench clients
    #[arg(long, default_value_t = 40)]
    clients: u32,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// The rates of one case, a pair for each round: the old binary's, then the new one's, in transactions a second.
struct Measured {
    case: &'static str,
    pairs: Vec<(f64, f64)>,
}

/// Measures every case and prints the ratios. Always true: the reader judges.
pub fn command(arguments: &Arguments) -> anyhow::Result<bool> {
    tools::require(&["psql", "pgbench"])?;
    let new = arguments.new.clone().map_or_else(server::build, Ok)?;
    let scratch = paths::scratch("paired")?;
    let start = |name: &str, binary: &Path| {
        let server = Holdfast::start(binary, &scratch.path().join(name), Address::free())?;
        load(server.address)?;
        anyhow::Ok(server)
    };
    let (old, new) = (start("old", &arguments.old)?, start("new", &new)?);
    let mut measured = Vec::new();
    for (case, mode, script) in CASES {
        let rate = |address| rate(address, mode, script, arguments);
        let mut pairs = Vec::new();
        // One uncounted run each warms caches and prepared statements.
        rate(old.address)?;
        rate(new.address)?;
        for round in 0..arguments.rounds {
            let pair = match round % 2 {
                0 => (rate(old.address)?, rate(new.address)?),
                _ => {
                    let new = rate(new.address)?;
                    (rate(old.address)?, new)
                }
            };
            if !arguments.json {
                println!("  {case}, round {}: {:.0} old, {:.0} new, {:.3}", round + 1, pair.0, pair.1, pair.1 / pair.0);
            }
            pairs.push(pair);
        }
        measured.push(Measured { case, pairs });
    }
    print!("{}", if arguments.json { as_json(&measured) } else { table(&measured) });
    Ok(true)
}

/// Creates and fills the tables.
pub fn load(address: Address) -> anyhow::Result<()> {
    let output = Command::new("psql")
        .args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", "authorization/tables.sql"])
        .current_dir(paths::client("pgbench"))
        .envs(address.environment(DATABASE))
        .output()
        .context("starting psql")?;
    if !output.status.success() {
        bail!("the tables cannot be loaded: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Transactions a second that pgbench reports for one run of a script.
fn rate(address: Address, mode: &str, script: &str, arguments: &Arguments) -> anyhow::Result<f64> {
    let (clients, seconds) = (arguments.clients.to_string(), arguments.seconds.to_string());
    let output = Command::new("pgbench")
        .args(["-n", "-M", mode, "-c", &clients, "-j", "2", "-T", &seconds, "-f", &format!("authorization/{script}")])
        .current_dir(paths::client("pgbench"))
        .envs(address.environment(DATABASE))
        .output()
        .context("starting pgbench")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        bail!("pgbench failed on {script}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    rate_printed(&text).with_context(|| format!("pgbench printed no rate: {text}"))
}

/// `tps = 12345.6 (without initial connection time)`
pub fn rate_printed(text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix("tps = ")?.split_whitespace().next()?.parse().ok())
}

/// The median of the values that `of` picks from the pairs.
fn median(pairs: &[(f64, f64)], of: impl Fn(&(f64, f64)) -> f64) -> f64 {
    let mut values: Vec<f64> = pairs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn table(measured: &[Measured]) -> String {
    let mut text = format!(
        "\n{:14} {:>12} {:>12} {:>9} {:>9} {:>9}\n",
        "case", "old tx/s", "new tx/s", "lowest", "ratio", "highest"
    );
    for Measured { case, pairs } in measured {
        let ratios = || pairs.iter().map(|(old, new)| new / old);
        text += &format!(
            "{case:14} {:12.0} {:12.0} {:9.3} {:9.3} {:9.3}\n",
            median(pairs, |p| p.0),
            median(pairs, |p| p.1),
            ratios().fold(f64::INFINITY, f64::min),
            median(pairs, |p| p.1 / p.0),
            ratios().fold(0.0, f64::max),
        );
    }
    text
}

fn as_json(measured: &[Measured]) -> String {
    let one = |m: &Measured| {
        let pairs: Vec<String> = m.pairs.iter().map(|(old, new)| format!("[{old:.1},{new:.1}]")).collect();
        let ratio = median(&m.pairs, |p| p.1 / p.0);
        format!("{{\"case\":\"{}\",\"ratio\":{ratio:.4},\"tps_old_new\":[{}]}}", m.case, pairs.join(","))
    };
    format!("[{}]\n", measured.iter().map(one).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_the_median_of_the_rounds_ratios() {
        let pairs = vec![(100.0, 90.0), (10.0, 11.0), (50.0, 50.0)];
        let text = table(&[Measured { case: "pipeline", pairs }]);
        let cells: Vec<&str> = text.lines().last().expect("a line").split_whitespace().collect();
        assert_eq!(cells, ["pipeline", "50", "50", "0.900", "1.000", "1.100"]);
    }

    #[test]
    fn reads_the_rate() {
        let text = "latency average = 4.2 ms\ntps = 9423.5 (without initial connection time)\n";
        assert_eq!(rate_printed(text), Some(9423.5));
        assert_eq!(rate_printed("no rate"), None);
    }
}
