//! Finds the position to continue from: the standby asks the master, and [`crate::pairing`] judges the answers.
//!
//! Failure: an invalid answer ends the link; nothing here changes either trail.

use holdfast_seams::BLOCK_BYTES;
use holdfast_trail::Trail;
use holdfast_types::Lsn;

use crate::error::LinkError;
use crate::identity::Tip;
use crate::link::{Link, Stream};
use crate::message::{Answer, Message};
use crate::pairing::{Bisection, Finding};

/// Asks the master about the end of this trail and, if it does not have it, about the ends before.
pub async fn find<S: Stream>(link: &mut Link<S>, trail: &Trail, anchor: Option<Tip>) -> Result<Finding, LinkError> {
    let tip = tip_of(trail);
    match ask(link, tip).await? {
        Answer::Yes => {}
        Answer::Gone => return Ok(Finding::Gone),
        Answer::No if tip.is_empty() => return Ok(Finding::Forked { common: None }),
        Answer::No => return search(link, trail).await,
    }
    match anchor.filter(|anchor| anchor.lsn > tip.lsn) {
        Some(anchor) => Ok(Finding::Copied { anchor, answer: ask(link, anchor).await? }),
        None => Ok(Finding::Continues),
    }
}

pub fn tip_of(trail: &Trail) -> Tip {
    let (lsn, checksum) = trail.tip();
    Tip { lsn, checksum }
}

async fn ask<S: Stream>(link: &mut Link<S>, tip: Tip) -> Result<Answer, LinkError> {
    match link.ask(&Message::Ask(tip)).await? {
        Message::Answer(answer) => Ok(answer),
        other => Err(LinkError::Unexpected { kind: other.kind(), expected: "an Answer" }),
    }
}

/// Searches first among the ends of segments, then among the boxcars of the segment in which the two trails diverge.
async fn search<S: Stream>(link: &mut Link<S>, trail: &Trail) -> Result<Finding, LinkError> {
    let (first, tip) = (trail.first(), tip_of(trail));
    let segments = segment_ends(trail, first, tip)?;
    let (at, some_gone) = bisect(link, &segments).await?;
    let (from, until) = match at {
        Some(index) => (segments[index].lsn, segments.get(index + 1).copied()),
        None => (first, segments.first().copied()),
    };
    let boxcars = boxcar_ends(trail, from, until.unwrap_or(tip).lsn)?;
    let (within, more_gone) = bisect(link, &boxcars).await?;
    let common = within.map(|index| boxcars[index]).or(at.map(|index| segments[index]));
    if common.is_none() && (some_gone || more_gone) {
        return Ok(Finding::Gone);
    }
    Ok(Finding::Forked { common })
}

/// Finds the last of the ends that the master has, and whether some are older than what it keeps.
async fn bisect<S: Stream>(link: &mut Link<S>, ends: &[Tip]) -> Result<(Option<usize>, bool), LinkError> {
    let mut search = Bisection::over(ends.len());
    let mut gone = false;
    while let Some(index) = search.next() {
        let answer = ask(link, ends[index]).await?;
        gone |= answer == Answer::Gone;
        search.answer(index, answer);
    }
    Ok((search.common(), gone))
}

/// The ends at the beginning of each segment after the first, in order: the first boxcar there names the one before.
fn segment_ends(trail: &Trail, first: Lsn, tip: Tip) -> Result<Vec<Tip>, LinkError> {
    let segment_bytes = trail.segment_bytes();
    let mut ends = Vec::new();
    for segment in first.0 / segment_bytes + 1..=tip.lsn.0 / segment_bytes {
        let lsn = Lsn(segment * segment_bytes + BLOCK_BYTES as u64);
        match trail.read(lsn)?.next().transpose()? {
            Some(boxcar) => ends.push(Tip { lsn, checksum: boxcar.previous_checksum }),
            None => ends.push(tip),
        }
    }
    Ok(ends)
}

/// The ends of the boxcars from `from` up to `until`.
fn boxcar_ends(trail: &Trail, from: Lsn, until: Lsn) -> Result<Vec<Tip>, LinkError> {
    let mut ends = Vec::new();
    for boxcar in trail.read(from)? {
        let boxcar = boxcar?;
        if boxcar.end > until {
            break;
        }
        ends.push(Tip { lsn: boxcar.end, checksum: boxcar.checksum });
    }
    Ok(ends)
}
