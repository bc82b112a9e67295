//! `holdfast cluster switchover`: a person lets another node take over from a master that serves.
//!
//! | step | by |
//! |---|---|
//! | the planner checks the node and how much it lacks | the asked supervisor |
//! | Depose for it, on the record that was looked at | the group; a renewal in between repeats the check |
//! | sessions end after their answers, the standby gets the rest, the lease is released | the old master's server |
//! | it is promoted | the named node, as in a failover |
//! | it becomes a standby | the old master's server |
//!
//! Failure: a successor that is not promoted in time is replaced, by the old master if need be. The command then says which node is
//! the master.

use super::Supervisor;
use super::events::Kind;
use super::failover::view;
use crate::message::Switched;
use crate::planner::switchover;
use holdfast_control::{
    ByPulses, ControlError, ControlPlane, Heard, Mastership, NodeId, Position, Record, Refusal, Sight,
};
use std::time::{Duration, Instant};

/// How often the record may move between the look at it and the Depose: each renewal moves it.
const ATTEMPTS_MAX: usize = 20;
/// How long the promotion may take.
const PROMOTED_MAX: Duration = Duration::from_secs(30);

impl Supervisor {
    /// Returns when the other node is the master.
    pub(super) async fn switchover(&self, to: Option<&str>) -> Result<Switched, ControlError> {
        let began = Instant::now();
        let (old, successor) = self.name(to).await?;
        let master = old.master.map_or_else(String::new, |master| master.to_string());
        let text = format!("a switchover from {master} to {successor} was asked for, in epoch {}", old.epoch);
        self.events.add(Kind::Switchover, text);
        let mut records = self.control.watch();
        let serves = records.wait_for(|record| {
            let serves = |record: &Record| matches!(record.mastership, Mastership::Serving { .. });
            record.as_ref().is_some_and(|record| record.epoch > old.epoch && serves(record))
        });
        let now = tokio::time::timeout(PROMOTED_MAX, serves).await.ok().and_then(Result::ok);
        let now = now.as_deref().cloned().flatten();
        match now.and_then(|record| Some((record.master?, record.epoch))) {
            Some((node, epoch)) if node == successor => {
                Ok(Switched { node, epoch: epoch.0, ms: began.elapsed().as_millis() as u64 })
            }
            Some((node, epoch)) => {
                Err(refused(format!("{successor} did not take over; {node} is the master of epoch {epoch}")))
            }
            None => Err(refused(format!(
                "{successor} was named, and is not the master after {PROMOTED_MAX:?}; see holdfast cluster explain"
            ))),
        }
    }

    /// Names the successor; the record before that, and the node.
    async fn name(&self, to: Option<&str>) -> Result<(Record, NodeId), ControlError> {
        let mut asked_for: Option<(Record, NodeId)> = None;
        for _ in 0..ATTEMPTS_MAX {
            let record = self.control.look().await?;
            // The answer of an earlier attempt may have been lost, which then moved the record itself.
            if let Some(done) = asked_for.take_if(|(before, successor)| is_done(before, *successor, &record)) {
                return Ok(done);
            }
            let successor = self.successor(&record, to).await?;
            match self.control.hand_over(&record, successor).await {
                Ok(()) => return Ok((record, successor)),
                Err(ControlError::Refused(Refusal::Moved { .. })) => asked_for = Some((record, successor)),
                Err(error) => return Err(error),
            }
        }
        Err(refused(format!("the group's record has changed during each of {ATTEMPTS_MAX} attempts; try again")))
    }

    async fn successor(&self, record: &Record, to: Option<&str>) -> Result<NodeId, ControlError> {
        let heard = self.control.heard(record.clone()).await?;
        let tip = match record.master.and_then(|master| heard.get(&master)) {
            Some(Heard::Tip(tip)) => Some(Position { epoch: tip.epoch, lsn: tip.lsn }),
            _ => None,
        };
        let (record, leader) = (record.clone(), self.node);
        let by_pulses = ByPulses::default();
        let (silent_ms, undecided, late_ms, restarts_first) = (None, None, 0, None);
        let sight = Sight { record, leader, silent_ms, undecided, late_ms, restarts_first, heard, by_pulses };
        let chosen = switchover(&view(&sight, &self.cluster.database.nodes), tip, to);
        chosen.map_err(refused)
    }
}

/// Whether the group has named this node since that record.
fn is_done(before: &Record, successor: NodeId, now: &Record) -> bool {
    let is_named = now.epoch == before.epoch && now.successor() == Some(successor);
    is_named || now.epoch > before.epoch && now.master == Some(successor)
}

fn refused(text: String) -> ControlError {
    ControlError::Reported { sqlstate: "55000".to_owned(), text }
}
