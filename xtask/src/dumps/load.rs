//! The load: card authorizations by pgbench, and their rate with a dump under way.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, ensure};

use crate::paths;
use crate::server::Address;

/// What can make a full dump.
pub trait Dumper {
    /// Makes one, to its end.
    fn full_dump(&self) -> anyhow::Result<()>;
}

/// A load on one server.
pub struct Load {
    pub address: Address,
    pub clients: u64,
    /// Seconds of it without a dump.
    pub seconds: u32,
}

/// Transactions a second.
pub struct Rates {
    pub without: f64,
    pub during: f64,
    /// How long the dump took under this load.
    pub dump_seconds: f64,
}

/// Seconds at the beginning that do not count: caches and prepared statements.
const WARM_UP_S: u32 = 3;

impl Load {
    fn pgbench(&self) -> Command {
        let mut command = Command::new("pgbench");
        command.args(["-n", "-M", "prepared", "-j", "2", "-c", &self.clients.to_string()]);
        command.args(["-f", "authorization/pipeline.sql"]).current_dir(paths::client("pgbench"));
        command.envs(self.address.environment("holdfast"));
        command
    }

    /// Runs that many transactions. Returns how many there were (a multiple of the clients) and the seconds they took.
    pub fn transactions(&self, count: u64) -> anyhow::Result<(u64, f64)> {
        let each = count.div_ceil(self.clients);
        let began = Instant::now();
        super::run(self.pgbench().args(["-t", &each.to_string()]))?;
        Ok((each * self.clients, began.elapsed().as_secs_f64()))
    }

    /// The rate alone, then while that dump is made.
    pub fn with(&self, dumper: &dyn Dumper) -> anyhow::Result<Rates> {
        // It is killed when the dump is done.
        let mut bench = self.pgbench();
        bench.args(["-T", "86400", "-P", "1"]).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut bench = Bench(bench.spawn().context("starting pgbench")?);
        let mut lines = bench.lines()?;
        for _ in 0..WARM_UP_S {
            lines.next_rate()?;
        }
        let without = (0..self.seconds).map(|_| lines.next_rate()).collect::<anyhow::Result<Vec<_>>>()?;
        let began = Instant::now();
        dumper.full_dump()?;
        let dump_seconds = began.elapsed().as_secs_f64();
        let during =
            (0..dump_seconds.max(1.0) as u64).map(|_| lines.next_rate()).collect::<anyhow::Result<Vec<_>>>()?;
        let mean = |rates: &[f64]| rates.iter().sum::<f64>() / rates.len() as f64;
        Ok(Rates { without: mean(&without), during: mean(&during), dump_seconds })
    }
}

/// A pgbench that is killed when it is dropped.
struct Bench(Child);

impl Bench {
    fn lines(&mut self) -> anyhow::Result<Lines> {
        Ok(Lines(BufReader::new(self.0.stderr.take().context("pgbench has no output")?)))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // One that has ended already is what we want.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Lines(BufReader<ChildStderr>);

impl Lines {
    /// The rate of the next second, from `progress: 5.0 s, 8123.9 tps, lat 4.9 ms stddev 1.2`.
    fn next_rate(&mut self) -> anyhow::Result<f64> {
        let mut line = String::new();
        loop {
            line.clear();
            ensure!(self.0.read_line(&mut line)? > 0, "pgbench ended");
            if let Some(rate) = rate_of(&line) {
                return Ok(rate);
            }
        }
    }
}

fn rate_of(line: &str) -> Option<f64> {
    line.strip_prefix("progress: ")?.split(", ").nth(1)?.strip_suffix(" tps")?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn reads_a_line_of_progress() {
        let line = "progress: 5.0 s, 8123.9 tps, lat 4.9 ms stddev 1.2, 0 failed\n";
        assert_eq!(super::rate_of(line), Some(8123.9));
        assert_eq!(super::rate_of("pgbench: error\n"), None);
    }
}
