//! The commit of a large branch: while others write, its images go to the trail as fragments ([`prewrite`]), then they are applied
//! to a side copy ([`SideCopy`]), on a thread that is not the writer's. Then the writer needs milliseconds for it.
//!
//! Failure: none of its own. What could not be done in advance the writer does.

use crate::route::prewrite::prewrite;
use crate::state::database::DatabaseState;
use crate::state::prewritten::Prewritten;
use crate::state::side_copy::{NotCopied, SideCopy};
use std::sync::Arc;

/// What a commit of so many bytes of images does in advance.
#[derive(Clone, Copy)]
pub struct InAdvance {
    sends: bool,
    copies: bool,
}

impl InAdvance {
    pub fn of(database: &DatabaseState, image_bytes: usize) -> InAdvance {
        let options = &database.engine.options;
        InAdvance {
            sends: image_bytes >= options.prewrite_bytes_min,
            copies: image_bytes >= options.side_copy_bytes_min,
        }
    }

    pub fn is_anything(self) -> bool {
        self.sends || self.copies
    }

    /// Returns what the writer needs to commit the images. Sends first: that may take long, and there is one copy at a time.
    pub fn run(self, database: &Arc<DatabaseState>, images: &[u8]) -> (Option<Prewritten>, Option<Box<SideCopy>>) {
        let sent = if self.sends { prewrite(database, images) } else { None };
        let copy = if self.copies { copy_or_report(database, images) } else { None };
        (sent, copy)
    }
}

fn copy_or_report(database: &Arc<DatabaseState>, images: &[u8]) -> Option<Box<SideCopy>> {
    let report =
        |why: NotCopied| tracing::info!(database = database.name, "no side copy of a large transaction: {why}");
    side_copy(database, images).map_err(report).ok()
}

fn side_copy(database: &Arc<DatabaseState>, images: &[u8]) -> Result<Box<SideCopy>, NotCopied> {
    let may_wait = || database.queue.read().is_some();
    let map = database.map();
    let epoch = map.epoch;
    let mut copy = SideCopy::begin(database.volume(), map, database.ids.clone(), &database.side_log, may_wait)?;
    if !database.goes_with(epoch, copy.number()) {
        return Err(NotCopied::Schema);
    }
    copy.apply(images)?;
    copy.catch_up()?;
    Ok(Box::new(copy))
}
