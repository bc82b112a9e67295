//! The return of a server whose node is no longer the master, under a supervisor: it makes its directory a standby's by itself,
//! where the rules of [`rejoin_by_itself`] permit it, and continues as a standby.
//!
//! | found | then |
//! |---|---|
//! | no master serves, or it cannot be reached | the server waits, and refuses clients |
//! | a master that has everything | it is followed |
//! | commits that only this server has, and that were never acknowledged above local | saved as lost-LSN.sql, with an event |
//! | anything that an operator has to decide | nothing is changed; the server ends with the cause, and looks again at its next start |
//!
//! Failure: a return that is cut short at any step is repeated by the next start.

use crate::replication_settings::HoldfastToml;
use holdfast_replication::{Control, CopyTo, RejoinError, Rejoined, ServingMaster, rejoin_by_itself};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The pause after a failed attempt.
const RETRY: Duration = Duration::from_secs(1);

/// What came of it.
pub(super) enum Returned {
    /// The directory is a standby's.
    Standby,
    /// This node is the group's last master again.
    IsMaster,
    Failed(RejoinError),
}

/// Returns to the master that serves, when there is one.
pub(super) async fn come_back(control: Arc<Control>, dir: PathBuf, name: String) -> Returned {
    let (mut reported, mut warned) = (false, false);
    loop {
        let Some(master) = control.master_to_return_to().await else { return Returned::IsMaster };
        if !std::mem::replace(&mut reported, true) {
            tracing::info!("{} is the master of epoch {}: {name} returns as its standby", master.node, master.epoch);
        }
        let (to, own, from) = (dir.clone(), name.clone(), master.clone());
        let returned = tokio::task::spawn_blocking(move || {
            let to = CopyTo { dir: &to, name: &own };
            rejoin_by_itself(&from.link, to, &HoldfastToml, &|_| {}, from.terms)
        });
        match returned.await {
            Ok(Ok(rejoined)) => {
                tell(&control, &master, &dir, &rejoined);
                return Returned::Standby;
            }
            Ok(Err(error)) if may_pass(&error) => {
                if !std::mem::replace(&mut warned, true) {
                    tracing::warn!("this server waits for {} at {} to return to: {error}", master.node, master.link);
                }
            }
            Ok(Err(error)) => {
                control.returned(false, &format!("{name} does not return to {} by itself: {error}", master.node));
                return Returned::Failed(error);
            }
            Err(panicked) => tracing::error!("the return to {} has failed: {panicked}", master.node),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// The master may be starting, or another one be agreed on.
fn may_pass(error: &RejoinError) -> bool {
    matches!(
        error,
        RejoinError::Ask(_) | RejoinError::Link { .. } | RejoinError::NoMaster { .. } | RejoinError::Copy(_)
    )
}

fn tell(control: &Control, master: &ServingMaster, dir: &Path, rejoined: &Rejoined) {
    let (node, link) = (master.node, &master.link);
    let copied = match rejoined.copied_bytes {
        Some(bytes) => format!("; the databases were copied again, {bytes} bytes"),
        None => String::new(),
    };
    let text = match &rejoined.lost {
        Some((lsn, path, transactions)) => format!(
            "{} returned as a standby of {node} at {link}, which has another history from LSN {lsn} on: {transactions} transactions \
             that only this server had are in {}{copied}",
            dir.display(),
            path.display()
        ),
        None => format!(
            "{} returned as a standby of {node} at {link}, which has everything that this server had{copied}",
            dir.display()
        ),
    };
    match rejoined.lost {
        Some(_) => tracing::warn!("{text}"),
        None => tracing::info!("{text}"),
    }
    control.returned(true, &text);
}
