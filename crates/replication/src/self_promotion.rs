//! A standby that the record names as the successor promotes itself, and tries again as long as it is named. The table is in
//! `control/takeover.rs`.
//!
//! Failure: what refuses the promotion is logged once, and it is tried again; the group names another successor, or the cause
//! passes. The operator's promotion and this one exclude each other.

use crate::node_service::NodeService;
use crate::role::{Promotion, RoleEvent};
use holdfast_control::{Basis, Position};
use holdfast_standby::Refusal;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The pause between two attempts.
const RETRY: Duration = Duration::from_millis(100);
/// The pause before a standby that the record calls the master names itself: its last promotion has failed.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// Promotes this standby whenever the record names it, until the role ends.
pub async fn promote_when_named(service: Arc<NodeService>, mut stop: watch::Receiver<bool>) {
    let Some(control) = service.control.clone() else { return };
    let mut records = control.records();
    let mut reported = String::new();
    loop {
        records.borrow_and_update();
        let attempt = async {
            let Some(basis) = control.own_promotion() else { return Ok(false) };
            if basis == Basis::Starts {
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            promote(&service, basis).await.map(|()| true)
        };
        let attempt = tokio::select! {
            biased;
            // What the group agrees on meanwhile, this node finds when it starts again.
            _ = stop.wait_for(|stop| *stop) => return,
            attempt = attempt => attempt,
        };
        let is_refused = match attempt {
            // The role ends now.
            Ok(true) => return,
            Ok(false) => false,
            Err(refusal) => {
                let text = refusal.to_string();
                if reported != text {
                    tracing::warn!("this standby is named as the successor, and its promotion was refused: {text}");
                    reported = text;
                }
                true
            }
        };
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(RETRY), if is_refused => {}
            changed = records.changed(), if !is_refused => if changed.is_err() { return },
        }
    }
}

/// Lets the group promote this node, and ends the role: the server opens again as the master.
async fn promote(service: &NodeService, basis: Basis) -> Result<(), Refusal> {
    let (Some(control), Some(following)) = (&service.control, &service.following) else { return Ok(()) };
    service.can_be_promoted(following)?;
    let _promoting = service.promoting.begin()?;
    let trail = service.engine.trail();
    let end = Position { epoch: trail.epoch(), lsn: trail.durable().0 };
    let epoch = control.promote(end, false, basis).await.map_err(|error| {
        Refusal::new(holdfast_standby::Reason::NotSafe, error.to_string(), "It tries again as long as it is named")
    })?;
    tracing::warn!("{} is named as the successor and becomes the master of epoch {epoch}", service.name);
    // No operator waits for the answer.
    let (reply, _) = std::sync::mpsc::channel();
    let promotion = Promotion { epoch: Some(epoch), accepted_loss: None, replaced: None, reply };
    // An error: the server is stopping; its lease is given up with it.
    drop(service.events.send(RoleEvent::Promote(promotion)));
    service.promoting.role_ends();
    Ok(())
}
