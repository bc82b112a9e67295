//! A person's own transactions: what `holdfast doctor --workload` starts.

use crate::arguments;
use anyhow::ensure;
use holdfast_lab::{OwnWorkload, run_own};
use std::path::PathBuf;

/// Run one's own transactions with every sync method and without commit delay
#[derive(clap::Args)]
pub struct Workload {
    /// The script of transactions
    script: PathBuf,
    /// Numbers of clients
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    clients: Vec<usize>,
    /// Seconds each point is measured
    #[arg(long, value_name = "N", default_value_t = 3)]
    seconds: u64,
    /// Directory in which the databases are made and removed again
    #[arg(long = "data", alias = "data-dir", value_name = "DIR")]
    data_dir: PathBuf,
    /// The server program to measure [default: holdfast in the directory of holdfast-lab]
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

impl Workload {
    /// Measures and prints the figures; each point is reported on stderr when it has been measured.
    pub fn run(self) -> anyhow::Result<()> {
        let workload = OwnWorkload {
            script: self.script,
            clients: self.clients,
            seconds: self.seconds as f64,
            data_dir: self.data_dir,
            program: arguments::server(self.server)?,
        };
        ensure!(
            workload.clients.iter().all(|count| (1..=1000).contains(count)) && workload.seconds >= 1.0,
            "--clients are numbers from 1 to 1000, --seconds is at least 1"
        );
        let results = run_own(&workload, |point| {
            eprintln!("{} clients, {}: {:.0} tps", point.clients, point.setting, point.tps);
        })?;
        if self.json {
            println!("{}", serde_json::to_string_pretty(&results)?);
        } else {
            print!("{}", results.text());
        }
        Ok(())
    }
}
