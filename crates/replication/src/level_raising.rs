//! The paper's governor as an option (`level_raising`): while a standby lags, commits wait for it at a higher level than
//! requested, which slows every client down to the standby's pace.
//!
//! A requested level is never lowered. Nothing is raised while too few standbys are connected: commits that requested no
//! standby would wait for one that is away.

use crate::notify::Notify;
use holdfast_engine::Engine;
use holdfast_standby::Hub;
use holdfast_standby::governor::raise::Raised;
use holdfast_types::Level;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How often the lag is checked.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Raises and lowers the level until `stop`. `lag_bytes_max`: the bound of the lag; 0: no bound, and nothing is raised.
pub async fn raise_levels(
    hub: Arc<Hub>,
    engine: Engine,
    lag_bytes_max: u64,
    notify: Notify,
    mut stop: watch::Receiver<bool>,
) {
    let (mut raised, began) = (Raised::at(Level::Local), Instant::now());
    if lag_bytes_max == 0 {
        return;
    }
    loop {
        tokio::select! {
            () = tokio::time::sleep(CHECK_EVERY) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let lag = hub.standbys().iter().filter(|s| s.priority.is_some() && s.counts).filter_map(|s| s.lag_bytes).max();
        let next = match lag.filter(|_| hub.is_in_sync()) {
            Some(lag) => {
                let share = lag as f64 / lag_bytes_max as f64;
                raised.next(Level::Local, share, began.elapsed().as_micros() as u64)
            }
            None => Raised::at(Level::Local),
        };
        if next.level != raised.level {
            engine.set_level_floor(next.level);
            match next.level {
                Level::Local => notify.info("commit levels are no longer raised: the standbys have caught up"),
                level => notify.warn(&format!("commits wait for at least level {level} now, because a standby lags")),
            }
        }
        raised = next;
    }
}
