//! What commits do while the standbys that they wait for are away.
//!
//! | `synchronous_standby_away` | enough of them connected | too few, for `standby_timeout_ms` |
//! |---|---|---|
//! | wait | commits wait for acks | commits wait |
//! | go_on | commits wait for acks | the operator is told; commits wait no longer, at any level, until enough are back |
//!
//! Either way the operator is told when the state changes.

use super::Notify;
use crate::config::Away;
use holdfast_engine::Engine;
use holdfast_standby::Hub;
use holdfast_types::Level;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// While commits go on without standbys they are let through as often as this.
const LET_THROUGH_EVERY: Duration = Duration::from_millis(2);

/// Watches over the sync set until `stop`.
pub async fn watch_sync_set(
    hub: Arc<Hub>,
    engine: Engine,
    away: Away,
    after: Duration,
    notify: Notify,
    mut stop: watch::Receiver<bool>,
) {
    // A server that starts has no standby yet; that is no news.
    let (mut alone_since, mut told_away, mut was_in_sync) = (Instant::now(), false, false);
    loop {
        let in_sync = hub.is_in_sync();
        if in_sync && !was_in_sync {
            notify.tell("enough standbys are here: commits wait for their acknowledgements");
            told_away = false;
        }
        if !in_sync && was_in_sync {
            alone_since = Instant::now();
        }
        was_in_sync = in_sync;
        let is_away = !in_sync && alone_since.elapsed() >= after;
        if is_away && !told_away {
            told_away = true;
            notify.tell(match away {
                Away::Wait => "too few standbys are here: commits above level local wait for them",
                Away::GoOn => "too few standbys are here: commits go on WITHOUT them, at level local",
            });
        }
        let goes_on = is_away && away == Away::GoOn;
        if goes_on {
            engine.reached(Level::Commit, engine.trail().durable());
        }
        tokio::select! {
            () = tokio::time::sleep(if goes_on { LET_THROUGH_EVERY } else { LOOK_EVERY }) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}
