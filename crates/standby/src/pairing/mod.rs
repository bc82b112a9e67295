//! Pairing: may this standby follow this master, and from where. Pure; the link asks and answers ([`crate::receive`]).
//!
//! First who they are ([`check`]; both sides do it, each on what the other says of itself):
//!
//! | finding | outcome |
//! |---|---|
//! | trail ids differ | refused: other trail |
//! | the master writes a format that the standby does not know | refused: format |
//! | the standby knows a newer format than the master writes | paired |
//! | segment sizes differ | refused: segment size |
//! | the standby knows a newer epoch than the master's | refused: deposed |
//! | otherwise | paired |
//!
//! Then where ([`place`]; the standby, by asking whether the master has boxcars with its checksums):
//!
//! | the standby's trail ends with | the master | databases hold | outcome |
//! |---|---|---|---|
//! | a boxcar | has it | | start there |
//! | a boxcar | has recycled it | | refused: gone |
//! | a boxcar | has not; has the one that ends at C | nothing behind C | cut back to C, then start there |
//! | a boxcar | has not; has the one that ends at C | something behind C | refused: diverged |
//! | a boxcar | has not, nor any that the standby has | | refused: diverged |
//! | less than its base copy needs | has the end that the copy was taken at | | start there |
//! | less than its base copy needs | has not that end | | refused: diverged, the copy is of a history that is gone |
//! | less than its base copy needs | has recycled that end | | refused: gone |
//!
//! A standby may hold a tail that its master has lost in a power cut: boxcars are shipped while they are being written.
//! Nobody was told of such a tail, and it is not applied before the master has said that it is durable, so it is cut off;
//! the trail saves it aside first. What was applied is never cut here: `holdfast rejoin` does that, and writes it down.

mod bisection;
#[cfg(test)]
mod tests;

pub use bisection::Bisection;

use holdfast_types::Lsn;

use crate::identity::{Identity, Tip};
use crate::message::Answer;
use crate::refusal::{Reason, Refusal};

const NEW_COPY: &str = "Take a new base copy into an empty directory with: holdfast standby create";

/// Whether what the two nodes are lets one follow the other.
pub fn check(standby: &Identity, master: &Identity) -> Result<(), Refusal> {
    if standby.trail_id != master.trail_id {
        let message = format!(
            "the standby's trail is {}, the master's {}: they are not copies of one another",
            standby.trail_id, master.trail_id
        );
        let advice = format!("Check the master's address. If it is right: {NEW_COPY}");
        return Err(Refusal::new(Reason::OtherTrail, message, advice));
    }
    if standby.format < master.format {
        let message = format!(
            "the master writes boxcars in format {}, the standby knows formats up to {}",
            master.format, standby.format
        );
        return Err(Refusal::new(Reason::Format, message, "Upgrade the standby's program first, then the master's"));
    }
    if standby.segment_bytes != master.segment_bytes {
        let message = format!(
            "the standby's segments are {} bytes long, the master's {}",
            standby.segment_bytes, master.segment_bytes
        );
        return Err(Refusal::new(Reason::SegmentSize, message, NEW_COPY));
    }
    if standby.epoch > master.epoch {
        let message = format!(
            "the standby has seen epoch {}, the server it would follow is of epoch {}: that server was deposed",
            standby.epoch, master.epoch
        );
        let advice = "Let the standby follow the new master; bring the deposed server back with: holdfast rejoin";
        return Err(Refusal::new(Reason::Deposed, message, advice));
    }
    Ok(())
}

/// What the standby found out about its own end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The databases are a base copy, and the trail does not reach the end that it was taken at yet. This is that end,
    /// and the master's answer about it; what the trail holds, the master has.
    Copied { anchor: Tip, answer: Answer },
    /// The master has the standby's last boxcar.
    Continues,
    /// The master has recycled so much that it cannot say, or cannot send what follows.
    Gone,
    /// The last boxcar that both have ends at `common`; `None`: there is none.
    Forked { common: Option<Tip> },
}

/// Where to go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    Start(Tip),
    /// Cut the standby's trail at this end, then start there.
    CutBack(Tip),
    Refused(Refusal),
}

/// Judges a finding. `applied`: something below it may be in the standby's databases, or was durable at a master.
pub fn place(tip: Tip, applied: Lsn, finding: Finding) -> Place {
    let diverged = |message: String, advice: &str| Place::Refused(Refusal::new(Reason::Diverged, message, advice));
    match finding {
        Finding::Continues | Finding::Copied { answer: Answer::Yes, .. } => Place::Start(tip),
        Finding::Copied { anchor, answer: Answer::No } => diverged(
            format!(
                "the base copy was taken at {anchor}, which the master does not have: its history has changed since"
            ),
            NEW_COPY,
        ),
        Finding::Gone | Finding::Copied { answer: Answer::Gone, .. } => Place::Refused(gone(tip.lsn)),
        Finding::Forked { common: None } => diverged(
            format!("the standby's trail ends at {tip}; master and standby have no boxcar in common"),
            NEW_COPY,
        ),
        Finding::Forked { common: Some(common) } if applied <= common.lsn => Place::CutBack(common),
        Finding::Forked { common: Some(common) } => diverged(
            format!(
                "the standby's trail ends at {tip}, its databases hold changes up to LSN {applied}; with the master it \
                 agrees up to LSN {} only",
                common.lsn
            ),
            "Set what the master does not have aside and follow it with: holdfast rejoin",
        ),
    }
}

/// The master no longer keeps what follows `lsn`.
pub fn gone(lsn: Lsn) -> Refusal {
    let message = format!("the standby needs the trail from LSN {lsn} on; the master has recycled that part");
    let advice = format!("{NEW_COPY}. To keep more for a standby that is away, raise standby_keep_bytes_max");
    Refusal::new(Reason::Gone, message, advice)
}
