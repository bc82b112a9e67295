//! The paper's governor as an option: while a standby lags, commits wait for it at a higher level than they ask for, so that
//! each client is slowed down to its pace.
//!
//! What is asked for is never lowered, and nothing is raised while too few standbys are here: commits that asked for nothing
//! would wait for somebody who is away.

use super::Notify;
use holdfast_engine::Engine;
use holdfast_standby::Hub;
use holdfast_standby::governor::raise::Raised;
use holdfast_types::Level;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Between two looks at the lag.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Raises and lowers until `stop`. `lag_bytes_max`: the bound of the lag; 0: there is none, and nothing is raised.
pub async fn raise_levels(
    hub: Arc<Hub>,
    engine: Engine,
    lag_bytes_max: u64,
    notify: Notify,
    mut stop: watch::Receiver<bool>,
) {
    let (mut raised, began) = (Raised::at(Level::Cold), Instant::now());
    if lag_bytes_max == 0 {
        return;
    }
    loop {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let lag = hub.standbys().iter().filter(|s| s.priority.is_some() && s.counts).filter_map(|s| s.lag_bytes).max();
        let next = match lag.filter(|_| hub.is_in_sync()) {
            Some(lag) => {
                let share = lag as f64 / lag_bytes_max as f64;
                raised.next(Level::Cold, share, began.elapsed().as_micros() as u64)
            }
            None => Raised::at(Level::Cold),
        };
        if next.level != raised.level {
            engine.set_level_floor(next.level);
            notify.tell(&match next.level {
                Level::Cold => "commits are raised no more: the standbys have caught up".to_owned(),
                level => format!("commits wait for at least level {level} now, as a standby lags"),
            });
        }
        raised = next;
    }
}
