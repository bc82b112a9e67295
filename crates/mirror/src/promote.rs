//! Makes the mirror a normal data directory, because the main disk is lost.
//!
//! Whether that is done at once depends on what the mirror may lack. The main directory decides if it can still be read;
//! otherwise what the mirror says about itself:
//!
//! | main directory | the mirror | promoted |
//! |---|---|---|
//! | a server runs on it | any | never |
//! | says that the mirror is in service | any | at once: it has everything acknowledged |
//! | says that the mirror was left behind, or that another copy replaced it | any | only with the divergence accepted |
//! | cannot be read | was in service, `mirror_away = "wait"` | at once: nothing was acknowledged without it |
//! | cannot be read | was in service, `"go_on"` | only with the divergence accepted: the server may have continued without it |
//! | cannot be read | left behind, or never in service | only with the divergence accepted |
//! | any | its copy was not finished | never: there is nothing complete |
//!
//! A promotion can be interrupted anywhere and repeated: first the mirror is marked as being promoted, which keeps both
//! directories from being served; then it is recovered as a master, with a new epoch; then it is marked as promoted, and so is
//! the main directory, if there is one.
//!
//! | what fails, for example because the disk is full | then |
//! |---|---|
//! | the mark | nothing has changed |
//! | the recovery, before a boxcar of the new epoch | the epoch and the mark are withdrawn: the server can be started again with this mirror |
//! | the recovery, after one; or the withdrawal | it stays marked: the promotion is to be repeated, neither directory is served |
//! | the clean stop after the recovery | nothing: the next start recovers |
//!
//! An epoch is withdrawn only if no boxcar carries it, so no two masters ever have the same one.

use crate::directory::trail_of;
use crate::promotion_mark::PromotionMark;
use crate::records::{CopyState, MirrorOf, Record, RecordState};
use crate::state::unix_ms;
use holdfast_engine::{Engine, OpenError, Options};
use holdfast_replication::settings::{Away, SettingsFile};
use holdfast_seams::{DiskLock, RealDisk};
use holdfast_trail::{Dump, DumpItem, Inspection, Trail, TrailError, TrailId, lock_without_opening};
use holdfast_types::calendar::civil_from_days;
use holdfast_types::{Epoch, Lsn};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum PromoteError {
    #[error("{0} is not a mirror; to promote a standby: holdfast promote --at HOST:PORT")]
    NoMirror(PathBuf),
    #[error("{0} was promoted already; serve it with: holdfast serve --data {0}")]
    Already(PathBuf),
    #[error(
        "{0} is not complete: its copy was not finished, so there is nothing to promote; the main directory {1} is needed"
    )]
    NotWhole(PathBuf, PathBuf),
    #[error("a server runs on the main directory {0}: nothing is lost while it runs. Stop it before a promotion")]
    MainRuns(PathBuf),
    #[error(
        "{has}. {lacks}. To promote it nevertheless, and accept that what it lacks is lost: holdfast mirror promote --data {dir} \
         --accept-divergence"
    )]
    MayLack { has: String, lacks: String, dir: String },
    #[error("{0}")]
    Files(#[from] io::Error),
    #[error(transparent)]
    Trail(#[from] TrailError),
    #[error(
        "the promotion of {dir} failed and was withdrawn: {why}. Remove the cause and run the command again; or serve the main \
         directory {main} again, with this mirror"
    )]
    Withdrawn { dir: String, main: String, why: String },
    #[error(
        "the promotion of {dir} has begun and failed: {why}. Remove the cause and run the command again; until then neither \
         {dir} nor {main} is served"
    )]
    Unfinished { dir: String, main: String, why: String },
}

/// The result of a promotion.
#[derive(Clone, Debug)]
pub struct Promoted {
    pub epoch: Epoch,
    /// Where the new epoch begins.
    pub from: Lsn,
    /// What the directory has, in words.
    pub has: String,
    /// What it may lack, in words, or that it lacks nothing.
    pub lacks: String,
    /// Why the directory was not closed cleanly, where it was not; the next start recovers it.
    pub not_closed: Option<String>,
}

/// What the mirror may lack, and whether it is certain that it lacks nothing.
struct Verdict {
    lacks: String,
    is_certain: bool,
}

/// What the main directory says, if it can be read.
struct Main {
    epoch: Epoch,
    record: Option<Record>,
    /// While this is held no server starts there.
    _lock: Option<Box<dyn DiskLock>>,
}

/// Promotes the mirror in `dir`, see the table above. Blocks until the directory is recovered.
pub fn promote(dir: &Path, accept_divergence: bool, settings: &dyn SettingsFile) -> Result<Promoted, PromoteError> {
    let of = MirrorOf::read(dir)?.ok_or_else(|| PromoteError::NoMirror(dir.to_owned()))?;
    match of.state {
        CopyState::Promoted => return Err(PromoteError::Already(dir.to_owned())),
        CopyState::Copying => return Err(PromoteError::NotWhole(dir.to_owned(), of.main)),
        CopyState::Following | CopyState::LeftBehind | CopyState::Promoting => {}
    }
    let not_whole = || PromoteError::NotWhole(dir.to_owned(), of.main.clone());
    let (trail_id, epoch_before) = trail_of(dir)?.ok_or_else(not_whole)?;
    let main = read_main(&of.main, trail_id)?;
    let has = what_it_has(dir)?;
    let verdict = judge(&of, main.as_ref());
    if !verdict.is_certain && !accept_divergence && of.state != CopyState::Promoting {
        let dir = dir.display().to_string();
        return Err(PromoteError::MayLack { has, lacks: verdict.lacks, dir });
    }
    let mark = PromotionMark::begin(dir, &of)?;
    let main_epoch = main.as_ref().map(|main| main.epoch);
    let TakenOver { epoch, from, not_closed } =
        match take_over(dir, main_epoch.map_or(Epoch(1), |main| main.max(Epoch(1))), settings) {
            Ok(new) => new,
            Err(error) => {
                let withdraw_to = match main_epoch {
                    Some(main) => Some(main.min(epoch_before)),
                    // An earlier attempt may have raised the epoch already.
                    None => (of.state != CopyState::Promoting).then_some(epoch_before),
                };
                return Err(withdraw(dir, &of, mark, withdraw_to, &error));
            }
        };
    mark.complete().map_err(|error| unfinished(dir, &of, &error))?;
    if let Some(record) = main.as_ref().and_then(|main| main.record.clone()) {
        let promoted = Record { state: RecordState::Promoted, epoch: epoch.0, since_unix_ms: unix_ms(), ..record };
        if let Err(error) = promoted.write(&of.main) {
            tracing::warn!("cannot write to the main directory that the mirror was promoted: {error}");
        }
    }
    Ok(Promoted { epoch, from, has, lacks: verdict.lacks, not_closed })
}

/// Reads the main directory; `None`: it cannot be read, or is not the one that this mirror belongs to.
fn read_main(main: &Path, trail_id: TrailId) -> Result<Option<Main>, PromoteError> {
    let Ok(Some((found, epoch))) = trail_of(main) else { return Ok(None) };
    if found != trail_id {
        return Ok(None);
    }
    let lock = match lock_without_opening(&RealDisk::new(), &main.join("trail")) {
        Ok(lock) => lock,
        Err(TrailError::InUse { .. }) => return Err(PromoteError::MainRuns(main.to_owned())),
        // A disk that can no longer be written may still be readable.
        Err(_) => None,
    };
    match Record::read(main) {
        Ok(record) => Ok(Some(Main { epoch, record, _lock: lock })),
        Err(error) => {
            tracing::warn!("cannot read the main directory's record of its mirror: {error}");
            Ok(None)
        }
    }
}

fn judge(of: &MirrorOf, main: Option<&Main>) -> Verdict {
    let certain = |lacks: &str| Verdict { lacks: lacks.to_owned(), is_certain: true };
    let may_lack = |lacks: String| Verdict { lacks, is_certain: false };
    let seen = match of.seen_unix_ms {
        0 => "never".to_owned(),
        ms => format!("last {}", moment(ms)),
    };
    if let Some(main) = main {
        let at = of.main.display();
        return match &main.record {
            Some(record) if record.copy == of.copy => match record.state {
                RecordState::InService | RecordState::Promoted => certain("It has everything that was acknowledged"),
                RecordState::LeftBehind => may_lack(format!(
                    "The main directory {at} says that this mirror was left behind {}{}: what was acknowledged from then on \
                     is NOT here, it is only there",
                    moment(record.since_unix_ms),
                    if record.lsn > 0 { format!(", with everything up to LSN {}", record.lsn) } else { String::new() }
                )),
                RecordState::Copying => {
                    may_lack(format!("The main directory {at} says that this mirror had not caught up"))
                }
            },
            Some(_) => may_lack(format!("The main directory {at} says that another copy has replaced this mirror")),
            None => {
                may_lack(format!("The main directory {at} has no record of a mirror: it may have more than this one"))
            }
        };
    }
    let at = of.main.display();
    match (of.state, of.away) {
        (CopyState::LeftBehind, _) => may_lack(format!(
            "The server continued without this mirror, which was in service {seen}: what was acknowledged from then on is NOT here"
        )),
        _ if of.seen_unix_ms == 0 => may_lack("This mirror never had everything: it had not caught up yet".to_owned()),
        (_, Away::Wait) => certain(&format!(
            "It has everything that was acknowledged while this mirror was configured (mirror_away = \"wait\"; in service \
             {seen}). The main directory {at} cannot be read, so it is not known whether the server ever ran without the mirror"
        )),
        (_, Away::GoOn) => may_lack(format!(
            "The server was allowed to continue without this mirror (mirror_away = \"go_on\"), which was in service {seen}; the \
             main directory {at} cannot be read to see whether it did: what was acknowledged from then on may be missing here"
        )),
    }
}

/// The end of the mirror's trail and its age, in words.
fn what_it_has(dir: &Path) -> Result<String, PromoteError> {
    let (disk, trail) = (RealDisk::new(), dir.join("trail"));
    let end = Inspection::of(&disk, &trail)?.map_or(Lsn(0), |found| found.end);
    let mut last_ms = None;
    for item in Dump::open(&disk, &trail)? {
        match item? {
            DumpItem::Boxcar(boxcar) if !boxcar.body.is_empty() => last_ms = Some(boxcar.written_unix_ms),
            DumpItem::Boxcar(_) | DumpItem::Segment { .. } | DumpItem::Stop { .. } => {}
        }
    }
    let last = last_ms.map_or_else(
        || "there is no transaction in its trail".to_owned(),
        |ms| {
            let age_s = unix_ms().saturating_sub(ms) / 1000;
            format!("the last record in its trail was written {}, {age_s} s ago", moment(ms))
        },
    );
    Ok(format!("The mirror {} has everything up to LSN {end}; {last}", dir.display()))
}

/// A time in words.
fn moment(unix_ms: u64) -> String {
    let (days, of_day) = (unix_ms / 86_400_000, unix_ms % 86_400_000);
    let (year, month, day) = civil_from_days(i64::try_from(days).unwrap_or_default());
    let (hour, minute, second) = (of_day / 3_600_000, of_day / 60_000 % 60, of_day / 1000 % 60);
    let milliseconds = of_day % 1000;
    format!("at {year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{milliseconds:03} UTC")
}

/// Undoes a promotion whose recovery has failed, if that is possible; returns what to report.
fn withdraw(
    dir: &Path,
    of: &MirrorOf,
    mark: PromotionMark<'_>,
    to: Option<Epoch>,
    error: &dyn std::fmt::Display,
) -> PromoteError {
    let Some(to) = to else { return unfinished(dir, of, error) };
    let withdrawn = || -> Result<bool, PromoteError> {
        Trail::withdraw_epoch(&RealDisk::new(), &dir.join("trail"), to)?;
        let is_back = trail_of(dir)?.is_some_and(|(_, epoch)| epoch <= to);
        Ok(is_back && mark.withdraw()?)
    };
    match withdrawn() {
        Ok(true) => {
            let (dir, main) = (dir.display().to_string(), of.main.display().to_string());
            PromoteError::Withdrawn { dir, main, why: error.to_string() }
        }
        Ok(false) => unfinished(dir, of, error),
        Err(other) => unfinished(dir, of, &format!("{error}; it cannot be withdrawn: {other}")),
    }
}

fn unfinished(dir: &Path, of: &MirrorOf, why: &dyn std::fmt::Display) -> PromoteError {
    let (dir, main) = (dir.display().to_string(), of.main.display().to_string());
    PromoteError::Unfinished { dir, main, why: why.to_string() }
}

/// Why the recovery of a mirror has failed.
#[derive(Debug, thiserror::Error)]
enum TakeOverError {
    #[error(transparent)]
    Settings(#[from] io::Error),
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// A mirror that was recovered as a master's directory.
struct TakenOver {
    epoch: Epoch,
    from: Lsn,
    not_closed: Option<String>,
}

/// Recovers the directory as a master's.
fn take_over(dir: &Path, epoch_min: Epoch, settings: &dyn SettingsFile) -> Result<TakenOver, TakeOverError> {
    let engine = Engine::open(dir, Options { epoch_min, ..settings.engine_options(dir)? })?;
    let (epoch, from) = (engine.trail().epoch(), engine.recovered().end);
    // It is recovered: a checkpoint for which there is no room is made by the next start.
    let not_closed = engine.close().err().map(|error| error.to_string());
    Ok(TakenOver { epoch, from, not_closed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(state: CopyState, away: Away, seen_unix_ms: u64) -> MirrorOf {
        MirrorOf { state, seen_unix_ms, ..MirrorOf::begin("/a".as_ref(), "1", away) }
    }

    #[test]
    fn what_the_mirror_says_of_itself() {
        let certain = |of: MirrorOf| judge(&of, None).is_certain;
        assert!(certain(of(CopyState::Following, Away::Wait, 5)));
        assert!(!certain(of(CopyState::Following, Away::Wait, 0)));
        assert!(!certain(of(CopyState::Following, Away::GoOn, 5)));
        assert!(!certain(of(CopyState::LeftBehind, Away::Wait, 5)));
    }

    #[test]
    fn what_the_main_directory_says_of_it() {
        let says = |state, copy: &str| {
            let record = Record { state, ..Record::begin("/b".as_ref(), copy) };
            let main = Main { epoch: Epoch(1), record: Some(record), _lock: None };
            judge(&of(CopyState::Following, Away::GoOn, 5), Some(&main)).is_certain
        };
        assert!(says(RecordState::InService, "1"));
        assert!(!says(RecordState::InService, "2"));
        assert!(!says(RecordState::LeftBehind, "1"));
        assert!(!says(RecordState::Copying, "1"));
        let silent = Main { epoch: Epoch(1), record: None, _lock: None };
        assert!(!judge(&of(CopyState::Following, Away::Wait, 5), Some(&silent)).is_certain);
    }
}
