//! Gives the key of the cluster to the pulse thread when the group has one: it is in the record from the founding on.
//!
//! Failure: a group that an earlier release has founded has none; its lease is renewed in the log.

use super::Supervisor;
use holdfast_control::ControlPlane;
use std::sync::Arc;

/// Waits for the key. Ends when the pulse thread has it.
pub async fn keep(supervisor: Arc<Supervisor>) {
    let mut records = supervisor.control.watch();
    let key = |record: &Option<Arc<holdfast_control::Record>>| record.as_ref().and_then(|it| it.pulse_key.clone());
    // An error: the control plane has ended, and the process with it.
    if let Ok(record) = records.wait_for(|record| key(record).is_some()).await
        && let Some(key) = key(&record)
    {
        supervisor.pulse.use_key(key);
    }
}
