//! What every session is doing, as `pg_stat_activity` shows it.
//!
//! A session records when a message begins and ends, under a short lock of its own that only readers of the view take as well.
//! What it waits for is not recorded: the lock manager is asked when the view is read, and a session that is not active
//! waits for its client.

mod latencies;
mod list;
mod live;
mod session;
mod signal;
mod statements;
mod tables;
mod tally;
mod totals;

pub use list::{Activities, Listed};
pub use live::{EngineSlot, FeedsSlot, SubscriptionsSlot, Watcher};
pub use session::Who;
pub use signal::Signal;
pub use statements::{Cost, Key};
pub use tally::Done;
pub use totals::Totals;
