//! What a master does beside serving clients: waits for slow standbys, heeds the lease and the sync set, raises levels.
//!
//! Failure: these tasks tell of what fails and go on; they end with the role.

use super::Place;
use crate::config::LevelName;
use crate::mirror::Mirror;
use crate::replication::{InSync, Notify, SyncWatch, raise_levels};
use holdfast_engine::Engine;
use holdfast_standby::Hub;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Each boxcar waits as long as the slowest of the standbys and the mirror makes it.
pub(super) fn heed_governors(engine: &Engine, hub: &Arc<Hub>, mirror: Option<&Mirror>) {
    let (governed, behind) = (Arc::downgrade(hub), mirror.map(Mirror::delay));
    let delay = move |bytes| {
        let standbys = governed.upgrade().map_or(Duration::ZERO, |hub| hub.charge(bytes));
        behind.as_ref().map_or(standbys, |behind| behind(bytes).max(standbys))
    };
    engine.set_delay(Arc::new(delay));
}

/// What a master does beside serving clients: heeds the lease and the sync set.
pub(super) fn lead(
    place: &Place,
    links: &tokio::runtime::Handle,
    engine: &Engine,
    hub: &Arc<Hub>,
    in_sync: Arc<InSync>,
    notify: Notify,
    stopping: &watch::Receiver<bool>,
) -> Vec<JoinHandle<()>> {
    let Place { config, control, .. } = place;
    let mut tasks = Vec::new();
    if let Some(control) = control {
        tasks.push(links.spawn(control.clone().watch(engine.clone(), hub.clone(), notify.clone(), stopping.clone())));
    }
    let watch = SyncWatch {
        hub: hub.clone(),
        in_sync,
        engine: engine.clone(),
        control: control.clone(),
        quorum: control.as_ref().and_then(|control| control.quorum(&hub.sync_set())),
        away: config.synchronous_standby_away,
        is_asked_for: !config.synchronous_standby_names.trim().is_empty() || config.level != LevelName::Local,
        after: Duration::from_millis(config.standby_timeout_ms),
        notify,
    };
    tasks.push(links.spawn(watch.run(stopping.clone())));
    if config.level_raising {
        let (hub, engine, stopping) = (hub.clone(), engine.clone(), stopping.clone());
        let notify = Notify::new(config.notify_command.clone());
        tasks.push(links.spawn(raise_levels(hub, engine, config.standby_lag_bytes_max, notify, stopping)));
    }
    tasks
}
