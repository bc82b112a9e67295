//! Received boxcars on their way to the standby's disk, bounded in bytes.

use std::sync::Arc;

use holdfast_trail::Shipped;
use parking_lot::Mutex;
use tokio::sync::Notify;

pub struct Queue {
    bytes_max: usize,
    state: Mutex<State>,
    filled: Notify,
    emptied: Notify,
}

#[derive(Default)]
struct State {
    boxcars: Vec<Shipped>,
    bytes: usize,
    closed: bool,
}

impl Queue {
    pub fn new(bytes_max: usize) -> Arc<Queue> {
        let state = Mutex::default();
        Arc::new(Queue { bytes_max, state, filled: Notify::new(), emptied: Notify::new() })
    }

    /// Waits for room, then adds the boxcar; an empty queue has room for any boxcar. If the future is dropped while it
    /// waits, the boxcar is not in the queue.
    pub async fn push(&self, boxcar: Shipped) {
        let bytes = boxcar.bytes.len();
        loop {
            {
                let mut state = self.state.lock();
                if state.boxcars.is_empty() || state.bytes + bytes <= self.bytes_max {
                    state.bytes += bytes;
                    state.boxcars.push(boxcar);
                    self.filled.notify_one();
                    return;
                }
            }
            self.emptied.notified().await;
        }
    }

    /// Takes everything in the queue; `None` if it is closed and empty.
    pub async fn take(&self) -> Option<Vec<Shipped>> {
        loop {
            {
                let mut state = self.state.lock();
                if !state.boxcars.is_empty() {
                    state.bytes = 0;
                    self.emptied.notify_one();
                    return Some(std::mem::take(&mut state.boxcars));
                }
                if state.closed {
                    return None;
                }
            }
            self.filled.notified().await;
        }
    }

    /// Closes the queue for new boxcars. What is in it can still be taken.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_one();
    }
}
