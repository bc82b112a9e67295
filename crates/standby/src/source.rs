//! The source of the boxcars for one standby: the trail, or the archive for what the trail has recycled.
//!
//! | the standby needs | it is read from |
//! |---|---|
//! | what the trail has | a tap: ahead of the disk |
//! | what is older, and archived | the archive, a segment at a time; then, where the trail has the next one, the tap |
//! | what is older, and not archived | nowhere: refused |
//!
//! While a segment is shipped from the archive, the trail may recycle the next one: then that is also read from the
//! archive. Each boxcar must follow the one before it. One that does not is of another history, and ends the link.

use std::sync::Arc;

use holdfast_trail::{Match, Shipped, Tap, TrailError};
use holdfast_types::Lsn;

use crate::error::LinkError;
use crate::identity::Tip;
use crate::link_server::{Boxcars, LinkServer};
use crate::message::Answer;
use crate::pairing;
use crate::refusal::{Reason, Refusal};

/// Whether the master's trail, or its archive, has a boxcar with that checksum ending there.
pub(crate) async fn answer(master: &dyn LinkServer, tip: Tip) -> Result<Answer, LinkError> {
    let mut found = master.trail().ends_with(tip.lsn, tip.checksum)?;
    if let (Match::Gone, Some(archived)) = (found, master.archived()) {
        found = archived.ends_with(tip.lsn, tip.checksum).await?;
    }
    Ok(match found {
        Match::Yes => Answer::Yes,
        Match::No => Answer::No,
        Match::Gone => Answer::Gone,
    })
}

/// The source of the boxcars for one standby: see the module.
pub(crate) struct Source {
    master: Arc<dyn LinkServer>,
    from: From,
    /// The end of the last boxcar that it returned; the checksum is 0 for a standby that has none yet.
    tip: Tip,
}

enum From {
    Trail(Tap),
    Archive(Box<dyn Boxcars>),
    /// The segment of the archive is used up.
    UsedUp,
}

impl Source {
    /// Begins where the standby's trail ends. That position is checked again here: what the standby reports is not
    /// trusted.
    pub(crate) async fn begin(master: Arc<dyn LinkServer>, start: Tip) -> Result<Source, LinkError> {
        match answer(&*master, start).await? {
            Answer::Yes => {}
            Answer::Gone => return Err(pairing::gone(start.lsn).into()),
            Answer::No => {
                let message =
                    format!("the standby asks to start at {start}, but this trail has no boxcar that ends there");
                return Err(Refusal::new(Reason::Diverged, message, "Let it follow with: holdfast rejoin").into());
            }
        }
        let mut source = Source { master, from: From::UsedUp, tip: start };
        source.go_on().await?;
        Ok(source)
    }

    /// True if there is more, but [`Source::go_on`] has to be called first.
    pub(crate) fn is_used_up(&self) -> bool {
        matches!(self.from, From::UsedUp)
    }

    /// The position of the next boxcar.
    pub(crate) fn position(&self) -> Lsn {
        self.tip.lsn
    }

    /// Opens the tap or the segment that has the next boxcar.
    pub(crate) async fn go_on(&mut self) -> Result<(), LinkError> {
        match self.master.trail().tap(self.tip.lsn) {
            Ok(tap) => self.from = From::Trail(tap),
            Err(TrailError::Gone { .. }) => {
                let Some(archived) = self.master.archived() else { return Err(pairing::gone(self.tip.lsn).into()) };
                let boxcars = archived.boxcars(self.tip.lsn).await?;
                self.from = From::Archive(boxcars.ok_or_else(|| pairing::gone(self.tip.lsn))?);
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The next boxcar; `None` until there is one, or if the segment is used up.
    pub(crate) fn next(&mut self) -> Result<Option<Shipped>, LinkError> {
        let next = match &mut self.from {
            From::Trail(tap) => tap.next(),
            From::Archive(boxcars) => Ok(boxcars.next()?),
            From::UsedUp => return Ok(None),
        };
        let next = match (next, &self.from) {
            (Ok(None), From::Archive(_)) => {
                self.from = From::UsedUp;
                None
            }
            // Recycled since the tap was opened.
            (Err(TrailError::Gone { .. }), _) if self.master.archived().is_some() => {
                self.from = From::UsedUp;
                None
            }
            (next, _) => next?,
        };
        let Some(boxcar) = next else { return Ok(None) };
        let follows = self.tip.checksum == 0 || boxcar.previous_checksum == self.tip.checksum;
        if boxcar.lsn != self.tip.lsn || !follows {
            return Err(LinkError::Chain { lsn: boxcar.lsn });
        }
        self.tip = Tip { lsn: boxcar.end, checksum: boxcar.checksum };
        Ok(Some(boxcar))
    }
}
