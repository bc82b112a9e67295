//! The tasks of a master besides serving clients: delaying commits for slow standbys, watching the lease and the sync set,
//! raising levels.
//!
//! Failure: the tasks report what fails and continue; they end with the role.

use super::context::ServerContext;
use super::open::Opening;
use holdfast_engine::Engine;
use holdfast_mirror::Mirror;
use holdfast_replication::{InSync, Notify, SyncWatch, keep_acknowledged, raise_levels};
use holdfast_standby::Hub;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Delays each boxcar as long as the slowest of the standbys and the mirror requires.
pub(super) fn set_delay(engine: &Engine, hub: &Arc<Hub>, mirror: Option<&Mirror>) {
    let (governed, behind) = (Arc::downgrade(hub), mirror.map(Mirror::delay));
    let delay = move |bytes| {
        let standbys = governed.upgrade().map_or(Duration::ZERO, |hub| hub.charge(bytes));
        behind.as_ref().map_or(standbys, |behind| behind(bytes).max(standbys))
    };
    engine.set_delay(Arc::new(delay));
}

/// Starts the tasks that watch the lease and the sync set, and raise levels.
pub(super) fn spawn_master_tasks(
    opening: &Opening<'_>,
    engine: &Engine,
    hub: &Arc<Hub>,
    in_sync: Arc<InSync>,
    notify: Notify,
    stopping: &watch::Receiver<bool>,
) -> Vec<JoinHandle<()>> {
    let Opening { context: ServerContext { config, control, .. }, links, events, .. } = opening;
    let mut tasks = Vec::new();
    if let Some(control) = control {
        let watch =
            control.clone().watch(engine.clone(), hub.clone(), notify.clone(), events.clone(), stopping.clone());
        tasks.push(links.spawn(watch));
    }
    let watch = SyncWatch {
        hub: hub.clone(),
        in_sync,
        engine: engine.clone(),
        control: control.clone(),
        quorum: control.as_ref().and_then(|control| control.quorum(&hub.sync_set())),
        away: config.synchronous_standby_away,
        is_wanted: config.names_standbys(),
        after: Duration::from_millis(config.standby_timeout_ms),
        takes_over: opening.promotion.is_some(),
        notify,
    };
    tasks.push(links.spawn(watch.run(stopping.clone())));
    if control.is_some() {
        let dir = opening.context.dir.clone();
        tasks.push(links.spawn(keep_acknowledged(engine.clone(), dir, stopping.clone())));
    }
    if config.level_raising {
        let (hub, engine, stopping) = (hub.clone(), engine.clone(), stopping.clone());
        let notify = Notify::new(config.notify_command.clone());
        tasks.push(links.spawn(raise_levels(hub, engine, config.standby_lag_bytes_max, notify, stopping)));
    }
    tasks
}
