//! The mirror's state, for views and commands.

use crate::directory::NAME;
use crate::records::RecordState;
use crate::state::{MirrorState, Phase};
use holdfast_replication::MirrorView;
use holdfast_standby::Hub;
use holdfast_types::StandbyRow;
use serde_json::json;
use std::sync::Arc;

/// How the mirror is.
pub struct MirrorStatus {
    shared: Arc<MirrorState>,
    hub: Arc<Hub>,
}

impl MirrorStatus {
    pub fn new(shared: Arc<MirrorState>, hub: Arc<Hub>) -> MirrorStatus {
        MirrorStatus { shared, hub }
    }

    fn what_commits_do(&self, phase: &Phase) -> String {
        match phase {
            Phase::Refused { .. } => "nothing is acknowledged".to_owned(),
            Phase::InService => "commits wait for both disks".to_owned(),
            Phase::Away { why } if self.shared.waits() => format!("commits WAIT for the mirror: {why}"),
            Phase::Away { why } => format!("commits continue WITHOUT the mirror: {why}"),
            _ if self.shared.waits() => "commits WAIT for the mirror".to_owned(),
            _ => "commits continue WITHOUT the mirror".to_owned(),
        }
    }
}

impl MirrorView for MirrorStatus {
    // It never counts as synchronous, a word for other nodes.
    fn row(&self) -> StandbyRow {
        let phase = self.shared.phase();
        let report = self.hub.standbys().into_iter().next();
        let governed = self.hub.governed().into_iter().next();
        let of = |lsn: Option<u64>| lsn.unwrap_or_default();
        // The mirror reports what it has earlier than its acks do.
        let has = self.shared.has().0;
        StandbyRow {
            name: NAME.to_owned(),
            connected: matches!(phase, Phase::CatchingUp | Phase::InService),
            state: phase.name().to_owned(),
            sent_lsn: Some(of(report.as_ref().map(|r| r.sent_lsn)).max(has)),
            received_lsn: Some(of(report.as_ref().and_then(|r| r.received_lsn)).max(has)),
            durable_lsn: Some(has),
            applied_lsn: report.as_ref().and_then(|r| r.applied_lsn),
            apply_bytes_per_s: of(governed.as_ref().and_then(|g| g.rate_bytes_per_s)),
            delay_us: of(governed.as_ref().map(|g| g.delay_us)),
            reason: self.what_commits_do(&phase),
            ..StandbyRow::default()
        }
    }

    fn json(&self) -> serde_json::Value {
        let (phase, record) = (self.shared.phase(), self.shared.record());
        let why = match &phase {
            Phase::Away { why } | Phase::Refused { why } => Some(why.clone()),
            _ => None,
        };
        let copied = match phase {
            Phase::Copying { compared_bytes, total_bytes } => Some(json!([compared_bytes, total_bytes])),
            _ => None,
        };
        json!({
            "directory": self.shared.setup.mirror.display().to_string(), "state": phase.name(),
            "commits_wait": self.shared.waits(), "commits": self.what_commits_do(&phase), "why": why,
            "copied_of_bytes": copied, "durable_lsn": self.shared.has().0,
            "has_everything": record.state == RecordState::InService,
            "left_behind_at_lsn": (record.state == RecordState::LeftBehind).then_some(record.lsn),
            "distrusted": record.distrusted,
        })
    }
}
