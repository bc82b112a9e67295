//! The boxcars of the trail from a position on, in order, for one feed.
//!
//! | the feed is at a position | it is read from |
//! |---|---|
//! | that the trail has | the trail |
//! | that the trail has recycled | the archive, a segment at a time, until the trail has the next one |
//! | that neither has | nowhere: 55000 |
//!
//! The trail may recycle what a feed is about to read, and what the archive was read for may be followed by more that was recycled
//! meanwhile: the place is looked for again whenever one of the two ends. Each boxcar has to begin where the one before it ended and
//! name its checksum, so nothing is left out or read twice at the passage from one to the other.
//!
//! Failure: the error; a later feed begins again.

use super::Feeds;
use super::archived::ArchivedBoxcars;
use holdfast_trail::{Shipped, ShippedReader, TrailError};
use holdfast_types::{Lsn, SqlError, SqlResult, SqlState};

/// See the module.
pub struct Boxcars<'a> {
    feeds: &'a Feeds,
    from: From,
    /// The next boxcar begins there, and names this checksum, unless none was read yet.
    at: Lsn,
    checksum: Option<u32>,
}

enum From {
    Trail(ShippedReader),
    Archive(ArchivedBoxcars),
}

impl<'a> Boxcars<'a> {
    pub fn new(feeds: &'a Feeds, at: Lsn) -> SqlResult<Boxcars<'a>> {
        Ok(Boxcars { feeds, from: find(feeds, at)?, at, checksum: None })
    }

    /// The next boxcar; `None` until there is one.
    pub fn next(&mut self) -> SqlResult<Option<Shipped>> {
        loop {
            let next = match &mut self.from {
                From::Trail(reader) => match reader.next() {
                    None => return Ok(None),
                    Some(Err(TrailError::Gone { .. })) => None,
                    Some(read) => Some(read.map_err(unreadable)?),
                },
                From::Archive(boxcars) => boxcars.next()?,
            };
            match next {
                Some(boxcar) => return self.follows(boxcar).map(Some),
                None => self.from = find(self.feeds, self.at)?,
            }
        }
    }

    fn follows(&mut self, boxcar: Shipped) -> SqlResult<Shipped> {
        if boxcar.lsn != self.at || self.checksum.is_some_and(|last| boxcar.previous_checksum != last) {
            let message = format!(
                "the boxcar read at LSN {} does not follow the one before it, which ends at LSN {}",
                boxcar.lsn, self.at
            );
            return Err(SqlError::new(SqlState::IO_ERROR, message));
        }
        (self.at, self.checksum) = (boxcar.end, Some(boxcar.checksum));
        Ok(boxcar)
    }
}

/// What has a position.
fn find(feeds: &Feeds, at: Lsn) -> SqlResult<From> {
    match (feeds.engine.trail().read_shipped(at), &feeds.archive) {
        (Err(TrailError::Gone { first, .. }), Some(archive)) => match archive.segment(&feeds.engine, at)? {
            Some(boxcars) => Ok(From::Archive(boxcars)),
            None => Err(gone(at, first, true)),
        },
        (Err(TrailError::Gone { first, .. }), None) => Err(gone(at, first, false)),
        (reader, _) => reader.map(From::Trail).map_err(unreadable),
    }
}

fn gone(at: Lsn, first: Lsn, is_archived: bool) -> SqlError {
    let message = format!("the feed needs the trail from LSN {at} on; {}", super::lacking(first, is_archived));
    SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
}

fn unreadable(error: TrailError) -> SqlError {
    SqlError::new(SqlState::IO_ERROR, format!("the trail cannot be read: {error}"))
}
