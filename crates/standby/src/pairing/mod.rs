//! Pairing: decides whether a standby may follow a master, and from where. It does no I/O; the link asks and answers
//! ([`crate::receive`]).
//!
//! First the identities ([`check`]; each side checks what the other reports about itself):
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
//! Then the position ([`decide`]; the standby asks whether the master has boxcars with its checksums):
//!
//! | the standby's trail ends with | the master | databases hold | outcome |
//! |---|---|---|---|
//! | a boxcar | has it | | start there |
//! | a boxcar | has recycled it | | refused: gone |
//! | a boxcar | does not have it; has the one that ends at C | nothing after C | cut back to C, then start there |
//! | a boxcar | does not have it; has the one that ends at C; wrote the standby's end itself | something after C | refused: the master was rolled back |
//! | a boxcar | does not have it; has the one that ends at C; another node wrote that end, or it is a standby | something after C | refused: diverged |
//! | a boxcar | does not have it; has not met the mastership that wrote the standby's end | something after C | refused: diverged, and nothing advises to cut the standby |
//! | a boxcar | does not have it, nor any other that the standby has | | as if C were the beginning |
//! | less than its base copy needs | has the end that the copy was taken at | | start there |
//! | less than its base copy needs | does not have that end | | refused: diverged, the copy is of a history that no longer exists |
//! | less than its base copy needs | has recycled that end | | refused: gone |
//!
//! A standby may have a tail that its master has lost in a power cut, because boxcars are shipped while they are
//! written. No client has an answer that depends on such a tail, and it is not applied before the master reports that
//! it is durable. So it is cut off; the trail saves it aside first. What was applied is never cut here: `holdfast
//! rejoin` does that, and records it.
//!
//! What is in a standby's databases was durable at the master that wrote it. So a master that wrote it and lacks it has
//! lost what it had: its directory was put back from an older copy, or its disk lied. The standby has the
//! acknowledged commits; it reports that to the master, which acknowledges nothing any more ([`crate::LinkServer::rolled_back`]).

mod bisection;
#[cfg(test)]
mod tests;

pub use bisection::Bisection;

use holdfast_types::{Epoch, Lsn};

use crate::identity::{Identity, Tip};
use crate::mastership::Lineage;
use crate::message::Answer;
use crate::refusal::{Reason, Refusal};

const NEW_COPY: &str = "Take a new base copy into an empty directory with: holdfast standby create";

/// Checks whether the identities of two nodes allow one to follow the other.
pub fn check(standby: &Identity, master: &Identity) -> Result<(), Refusal> {
    if standby.trail_id != master.trail_id {
        let message = format!(
            "the standby's trail is {}, the master's {}: they are not copies of each other",
            standby.trail_id, master.trail_id
        );
        let advice = format!("Check the master's address. If it is correct: {NEW_COPY}");
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
    superseded(master, standby.epoch).map_or(Ok(()), Err)
}

/// The refusal of a master that was deposed: the standby knows an epoch that is newer than the master's.
pub fn superseded(master: &Identity, newest: Epoch) -> Option<Refusal> {
    if newest <= master.epoch {
        return None;
    }
    let message = format!(
        "the standby has seen epoch {newest}, but the server to follow has epoch {}: that server was deposed",
        master.epoch
    );
    let advice = "Let the standby follow the new master; make the deposed server a standby with: holdfast rejoin";
    Some(Refusal::new(Reason::Deposed, message, advice))
}

/// What the standby found out about the end of its trail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The databases are a base copy, and the trail does not yet reach the end at which the copy was taken. `anchor` is
    /// that end, `answer` the master's answer about it; the master has what the trail contains.
    Copied { anchor: Tip, answer: Answer },
    /// The master has the standby's last boxcar.
    Continues,
    /// The master has recycled so much that it cannot answer, or cannot send what follows.
    Gone,
    /// The last boxcar that both have ends at `common`; `None` if there is none.
    Forked { common: Option<Tip> },
}

/// What the standby does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    Start(Tip),
    /// Cut the standby's trail at this end, then start there.
    CutBack(Tip),
    Refused(Refusal),
}

/// Decides from a finding. Changes below `applied` may be in the standby's databases, or were durable at a master. `lineage`: how
/// the master belongs to the end of the standby's trail ([`crate::Standby::lineage`]).
pub fn decide(tip: Tip, applied: Lsn, finding: Finding, lineage: Lineage) -> Decision {
    let diverged = |message: String, advice: &str| Decision::Refused(Refusal::new(Reason::Diverged, message, advice));
    match finding {
        Finding::Continues | Finding::Copied { answer: Answer::Yes, .. } => Decision::Start(tip),
        Finding::Copied { anchor, answer: Answer::No } => diverged(
            format!(
                "the base copy was taken at {anchor}, which the master does not have: its history has changed since"
            ),
            NEW_COPY,
        ),
        Finding::Gone | Finding::Copied { answer: Answer::Gone, .. } => Decision::Refused(gone(tip.lsn)),
        Finding::Forked { common: Some(common) } if applied <= common.lsn => Decision::CutBack(common),
        Finding::Forked { common } if lineage == Lineage::WroteIt && applied > Lsn(0) => {
            Decision::Refused(rolled_back(applied, common))
        }
        Finding::Forked { common: Some(common) } if lineage == Lineage::Unknown => diverged(
            format!(
                "the standby has what was durable at its master up to LSN {applied}, and the server to follow has the same only up \
                 to LSN {}; that server has not met the master that this standby followed last",
                common.lsn
            ),
            "This standby may be the only one that has acknowledged commits. Compare the two servers, and promote the one whose \
             commits count. What the other one has beyond the common end is lost if it is made a standby",
        ),
        Finding::Forked { common: None } => diverged(
            format!("the standby's trail ends at {tip}; master and standby have no boxcar in common"),
            NEW_COPY,
        ),
        Finding::Forked { common: Some(common) } => diverged(
            format!(
                "the standby's trail ends at {tip} and its databases have changes up to LSN {applied}, but it agrees with \
                 the master only up to LSN {}",
                common.lsn
            ),
            "The master is of a newer epoch. If it was promoted without --accept-divergence, it has every commit that was \
             acknowledged above level local: set aside what only this standby has, and follow it, with: holdfast rejoin. \
             Otherwise compare the two first: rejoin keeps this standby's commits in a file and takes them out of the database",
        ),
    }
}

/// The refusal of a master that lacks what it had made durable itself.
fn rolled_back(applied: Lsn, common: Option<Tip>) -> Refusal {
    let common =
        common.map_or_else(|| "nothing of it".to_owned(), |tip| format!("the same only up to LSN {}", tip.lsn));
    let message = format!(
        "this standby has what was durable at the master up to LSN {applied}, and the master has {common}, of what it wrote itself: \
         the master's directory was put back from an older copy, or its disk has lost what it had synced"
    );
    let advice = "This standby has the acknowledged commits: stop the master, promote this standby (holdfast promote --at \
                  HOST:PORT), then bring the old master back with: holdfast rejoin. Do not rejoin this standby";
    Refusal::new(Reason::RolledBack, message, advice)
}

/// The refusal when the master no longer keeps what follows `lsn`.
pub fn gone(lsn: Lsn) -> Refusal {
    let message = format!("the standby needs the trail from LSN {lsn} on, but the master has recycled that part");
    let advice = format!("{NEW_COPY}. To keep more trail for a disconnected standby, raise standby_keep_bytes_max");
    Refusal::new(Reason::Gone, message, advice)
}
