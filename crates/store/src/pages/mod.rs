//! Page versions: many readers, each on its snapshot, one writer, and a file that lags behind.
//!
//! The writer publishes the pages of each batch as snapshot N. A reader takes the newest *visible* snapshot when its
//! transaction begins (RULE 27) and sees exactly that until it ends. A page's versions form a [`chain`]: in memory,
//! spilled to [`scratch`], or in the database file, which holds at most one version of each page.
//!
//! | happens | then |
//! |---|---|
//! | publish N | new versions go to the end of their chains; versions that no snapshot can read are dropped |
//! | set_visible N: N is durable and has reached its level | new readers start at N |
//! | more pages in memory than allowed | clean ones are dropped, others go to scratch, a few at each publish |
//! | checkpoint of C | for every page to be overwritten the file's version is saved first if an older snapshot needs it |
//! | scratch beyond its limit | the oldest snapshot is expired: its next read fails (SQLSTATE 72000) |
//!
//! Failure: a page of the file that has a wrong checksum or cannot be read is a [`ReadError`] and is logged with file
//! and offset; nothing is repaired silently.

mod adopt;
mod chain;
pub mod checksum;
mod page;
pub mod scratch;
mod sizes;
mod snapshots;
mod store;

pub use adopt::{ChangeWatch, CopiedPages};
pub use page::{PAGE_BYTES, Page, RESERVED_BYTES, offset_of};
pub use sizes::{Sizes, sizes};
pub use store::{CheckpointSet, Limits, PageStats, PageStore, ReadError, Staged};
