//! Runs the configurations behind a socket: starts a server, fills it, drives it with the lab's own client and with
//! pgbench, stops it. One server runs at a time.

use crate::bench::{Bench, Plan};
use crate::configuration::Configuration;
use crate::drive::Span;
use crate::machine;
use crate::pgbench;
use crate::prefill;
use crate::progress::Progress;
use crate::results::{ConfigurationResult, Fact, PgbenchResult, Point};
use crate::schedule::Load;
use crate::server::{Kind, Peer};
use crate::wire_drive::Connections;
use crate::wire_transaction::Variant;
use anyhow::Context;
use std::path::Path;

/// A log of either server and what it adds while it is measured.
const GROWTH_BYTES_MAX: u64 = 4 << 30;

/// What the runs share.
pub struct WireRuns<'a> {
    pub dir: &'a Path,
    pub program: &'a Path,
    pub log_rows: u64,
    pub plan: &'a Plan,
    pub progress: &'a Progress,
}

/// Everything measured at one server.
#[derive(Default)]
pub struct WireResults {
    pub configurations: Vec<ConfigurationResult>,
    pub pgbench: Vec<PgbenchResult>,
}

impl WireRuns<'_> {
    /// Measures `wanted`, all of them configurations of `kind`.
    pub fn run(&self, kind: Kind, wanted: &[Configuration]) -> anyhow::Result<WireResults> {
        // Rows with their indexes, their log or trail, and the same again for growth while measuring.
        let growth_bytes = machine::reserve_bytes(self.plan.seconds, GROWTH_BYTES_MAX);
        machine::require_free(self.dir, 4 * self.log_rows * prefill::LOG_ROW_FILE_BYTES + growth_bytes)?;
        let dir = tempfile::Builder::new().prefix(kind.name()).tempdir_in(self.dir)?;
        let peer = self.start(kind, dir.path()).with_context(|| format!("cannot start {}", kind.name()))?;
        let mut results = WireResults::default();
        for &configuration in wanted {
            let measured = self.measure(&peer, configuration, dir.path());
            results.configurations.push(measured.with_context(|| format!("cannot measure {}", configuration.name()))?);
        }
        self.progress.part("pgbench");
        results.pgbench = pgbench::run(&peer, self.plan.seconds, dir.path(), self.progress)?;
        Ok(results)
    }

    fn start(&self, kind: Kind, dir: &Path) -> anyhow::Result<Peer> {
        self.progress.part(&format!("starting and filling {}", kind.name()));
        let peer = Peer::start(kind, self.program, dir)?;
        peer.load(self.log_rows, &|rows| {
            self.progress.now(format!("filling {}: {rows} of {} log rows", kind.name(), self.log_rows));
        })?;
        Ok(peer)
    }

    fn measure(&self, peer: &Peer, configuration: Configuration, dir: &Path) -> anyhow::Result<ConfigurationResult> {
        self.progress.part(configuration.label());
        let before = peer.log_rows()?;
        let clients = self.plan.clients.iter().copied().max().unwrap_or(1);
        let connections = Connections::open(peer.addr, variant(configuration), clients)?;
        let mut bench = WireBench { peer, connections };
        let (peaks, points) = self.plan.run(&mut bench, configuration.label(), dir, self.progress)?;
        Ok(ConfigurationResult {
            configuration,
            skipped: None,
            settings: settings(peer, configuration),
            log_rows: (before, peer.log_rows()?),
            peaks,
            points,
        })
    }
}

/// Of the server, or of the sessions where they have some of their own.
fn settings(peer: &Peer, configuration: Configuration) -> Vec<Fact> {
    match variant(configuration).options() {
        Some(options) => {
            let version = peer.settings.iter().filter(|f| f.name == "Version").cloned();
            version.chain([Fact::new("Settings", format!("defaults, and in each session {options}"))]).collect()
        }
        None => peer.settings.clone(),
    }
}

fn variant(configuration: Configuration) -> Variant {
    match configuration {
        Configuration::Autotmf => Variant::Automatic,
        Configuration::AuditedWirePipeline | Configuration::PostgresPipeline => Variant::Pipeline,
        _ => Variant::OneMessage,
    }
}

/// A server under the lab's own client.
struct WireBench<'a> {
    peer: &'a Peer,
    connections: Connections,
}

impl Bench for WireBench<'_> {
    fn measure(&mut self, load: Load, span: Span, epoch: u64) -> anyhow::Result<Point> {
        let before = self.peer.usage()?;
        let mut measured = self.connections.drive(load, span, epoch).with_context(|| self.peer.process.log_end())?;
        let (syncs, cpu_us) = self.peer.usage()?.since(&before, measured.answered);
        measured.syncs_per_request = syncs;
        Ok(measured.point(load, cpu_us))
    }
}
