//! The state of replication, for `pg_stat_replication` and similar views, and for `holdfast standby status`.
//!
//! Failure: none; a server that changes its role has nothing to show.

use crate::archiver::Archiver;
use crate::control::Control;
use crate::following::Following;
use crate::mirror_view::{MIRROR_SLOT, MirrorView};
use crate::old_master::OldMaster;
use crate::report::ReplicationReport;
use holdfast_engine::Engine;
use holdfast_standby::{Hub, LinkPhase};
use holdfast_types::Lsn;
use holdfast_types::{ArchiveRow, LinkRow, StandbyRow};
use parking_lot::RwLock;
use serde_json::json;
use std::sync::{Arc, Weak};

/// The sources of the status, while the server has a role.
#[derive(Default)]
pub struct ReplicationStatus {
    role: RwLock<Option<Role>>,
}

struct Role {
    name: String,
    engine: Engine,
    hub: Weak<Hub>,
    following: Option<Arc<Following>>,
    control: Option<Arc<Control>>,
    mirror: Option<Arc<dyn MirrorView>>,
    archiving: Option<Arc<Archiver>>,
    old_master: Option<Arc<OldMaster>>,
}

impl ReplicationStatus {
    pub fn set(
        &self,
        name: &str,
        engine: &Engine,
        hub: &Arc<Hub>,
        following: Option<Arc<Following>>,
        control: Option<Arc<Control>>,
        archiving: Option<Arc<Archiver>>,
    ) {
        let (name, hub) = (name.to_owned(), Arc::downgrade(hub));
        let role =
            Role { name, engine: engine.clone(), hub, following, control, mirror: None, archiving, old_master: None };
        *self.role.write() = Some(role);
    }

    /// The mirror of a server whose role was set.
    pub fn set_mirror(&self, mirror: Arc<dyn MirrorView>) {
        self.role.write().iter_mut().for_each(|role| role.mirror = Some(mirror.clone()));
    }

    /// The master that a server whose role was set has replaced.
    pub fn set_old_master(&self, old_master: Arc<OldMaster>) {
        self.role.write().iter_mut().for_each(|role| role.old_master = Some(old_master.clone()));
    }

    pub fn clear(&self) {
        *self.role.write() = None;
    }

    /// Everything below is visible to readers.
    pub fn visible(&self) -> Lsn {
        self.role.read().as_ref().map_or(Lsn(0), |role| role.engine.applied())
    }

    pub fn report(&self) -> ReplicationReport {
        let role = self.role.read();
        let Some(role) = role.as_ref() else { return ReplicationReport::default() };
        let trail = role.engine.trail();
        ReplicationReport {
            in_recovery: role.engine.is_standby(),
            epoch: trail.epoch().0,
            durable_lsn: trail.durable().0,
            applied_lsn: role.engine.applied().0,
            link: role.following.as_ref().map(|f| link_report(f, &role.engine)),
            mirror: role.mirror.as_ref().map(|mirror| mirror.row()),
            standbys: role.hub.upgrade().map(|hub| standby_states(&hub, &role.engine)).unwrap_or_default(),
            archive: role.archiving.as_ref().map(|archiving| archiving.report()),
        }
    }

    /// Databases that cannot be opened because their file does not exist.
    fn missing_files(&self) -> Vec<serde_json::Value> {
        let role = self.role.read();
        let missing = role.as_ref().map(|role| role.engine.missing_files()).unwrap_or_default();
        missing.into_iter().map(|of| json!({ "database": of.name, "file": of.path })).collect()
    }

    /// The bytes of a base copy: the sizes of the databases' files.
    fn databases_bytes(&self) -> u64 {
        let role = self.role.read();
        let files = role.as_ref().map(|role| role.engine.databases()).unwrap_or_default();
        files.iter().filter_map(|file| std::fs::metadata(&file.path).ok()).map(|file| file.len()).sum()
    }

    /// The status as JSON, for `holdfast standby status`.
    pub fn json(&self) -> String {
        let s = self.report();
        let name = self.role.read().as_ref().map(|role| role.name.clone()).unwrap_or_default();
        let gate = self.role.read().as_ref().map(|role| role.engine.gate()).unwrap_or_default();
        let control = self.role.read().as_ref().and_then(|role| role.control.as_ref().map(|control| control.shown()));
        let mirror = self.role.read().as_ref().and_then(|role| role.mirror.as_ref().map(|mirror| mirror.json()));
        let standbys: Vec<_> = s.rows().map(|standby| standby_json(standby, s.durable_lsn)).collect();
        let old_master =
            self.role.read().as_ref().and_then(|role| role.old_master.as_ref().and_then(|old| old.warning()));
        let deposed = self.role.read().as_ref().is_some_and(|role| role.engine.is_deposed());
        let role = match (s.in_recovery, deposed) {
            (true, _) => "standby",
            (false, true) => "deposed",
            (false, false) => "master",
        };
        let link = s.link.as_ref().map(|l| {
            json!({
                "master": l.master, "state": l.state, "master_durable_lsn": l.master_durable_lsn,
                "behind_bytes": l.follows.then(|| l.master_durable_lsn.saturating_sub(s.applied_lsn)),
                "behind_ms": l.behind_ms.filter(|_| l.follows),
                "error": l.error,
            })
        });
        json!({
            "name": name,
            "role": role,
            "deposed": deposed,
            "epoch": s.epoch,
            "durable_lsn": s.durable_lsn,
            "applied_lsn": s.applied_lsn,
            "commits_waiting": gate.batches,
            "held": gate.held,
            "old_master": old_master,
            "control": control,
            "databases_bytes": self.databases_bytes(),
            "missing_files": self.missing_files(),
            "mirror": mirror,
            "standbys": standbys,
            "link": link,
            "archive": s.archive.as_ref().map(archive_json),
        })
        .to_string()
    }
}

fn archive_json(a: &ArchiveRow) -> serde_json::Value {
    json!({
        "place": a.place, "state": a.state, "archived_lsn": a.archived_lsn, "archived_count": a.archived,
        "failed_count": a.failed, "last_error": a.last_error, "waiting_bytes": a.waiting_bytes,
        "keep_bytes_max": a.keep_bytes_max,
    })
}

fn standby_json(s: &StandbyRow, durable_lsn: u64) -> serde_json::Value {
    // A boxcar is shipped while it is still being written here.
    let end = durable_lsn.max(s.sent_lsn.filter(|_| s.connected).unwrap_or_default());
    json!({
        "name": s.name, "connected": s.connected, "state": s.state, "synchronous": s.synchronous,
        "sent_lsn": s.sent_lsn, "received_lsn": s.received_lsn, "durable_lsn": s.durable_lsn,
        "applied_lsn": s.applied_lsn, "lag_bytes": s.lag_bytes(end), "ahead_bytes": s.ahead_bytes(end),
        "apply_bytes_per_s": s.apply_bytes_per_s, "delay_us": s.delay_us, "reason": s.reason,
    })
}

fn link_report(following: &Following, engine: &Engine) -> LinkRow {
    let (state, why) = match following.phase() {
        LinkPhase::Connecting => ("connecting", None),
        LinkPhase::Pairing { .. } => ("pairing", None),
        LinkPhase::Following { .. } => ("following", None),
        LinkPhase::Waiting { why, .. } => ("waiting", Some(why)),
    };
    // The master reports only what it has sent; where its trail ended when this node connected is known from the greeting.
    let reported = following.master_durable();
    let to = match following.phase() {
        LinkPhase::Following { to, .. } => reported.max(to),
        _ => reported,
    };
    LinkRow {
        master: following.master(),
        state: state.to_owned(),
        master_durable_lsn: to.0,
        behind_ms: (reported == to).then(|| following.behind_ms()),
        follows: state == "following",
        error: engine.apply_failure().or(why),
    }
}

/// The connected standbys, and those away for which the trail is kept.
fn standby_states(hub: &Hub, engine: &Engine) -> Vec<StandbyRow> {
    let mut rows = connected_states(hub);
    for slot in engine.slots() {
        // The mirror has a row of its own.
        if slot.name == MIRROR_SLOT || rows.iter().any(|row| row.name == slot.name) {
            continue;
        }
        // The slot's position is that of its segment, so the standby may have more.
        let has = hub.end_of(&slot.name).map(|lsn| lsn.0);
        rows.push(away(slot.name, has, slot.lsn, engine.trail().end().0));
    }
    rows
}

/// A standby that is away: how much it has applied is not known. `has`: the end of its trail at the last contact.
fn away(name: String, has: Option<u64>, kept_from: Lsn, end: Lsn) -> StandbyRow {
    let ahead = has.map_or(0, |has| has.saturating_sub(end.0));
    let (state, reason) = match has {
        Some(has) if ahead > 0 => (
            "ahead",
            format!(
                "{name} has {ahead} bytes of trail that this server lacks, up to LSN {}: this server's directory may have been \
                 put back from an older copy, or another server was the master. What clients were answered may be in it",
                Lsn(has)
            ),
        ),
        Some(_) => ("away", String::new()),
        None => (
            "away",
            format!(
                "{name} has not been connected since this server started; the trail is kept for it from LSN {kept_from} on"
            ),
        ),
    };
    StandbyRow {
        name,
        state: state.to_owned(),
        reason,
        sent_lsn: has,
        received_lsn: has,
        durable_lsn: has,
        ..StandbyRow::default()
    }
}

fn connected_states(hub: &Hub) -> Vec<StandbyRow> {
    let governed = hub.governed();
    let row = |s: holdfast_standby::hub::StandbyReport| {
        let g = governed.iter().find(|g| g.standby == s.name);
        let client = s.address.rsplit_once(':').and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
        StandbyRow {
            client,
            connected: true,
            state: if s.lag_bytes.is_some_and(|lag| lag < STREAMING_BYTES) { "streaming" } else { "catchup" }
                .to_owned(),
            since_us: None,
            sent_lsn: Some(s.sent_lsn),
            received_lsn: s.received_lsn,
            durable_lsn: s.durable_lsn,
            applied_lsn: s.applied_lsn,
            synchronous: s.priority.is_some(),
            priority: s.priority.map_or(0, |p| u32::try_from(p).unwrap_or(u32::MAX).saturating_add(1)),
            apply_bytes_per_s: g.and_then(|g| g.rate_bytes_per_s).unwrap_or_default(),
            delay_us: g.map_or(0, |g| g.delay_us),
            reason: g.map_or_else(String::new, |g| format!("{:?}", g.state).to_lowercase()),
            acked_us: None,
            name: s.name,
        }
    };
    hub.standbys().into_iter().map(row).collect()
}

/// A standby with a smaller lag counts as streaming, not as catching up.
const STREAMING_BYTES: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_with_more_than_this_server_is_shown_as_ahead() {
        let ahead = away("b".to_owned(), Some(500), Lsn(100), Lsn(400));
        assert_eq!((ahead.state.as_str(), ahead.durable_lsn, ahead.connected), ("ahead", Some(500), false));
        assert!(
            ahead.reason.starts_with("b has 100 bytes of trail that this server lacks, up to LSN"),
            "{}",
            ahead.reason
        );
        let equal = away("b".to_owned(), Some(400), Lsn(100), Lsn(400));
        assert_eq!((equal.state.as_str(), equal.reason.as_str()), ("away", ""));
        let unknown = away("b".to_owned(), None, Lsn(100), Lsn(400));
        assert_eq!((unknown.state.as_str(), unknown.durable_lsn), ("away", None));
        assert!(unknown.reason.contains("has not been connected since this server started"), "{}", unknown.reason);
    }

    #[test]
    fn a_standby_never_lags_behind_what_it_was_sent_before_it_was_written_here() {
        let row = StandbyRow { connected: true, sent_lsn: Some(900), applied_lsn: Some(700), ..StandbyRow::default() };
        assert_eq!(standby_json(&row, 800)["lag_bytes"], 200, "shipped while it is still being written here");
        let away = StandbyRow { connected: false, ..row };
        assert_eq!(standby_json(&away, 800)["lag_bytes"], 100);
    }
}
