//! Orders to a running link, from an operator or from the link that replaces it.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// What the rest of the hub requests from a running link.
#[derive(Default)]
pub(crate) struct Orders {
    order: Mutex<Option<Order>>,
    pub(crate) given: Notify,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// Send everything, then stop in order.
    Stop,
    /// The standby has reconnected.
    Replaced,
}

impl Orders {
    pub(super) fn give(&self, order: Order) {
        *self.order.lock() = Some(order);
        self.given.notify_one();
    }

    pub(crate) fn get(&self) -> Option<Order> {
        *self.order.lock()
    }
}
