//! The server's own backups: it dumps itself and tries its dumps, as `[dump]` and `[drill]` in `holdfast.toml` say.
//!
//! The work is done by child processes, which run the same commands as an operator would: `holdfast dump create`, `forget` and
//! `drill`, over a link to this server. A drill applies trail with an engine of its own, whose failed write ends its process:
//! that must not be the server's. A child that the server starts ends with the role, and is killed with the server's process.
//!
//! | file | what |
//! |---|---|
//! | [`schedule`] | when is what due, and what becomes of it |
//! | [`command`] | a child process |
//! | [`record`] | the file `backups.json`: what was done last, over restarts |
//! | [`report`] | what views and metrics show |
//!
//! Failure: a dump that fails is logged, counted, reported by `notify_command` and tried again with growing pauses. A drill that
//! fails is reported in the same way, with the objects that it names.

mod command;
mod record;
mod report;
mod schedule;

pub use command::SCHEDULED_BY;
pub use record::dump_soon;
pub use report::BackupReport;
pub use schedule::{Backups, Role};
