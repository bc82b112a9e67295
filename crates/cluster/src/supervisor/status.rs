//! What the supervisor knows, as JSON for `holdfast cluster status`.

use super::Supervisor;
use crate::moment::boot_ns;
use crate::page::{Progress, ServerState};
use crate::process::Stat;
use holdfast_control::{ControlPlane, Mastership, NodeId};
use serde_json::{Value, json};

impl Supervisor {
    pub(super) fn status(&self) -> Value {
        let record = self.control.record();
        let text = |node: &NodeId| node.to_string();
        let page = self.pages.current().filter(|page| !page.is_closed());
        json!({
            "cluster": self.cluster.name,
            "node": text(&self.node),
            "witness": self.role == holdfast_control::Role::Witness,
            "supervisor": { "pid": std::process::id(), "since_unix_ms": self.started_unix_ms, "missing": self.pulse.scheduling().missing },
            "server": self.server_status(),
            "nodes": self.cluster.nodes.keys().map(text).collect::<Vec<_>>(),
            "leader": self.leader().as_ref().map(text),
            "record": record.as_ref().map(|record| json!({
                "epoch": record.epoch.0,
                "master": record.master.as_ref().map(text),
                "successor": record.successor().as_ref().map(text),
                "serving": matches!(record.mastership, Mastership::Serving { .. }),
                "sync_set": record.sync_set.members().iter().map(text).collect::<Vec<_>>(),
                "frozen": record.frozen,
                "lease_ms": record.lease.lease_ms,
            })),
            "lease": page.map(|page| json!({
                "epoch": page.epoch().0,
                "left_ms": page.remaining().as_millis() as u64,
                "least_left_ms": self.pulse.least_left().map(|left| left.as_millis() as u64),
            })),
        })
    }

    fn server_status(&self) -> Value {
        let (server, starts, waits, lacks, is_connected) = {
            let state = self.state.lock();
            let (waits, lacks) = (state.waits.clone(), state.lacks.clone());
            (state.server.clone(), state.starts, waits, lacks, state.connection.is_some())
        };
        let Some(server) = server else { return json!({ "state": "none", "starts": starts, "waits": waits }) };
        // A page that is not there yet is of a server that has just been started.
        let progress = Progress::open(self.dir.path()).ok().filter(|progress| progress.server() == server.identity);
        let stat = Stat::of(server.identity.pid).ok().flatten();
        let state = match (&stat, progress.as_ref().map(Progress::state)) {
            (None, _) => "ended",
            (Some(stat), _) if stat.is_ending() => "ending",
            (Some(stat), _) if stat.is_stopped() => "stopped",
            (_, Some(ServerState::Ready)) => "running",
            (_, Some(ServerState::Stopping)) => "stopping",
            (_, Some(ServerState::Starting) | None) => "starting",
        };
        let age_ms = |since: u64| boot_ns().saturating_sub(since) / 1_000_000;
        json!({
            "state": state,
            "pid": server.identity.pid,
            "since_unix_ms": server.since_unix_ms,
            "adopted": server.is_adopted,
            "connected": is_connected,
            "lacks": lacks,
            "starts": starts,
            "tick_age_ms": progress.as_ref().map(|progress| age_ms(progress.tick_ns())),
            "sync_age_ms": progress.as_ref().and_then(Progress::sync_began_ns).map(age_ms),
            "trail": progress.as_ref().and_then(Progress::trail).map(|(epoch, lsn)| json!({ "epoch": epoch, "durable_lsn": lsn })),
        })
    }
}
