//! A deposed master's return without an operator: when it may, and what is remembered while it is under way.
//!
//! | the new master, of this trail's end | and | then |
//! |---|---|---|
//! | has it | | it is followed from there |
//! | no longer keeps the part to compare with, or has nothing in common | | refused: nothing is wiped by itself |
//! | has another history from C on | commits behind C may have been acknowledged here above level local | refused |
//! | has another history from C on | up to where was not recorded in the epoch in which this trail's end was written | refused |
//! | has another history from C on | this trail's end was written in an epoch in which that master was master already | refused: it has lost what it had |
//! | has another history from C on | a later promotion accepted that commits are lost | refused: an operator decides whose commits count |
//! | has another history from C on | otherwise | what is behind C is saved as SQL, then cut off |
//!
//! Up to where commits may have been acknowledged is in the file `acknowledged` ([`crate::acknowledged`]); the epochs are in the
//! record of the control plane.
//!
//! The file `rejoin_under_way` is there from before the first change until the directory is a standby's in full. A server that
//! starts with it continues with the return, whatever else is there.
//!
//! Failure: what is refused changes nothing; the operator compares the two servers, and runs `holdfast rejoin` on the one whose
//! commits do not count. A return that was cut short is repeated.

use crate::acknowledged::{self, Acknowledged};
use crate::base_copy::CopyTo;
use crate::control::Terms;
use crate::rejoin::{Found, RejoinError, Rejoined, rejoin_if};
use crate::settings::SettingsFile;
use holdfast_seams::{Disk, RealDisk, points, replace};
use holdfast_standby::base_copy::CopyProgress;
use holdfast_standby::message::Answer;
use holdfast_standby::pairing::Finding;
use holdfast_types::{Epoch, Lsn};
use std::io::{self, ErrorKind};
use std::path::Path;

/// The file's name.
const UNDER_WAY: &str = "rejoin_under_way";

/// Why an operator has to decide.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotByItself {
    #[error(
        "the new master no longer keeps the part of the trail to compare with: this server may have commits that the new master \
         lacks. To bring it back, with everything that it has in a file: holdfast rejoin"
    )]
    Gone,
    #[error(
        "the trails of this server and the new master have nothing in common. To replace what this server has, with all of it in \
         a file: holdfast rejoin"
    )]
    NothingInCommon,
    #[error(
        "the new master lacks commits of this server from LSN {common} on, and those up to LSN {acknowledged} may have been \
         acknowledged: the new master's directory may have been put back from an older copy. Compare the two servers, and promote \
         the one whose commits count"
    )]
    Acknowledged { common: Lsn, acknowledged: Lsn },
    #[error(
        "the new master lacks commits of this server from LSN {common} on, and it is not known which of epoch {end} were acknowledged: \
         the file acknowledged has no mark of that epoch. Compare the two servers; if those of the master count, bring this one back \
         with: holdfast rejoin"
    )]
    Unmarked { common: Lsn, end: Epoch },
    #[error(
        "this server's trail ends in epoch {end}, in which the master was master already, and the master lacks that end from LSN \
         {common} on: the master's directory was put back from an older copy. Compare the two servers, and promote the one whose \
         commits count"
    )]
    RolledBack { common: Lsn, end: Epoch },
    #[error(
        "in epoch {accepted} a server was promoted with the loss of commits accepted, and this server has commits of epoch {end} \
         from LSN {common} on that the master lacks. Compare the two servers; if those of the master count, bring this one back \
         with: holdfast rejoin"
    )]
    Accepted { common: Lsn, end: Epoch, accepted: Epoch },
}

/// Decides by the module's table.
fn may_return(
    finding: Finding,
    end_epoch: Epoch,
    acknowledged: Option<Acknowledged>,
    terms: Terms,
) -> Result<(), NotByItself> {
    let common = match finding {
        Finding::Continues | Finding::Copied { answer: Answer::Yes, .. } => return Ok(()),
        Finding::Gone | Finding::Copied { .. } => return Err(NotByItself::Gone),
        Finding::Forked { common: None } => return Err(NotByItself::NothingInCommon),
        Finding::Forked { common: Some(common) } => common.lsn,
    };
    if let Some(beyond) = acknowledged.filter(|acknowledged| acknowledged.lsn > common) {
        return Err(NotByItself::Acknowledged { common, acknowledged: beyond.lsn });
    }
    if acknowledged.is_none_or(|acknowledged| acknowledged.epoch < end_epoch) {
        return Err(NotByItself::Unmarked { common, end: end_epoch });
    }
    if end_epoch >= terms.master_since {
        return Err(NotByItself::RolledBack { common, end: end_epoch });
    }
    if end_epoch < terms.accepted {
        return Err(NotByItself::Accepted { common, end: end_epoch, accepted: terms.accepted });
    }
    Ok(())
}

/// Whether a return of this directory was cut short.
pub fn is_under_way(dir: &Path) -> bool {
    dir.join(UNDER_WAY).exists()
}

/// As [`crate::rejoin`], if the module's table permits it.
pub fn rejoin_by_itself(
    from: &str,
    to: CopyTo<'_>,
    settings: &dyn SettingsFile,
    progress: &(dyn Fn(CopyProgress) + Send + Sync),
    terms: Terms,
) -> Result<Rejoined, RejoinError> {
    let failed = |what| move |source| RejoinError::Mark { what, dir: to.dir.to_owned(), source };
    let acknowledged = Acknowledged::read(to.dir).map_err(failed("read what was acknowledged"))?;
    let may = |found: &Found| {
        may_return(found.finding, found.end_epoch, acknowledged, terms)?;
        let marked = replace(&RealDisk::new(), &to.dir.join(UNDER_WAY), from.as_bytes()).map_err(io::Error::from);
        marked.map_err(failed("record the return"))?;
        points::reached("a return is recorded");
        Ok(())
    };
    let rejoined = rejoin_if(from, to, settings, progress, &may)?;
    is_done(to.dir)?;
    Ok(rejoined)
}

/// The directory is a standby's in full: what is kept of its time as a master is over.
pub(super) fn is_done(dir: &Path) -> Result<(), RejoinError> {
    let disk = RealDisk::new();
    let remove = |name: &str| match disk.remove(&dir.join(name)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    points::reached("a return is complete");
    let removed = remove(acknowledged::NAME);
    points::reached("a return has no mark");
    let removed = removed.and_then(|()| remove(UNDER_WAY)).and_then(|()| disk.sync_dir(dir));
    removed.map_err(|source| RejoinError::Mark { what: "complete the return", dir: dir.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_standby::identity::Tip;

    #[test]
    fn the_decision_table() {
        let tip = |lsn| Tip { lsn: Lsn(lsn), checksum: 7 };
        let forked = Finding::Forked { common: Some(tip(100)) };
        let terms = Terms { master_since: Epoch(6), accepted: Epoch(0) };
        let acknowledged = |lsn| Some(Acknowledged { epoch: Epoch(5), lsn: Lsn(lsn) });
        let may = |finding, end, mark, terms| may_return(finding, Epoch(end), mark, terms);
        // Nothing is taken away, so nothing else counts.
        let accepted = Terms { accepted: Epoch(9), ..terms };
        assert_eq!(may(Finding::Continues, 8, acknowledged(900), accepted), Ok(()));
        let copied = |answer| Finding::Copied { anchor: tip(50), answer };
        assert_eq!(may(copied(Answer::Yes), 5, None, terms), Ok(()));
        // What the standby had confirmed is there.
        assert_eq!(may(forked, 5, acknowledged(100), terms), Ok(()));
        // A mark is written before a master serves: without one of its last epoch nothing is known.
        for mark in [None, Some(Acknowledged { epoch: Epoch(4), lsn: Lsn(90) })] {
            let refused = may(forked, 5, mark, terms).unwrap_err();
            assert_eq!(refused, NotByItself::Unmarked { common: Lsn(100), end: Epoch(5) });
        }
        // Each condition.
        assert_eq!(may(Finding::Gone, 5, None, terms), Err(NotByItself::Gone));
        assert_eq!(may(copied(Answer::Gone), 5, None, terms), Err(NotByItself::Gone));
        assert_eq!(may(copied(Answer::No), 5, None, terms), Err(NotByItself::Gone));
        assert_eq!(may(Finding::Forked { common: None }, 5, None, terms), Err(NotByItself::NothingInCommon));
        let refused = may(forked, 5, acknowledged(101), terms).unwrap_err();
        assert_eq!(refused, NotByItself::Acknowledged { common: Lsn(100), acknowledged: Lsn(101) });
        for end in [6, 7] {
            let mark = Some(Acknowledged { epoch: Epoch(end), lsn: Lsn(100) });
            let refused = may(forked, end, mark, terms).unwrap_err();
            assert_eq!(refused, NotByItself::RolledBack { common: Lsn(100), end: Epoch(end) });
        }
        let accepted = Terms { accepted: Epoch(6), ..terms };
        let refused = may(forked, 5, acknowledged(100), accepted).unwrap_err();
        assert_eq!(refused, NotByItself::Accepted { common: Lsn(100), end: Epoch(5), accepted: Epoch(6) });
        // The loss was accepted before this server was master.
        let earlier = Terms { master_since: Epoch(6), accepted: Epoch(4) };
        assert_eq!(may(forked, 5, acknowledged(100), earlier), Ok(()));
    }
}
