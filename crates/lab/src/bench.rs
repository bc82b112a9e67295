//! Measures one configuration: its peak at each client count, then rising offered load around that peak.

use crate::drive::{self, Span, Target};
use crate::interrupt;
use crate::machine;
use crate::progress::Progress;
use crate::results::Point;
use crate::schedule::{Load, ladder};
use crate::text;
use std::path::Path;

/// A configuration that can be put under load.
pub trait Bench {
    /// Offers `load` for `span`; `epoch` is a number no earlier call on the same data has used.
    fn measure(&mut self, load: Load, span: Span, epoch: u64) -> anyhow::Result<Point>;
}

/// How long and with how many clients.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seconds: f64,
    pub clients: Vec<usize>,
}

/// Points in a ladder, about: for planning the time.
const LADDER_POINTS: usize = 10;
/// Kept free on the disk, at most: short runs keep less.
const RESERVE_BYTES_MAX: u64 = 2 << 30;
/// Room one authorization may take: rows, indexes, log or trail, all copies of pages in flight.
const BYTES_A_TRANSACTION: f64 = 6_000.0;
/// Rate assumed for room before one is known.
const RATE_UNKNOWN: f64 = 60_000.0;

impl Plan {
    /// Seconds one configuration takes, about.
    pub fn seconds_planned(&self) -> f64 {
        self.seconds * (self.clients.len() + LADDER_POINTS) as f64
    }

    fn clients_max(&self) -> usize {
        self.clients.iter().copied().max().unwrap_or(1)
    }

    /// Runs the peaks and the ladder. `dir` is where the data grows, `name` what the person waiting is shown.
    pub fn run(
        &self,
        bench: &mut dyn Bench,
        name: &str,
        dir: &Path,
        progress: &Progress,
    ) -> anyhow::Result<(Vec<Point>, Vec<Point>)> {
        let span = Span::of(self.seconds);
        let mut epoch = 0;
        let mut one = |load: Load, rate: f64, what: String| -> anyhow::Result<Point> {
            interrupt::check()?;
            let reserve_bytes = machine::reserve_bytes(self.seconds, RESERVE_BYTES_MAX);
            machine::require_free(dir, reserve_bytes + (rate * self.seconds * BYTES_A_TRANSACTION) as u64)?;
            progress.now(what);
            epoch += 1;
            let point = bench.measure(load, span, epoch)?;
            progress.advance(self.seconds);
            Ok(point)
        };
        let mut peaks = Vec::new();
        for &clients in &self.clients {
            peaks.push(one(
                Load::Closed { clients },
                RATE_UNKNOWN,
                format!("{name}: as fast as {clients} clients go"),
            )?);
        }
        let peak = peaks.iter().map(|p| p.completed_rate).fold(0.0, f64::max);
        let rates = ladder(peak);
        progress.plan(self.seconds * (rates.len() as f64 - LADDER_POINTS as f64));
        let mut points = Vec::new();
        for rate in rates {
            let what = format!("{name}: {} a second offered", text::number(rate));
            points.push(one(Load::open(rate, self.clients_max()), rate, what)?);
        }
        Ok((peaks, points))
    }
}

/// A configuration in this process.
pub struct InProcess<'a>(pub &'a dyn Target);

impl Bench for InProcess<'_> {
    fn measure(&mut self, load: Load, span: Span, epoch: u64) -> anyhow::Result<Point> {
        let measured = drive::drive(self.0, load, span, epoch)?;
        Ok(measured.point(load, None))
    }
}

impl drive::Measured {
    /// As a point of the results.
    pub fn point(&self, load: Load, server_cpu_us: Option<f64>) -> Point {
        let offered_rate = match load {
            Load::Open { rate, .. } => Some(rate),
            Load::Closed { .. } => None,
        };
        Point {
            offered_rate,
            clients: load.clients(),
            // Requests that piled up in the warm-up may be answered in the measured time on top of its own.
            completed_rate: self.completed_rate.min(offered_rate.unwrap_or(f64::MAX)),
            response: self.response,
            waiting: self.waiting,
            syncs_per_transaction: self.syncs_per_request,
            server_cpu_us,
        }
    }
}
