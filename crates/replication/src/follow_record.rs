//! A standby that belongs to a control plane follows the master that the group has agreed on: after a promotion the standbys
//! of the old master change over by themselves, without `holdfast standby configure` and without a restart.
//!
//! | the node at the address in `standby.toml` | the record's master | what is done |
//! |---|---|---|
//! | is the record's master, by the name in its greeting | | nothing, whatever other address it reports |
//! | is another node | reports where it takes links | `standby.toml` names that address, and the link is made there |
//! | has not been reached since this server started | reports the same address | nothing |
//! | has not been reached, and one attempt has failed | reports another address | as for another node |
//! | is another node | cannot be reached, or reports nothing (an older release) | tried again |
//!
//! The record counts only while its master serves (not while it is being deposed), and not if this standby's trail has seen a
//! newer epoch.
//!
//! Failure: without a majority the record may be old; then the standby follows the master before, which gets no lease. A
//! `standby.toml` that cannot be written is reported, and the standby changes over all the same: its next start repeats it.

use crate::control::Control;
use crate::following::Following;
use crate::link_address::is_same;
use holdfast_control::NodeId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The pause before a master that could not be reached is asked again.
const RETRY: Duration = Duration::from_millis(500);

/// Lets `following` follow the master that the group agrees on, until `stop`.
pub async fn follow_record(control: Arc<Control>, following: Arc<Following>, mut stop: watch::Receiver<bool>) {
    let mut records = control.records();
    let mut reported = None;
    loop {
        records.borrow_and_update();
        let master = control.master_to_follow(following.epoch());
        let asked = async {
            match master {
                Some(master) => !follows(&control, &following, master, &mut reported).await,
                None => false,
            }
        };
        // A role that ends does not wait for an answer.
        let pending = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            pending = asked => pending,
        };
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(RETRY), if pending => {}
            // Renewals of the lease are changes, too. The sender lives as long as the control plane.
            _ = records.changed(), if !pending => {}
        }
    }
}

/// Makes this standby follow that master. False: it does not know yet how. `reported`: the master of which that was reported.
async fn follows(control: &Control, following: &Following, master: NodeId, reported: &mut Option<NodeId>) -> bool {
    let is_there = following.is_at(master.as_str());
    if is_there == Some(true) {
        return true;
    }
    let why = match control.link_of(master).await {
        Ok(Some(address)) => {
            let from = following.master();
            match is_there {
                // A proxy, or another name: one attempt shows which node is there.
                None if !is_same(&from, &address) => return false,
                Some(false) if !is_same(&from, &address) => following.change_over(master.as_str(), &address),
                _ => {}
            }
            return true;
        }
        Ok(None) => {
            "it does not report where it takes links; name its address with: holdfast standby configure".to_owned()
        }
        Err(error) => error.to_string(),
    };
    if reported.replace(master) != Some(master) {
        tracing::warn!(target: "holdfast::receive", "{master} is the master that the group agrees on, but this standby cannot follow it yet: {why}");
    }
    false
}
