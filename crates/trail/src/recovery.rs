//! Recovery: finds where the trail ends, and whether everything before that can be trusted.
//!
//! The trail is walked from the first segment that the control file names, boxcar by boxcar. Each boxcar is checked
//! against its checksum, its proof and the boxcar before it; a boxcar that passes is *sound*. *Proven* is the highest
//! position known to be durable, from the control file and from every sound boxcar (each was written after everything
//! before it was durable). The walk stops at the first position P where there is no sound boxcar. Then the rest of that
//! segment and all later segments are searched for *evidence*: a sound boxcar of the current incarnation whose proof
//! reaches beyond P.
//!
//! | # | found | verdict |
//! |---|---|---|
//! | 0 | this process has closed the trail in order, and no process has opened it since ([`crate::closed`]) | the end is known: rows 6 to 18 are skipped |
//! | 1 | no control file, no segments | a new trail is made |
//! | 2 | no control file, segments | refused: the control file is missing |
//! | 3 | control file of incarnation 0 | its creation was interrupted: created again, nothing was ever appended |
//! | 4 | control file damaged, or of a newer format | refused |
//! | 5 | two files for one segment number | refused |
//! | 6 | the segment the walk needs is missing | damage: refused |
//! | 7 | its header is damaged, names another segment, or its size is wrong | damage: refused |
//! | 8 | its header names another trail, or a newer format | refused |
//! | 9 | a segment before the control file's first | an interrupted recycling: becomes a spare |
//! | 10 | sound boxcar | accepted |
//! | 11 | sound segment end | the walk continues in the next segment, which must exist |
//! | 12 | boxcar of a newer format at P, unless P is proven and only the format is wrong (a damaged bit: 13, 14) | refused |
//! | 13 | no sound boxcar at P, P below proven | damage: refused |
//! | 14 | no sound boxcar at P, evidence after it | damage: refused |
//! | 15 | a boxcar claims P but is not sound; no evidence | torn tail: cut |
//! | 16 | nothing claims P, zero-filled segment, data after P; no evidence | torn tail: cut |
//! | 17 | nothing claims P, recycled segment; no evidence | the end: the bytes there are the segment's earlier content; a tail as in row 16 when sound boxcars of the current incarnation follow P |
//! | 18 | nothing but zeros from P on | the end |
//! | 19 | later segments, none of them evidence | become spares; zeroed first when there was a cut |
//!
//! A boxcar at or after the position where the current incarnation began is not sound if an older incarnation wrote it:
//! it survived a cut. One sync is in flight at a time, so an unproven tail is at most one write and contains nothing
//! acknowledged beyond what rows 13 and 14 detect. The last boxcar before an idle period is proven by an empty boxcar.
//!
//! A trail that follows another one may write several boxcars at once, and a power cut may then leave a later one whole
//! and an earlier one torn. All boxcars of a write carry the position that was durable before it. So the whole one
//! proves nothing about the torn one, which is cut off with it (rows 15, 16 and 17). Boxcars of one write are in one
//! segment. The epoch of a boxcar is never above the control file's, because a follower raises that one first.

use std::path::PathBuf;

use holdfast_seams::Disk;
use holdfast_types::{Epoch, Lsn};

use crate::boxcar::{self, BoxcarKind, Flaw, Head, Last};
use crate::control::Control;
use crate::cursor::SegmentCursor;
use crate::error::TrailError;
use crate::layout::{BLOCK, Layout};
use crate::survey::Survey;

/// The result for a trail that can be opened.
#[derive(Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The oldest position that can be read.
    pub first: Lsn,
    /// Position of the next boxcar.
    pub end: Lsn,
    /// The last sound boxcar, if there is one.
    pub last: Option<Last>,
    /// Number of bytes to cut off after `end`; 0 when the trail ends cleanly.
    pub torn_bytes: u64,
}

/// Applies the table to a trail that has a control file of incarnation 1 or later (rows 6 to 18).
pub fn judge(disk: &dyn Disk, survey: &Survey, control: &Control) -> Result<Verdict, TrailError> {
    let layout = Layout { segment_bytes: control.segment_bytes };
    let mut walk = Walk::new(disk, survey, control, layout).run()?;
    let search = search(disk, survey, control, layout, &walk)?;
    // In the unproven tail the safer verdict is kept: otherwise it would be cut.
    let needed = walk.end < walk.proven.max(search.proven);
    if needed && matches!(walk.flaw, Flaw::Newer(_)) && walk.cursor.version_is_rotten(layout.offset_of(walk.end))? {
        walk.flaw = Flaw::Checksum;
    }
    let damaged = |proven: Lsn, what: String| TrailError::Damaged {
        file: walk.cursor.path.clone(),
        offset: layout.offset_of(walk.end),
        lsn: walk.end,
        proven,
        what,
    };
    let flaw = walk.flaw;
    let torn_bytes = match flaw {
        // Row 12
        Flaw::Newer(found) => {
            let (file, known) = (walk.cursor.path.clone(), boxcar::FORMAT_VERSION);
            return Err(TrailError::Newer { file, found, known });
        }
        // Row 13
        _ if walk.end < walk.proven => return Err(damaged(walk.proven, flaw.to_string())),
        // Row 14
        _ if search.proven > walk.end => {
            let what =
                format!("{flaw}, but a later boxcar at LSN {} proves that this one was acknowledged", search.evidence);
            return Err(damaged(search.proven, what));
        }
        // Row 15
        Flaw::Length(_) | Flaw::Checksum | Flaw::Proof | Flaw::Chain | Flaw::Incarnation(_) => {
            search.rest_bytes.max(search.claimed_bytes).max(BLOCK)
        }
        // Rows 16, 17 and 18: in a recycled segment only boxcars of the current incarnation count
        Flaw::Zero | Flaw::NoBoxcar | Flaw::EndOfFile => search.rest_bytes.max(search.claimed_bytes),
    };
    let first = layout.first_lsn(control.first_segment);
    Ok(Verdict { first, end: walk.end, last: walk.last, torn_bytes })
}

/// The state of the walk: how far the sound boxcars reach.
struct Walked {
    cursor: SegmentCursor,
    end: Lsn,
    flaw: Flaw,
    last: Option<Last>,
    proven: Lsn,
    recycled: bool,
}

struct Walk<'a> {
    disk: &'a dyn Disk,
    survey: &'a Survey,
    control: &'a Control,
    layout: Layout,
    previous: Option<Head>,
    proven: Lsn,
}

impl<'a> Walk<'a> {
    fn new(disk: &'a dyn Disk, survey: &'a Survey, control: &'a Control, layout: Layout) -> Walk<'a> {
        Walk { disk, survey, control, layout, previous: None, proven: control.proven }
    }

    fn run(mut self) -> Result<Walked, TrailError> {
        let mut segment = self.control.first_segment;
        loop {
            let (mut cursor, recycled) = self.enter(segment)?;
            let mut offset = BLOCK;
            let flaw = loop {
                let lsn = self.layout.lsn(segment, offset);
                match cursor.boxcar(offset)?.and_then(|(head, _)| self.fits(&head).map(|()| head)) {
                    Err(flaw) => break Some(flaw),
                    Ok(head) => {
                        // Row 10
                        self.proven = self.proven.max(head.proven).max(lsn);
                        self.previous = Some(head);
                        offset += head.disk_bytes();
                        if head.kind == BoxcarKind::SegmentEnd {
                            break None;
                        }
                    }
                }
            };
            if let Some(flaw) = flaw {
                let (end, proven) = (self.layout.lsn(segment, offset), self.proven);
                let last = self.previous.map(|head| Last { checksum: head.checksum, epoch: head.epoch });
                return Ok(Walked { cursor, end, flaw, last, proven, recycled });
            }
            // Row 11
            segment += 1;
            self.proven = self.proven.max(self.layout.first_lsn(segment));
        }
    }

    /// Rows 6, 7 and 8.
    fn enter(&self, segment: u32) -> Result<(SegmentCursor, bool), TrailError> {
        let damaged = |file: PathBuf, what: String| TrailError::Damaged {
            file,
            offset: 0,
            lsn: self.layout.first_lsn(segment),
            proven: self.proven,
            what,
        };
        let Some(file) = self.survey.segments.get(&segment) else {
            let any_epoch = self.survey.segments.values().next().and_then(|file| file.path.parent());
            let dir = any_epoch.unwrap_or(std::path::Path::new(""));
            return Err(damaged(dir.join(format!("*-{segment:08x}.segment")), "the file is missing".to_owned()));
        };
        file.check(segment, self.control, self.layout)?.map_err(|what| damaged(file.path.clone(), what))?;
        let cursor = SegmentCursor::open(self.disk, &file.path, segment, self.layout, self.control.trail_id)?;
        Ok((cursor, file.header.is_ok_and(|header| header.recycled)))
    }

    /// Whether a whole boxcar continues this trail.
    fn fits(&self, head: &Head) -> Result<(), Flaw> {
        check_incarnation(head, self.control)?;
        let (epoch, checksum) = self.previous.map_or((Epoch(0), None), |head| (head.epoch, Some(head.checksum)));
        let chained = checksum.is_none_or(|checksum| checksum == head.previous_checksum);
        let in_order = epoch <= head.epoch && head.epoch <= self.control.epoch;
        if chained && in_order { Ok(()) } else { Err(Flaw::Chain) }
    }
}

fn check_incarnation(head: &Head, control: &Control) -> Result<(), Flaw> {
    let current = head.lsn < control.incarnation_lsn || head.incarnation == control.incarnation;
    if current { Ok(()) } else { Err(Flaw::Incarnation(head.incarnation)) }
}

/// What was found after the last sound boxcar.
struct Search {
    /// The furthest position proven by a boxcar after the end, and that boxcar's LSN.
    proven: Lsn,
    evidence: Lsn,
    /// Number of bytes from the end to the last byte that is not zero, in whole blocks; 0 in a recycled segment.
    rest_bytes: u64,
    /// In a recycled segment: the length that the torn boxcar at the end claims, or up to the end of the last whole
    /// boxcar of that write.
    claimed_bytes: u64,
}

fn search(
    disk: &dyn Disk,
    survey: &Survey,
    control: &Control,
    layout: Layout,
    walk: &Walked,
) -> Result<Search, TrailError> {
    let mut found = Search { proven: Lsn(0), evidence: Lsn(0), rest_bytes: 0, claimed_bytes: 0 };
    let (segment, end_offset) = (layout.segment_of(walk.end), layout.offset_of(walk.end));
    for (number, file) in survey.segments.range(segment..) {
        let mut cursor = SegmentCursor::open(disk, &file.path, *number, layout, control.trail_id)?;
        let here = *number == segment;
        if here && walk.recycled {
            found.claimed_bytes = cursor.claimed_bytes(end_offset)?.unwrap_or(0);
        }
        let mut offset = if here { end_offset } else { BLOCK };
        while let Some(block) = cursor.bytes(offset, BLOCK)? {
            if here && !walk.recycled && !boxcar::is_zero(block) {
                found.rest_bytes = offset + BLOCK - end_offset;
            }
            let is_head = boxcar::may_start(block);
            if is_head && let Ok((head, _)) = cursor.boxcar(offset)? {
                let counts = check_incarnation(&head, control).is_ok();
                if counts && head.lsn > walk.end {
                    if head.proven > found.proven {
                        (found.proven, found.evidence) = (head.proven, head.lsn);
                    }
                    if here && walk.recycled {
                        found.claimed_bytes = found.claimed_bytes.max(head.end().0 - walk.end.0);
                    }
                }
            }
            offset += BLOCK;
        }
    }
    Ok(found)
}
