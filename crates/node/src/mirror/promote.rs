//! The mirror becomes a data directory like any other, because the main disk is lost.
//!
//! What it may lack decides whether that is done at once. The main directory, where it can still be read, knows best;
//! else the mirror says what it knows of itself:
//!
//! | main directory | the mirror | promoted |
//! |---|---|---|
//! | a server runs on it | any | never |
//! | says that the mirror is in service | any | at once: it has everything acknowledged |
//! | says that the mirror was left behind, or that another copy took its place | any | only with the divergence accepted |
//! | cannot be asked | was in service, `mirror_away = "wait"` | at once: nothing was acknowledged without it |
//! | cannot be asked | was in service, `"go_on"` | only with the divergence accepted: the server may have gone on without it |
//! | cannot be asked | left behind, or never in service | only with the divergence accepted |
//! | any | its copy was not finished | never: there is nothing whole |
//!
//! The way there can be interrupted anywhere and done again: first the mirror says that it is being promoted, which keeps
//! both directories from being served; then it is recovered as a master, with a new epoch; then it says that it was
//! promoted, and the main directory is told, if there is one.

use super::files::{CopyState, MirrorOf, Record, RecordState};
use super::place::trail_of;
use super::state::unix_ms;
use crate::config::{Config, FILE_NAME};
use holdfast_engine::{CloseError, Engine, OpenError, Options};
use holdfast_seams::{DiskLock, RealDisk};
use holdfast_sql::types::datetime::format_timestamp;
use holdfast_trail::{Dump, DumpItem, Inspection, TrailError, TrailId, lock_without_opening};
use holdfast_types::{Epoch, Lsn};
use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum PromoteError {
    #[error("{0} is no mirror; a standby is promoted with: holdfast promote --at HOST:PORT")]
    NoMirror(PathBuf),
    #[error("{0} was promoted already; serve it with: holdfast serve --data {0}")]
    Already(PathBuf),
    #[error(
        "{0} is not whole: its copy was not finished, so there is nothing to promote. The main directory {1} is needed"
    )]
    NotWhole(PathBuf, PathBuf),
    #[error("a server runs on the main directory {0}: stop it first. While it runs nothing is lost")]
    MainRuns(PathBuf),
    #[error(
        "{has}. {lacks}. To promote it all the same and give up what it may lack: holdfast mirror promote --data {dir} \
         --accept-divergence"
    )]
    MayLack { has: String, lacks: String, dir: String },
    #[error("{0}")]
    Files(#[from] io::Error),
    #[error(transparent)]
    Trail(#[from] TrailError),
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Close(#[from] CloseError),
    #[error("{0}: {1}")]
    Config(PathBuf, String),
}

/// What a promotion has led to.
#[derive(Clone, Debug)]
pub struct Promoted {
    pub epoch: Epoch,
    /// Where the new epoch begins.
    pub from: Lsn,
    /// What the directory has, in words.
    pub has: String,
    /// What it may lack, in words; that it lacks nothing.
    pub lacks: String,
}

/// What is known of what the mirror does not have.
struct Verdict {
    lacks: String,
    is_certain: bool,
}

/// The main directory, as far as it can be asked.
struct Main {
    epoch: Epoch,
    record: Option<Record>,
    /// As long as it lives no server starts there.
    _lock: Option<Box<dyn DiskLock>>,
}

/// See the module. Blocks until the directory is recovered.
pub fn promote(dir: &Path, accept_divergence: bool) -> Result<Promoted, PromoteError> {
    let of = MirrorOf::read(dir)?.ok_or_else(|| PromoteError::NoMirror(dir.to_owned()))?;
    match of.state {
        CopyState::Promoted => return Err(PromoteError::Already(dir.to_owned())),
        CopyState::Copying => return Err(PromoteError::NotWhole(dir.to_owned(), of.main)),
        CopyState::Following | CopyState::LeftBehind | CopyState::Promoting => {}
    }
    let not_whole = || PromoteError::NotWhole(dir.to_owned(), of.main.clone());
    let (trail_id, _) = trail_of(dir)?.ok_or_else(not_whole)?;
    let main = ask_main(&of.main, trail_id)?;
    let has = what_it_has(dir)?;
    let verdict = judge(&of, main.as_ref());
    if !verdict.is_certain && !accept_divergence && of.state != CopyState::Promoting {
        let dir = dir.display().to_string();
        return Err(PromoteError::MayLack { has, lacks: verdict.lacks, dir });
    }
    MirrorOf { state: CopyState::Promoting, ..of.clone() }.write(dir)?;
    let epoch_min = main.as_ref().map_or(Epoch(1), |main| main.epoch.max(Epoch(1)));
    let (epoch, from) = take_over(dir, epoch_min)?;
    MirrorOf { state: CopyState::Promoted, ..of.clone() }.write(dir)?;
    if let Some(record) = main.as_ref().and_then(|main| main.record.clone()) {
        let told = Record { state: RecordState::Promoted, epoch: epoch.0, since_unix_ms: unix_ms(), ..record };
        if let Err(error) = told.write(&of.main) {
            tracing::warn!("the main directory cannot be told that it has a successor: {error}");
        }
    }
    Ok(Promoted { epoch, from, has, lacks: verdict.lacks })
}

/// `None`: it cannot be asked, or is not what this is a mirror of.
fn ask_main(main: &Path, trail_id: TrailId) -> Result<Option<Main>, PromoteError> {
    let Ok(Some((found, epoch))) = trail_of(main) else { return Ok(None) };
    if found != trail_id {
        return Ok(None);
    }
    let lock = match lock_without_opening(&RealDisk::new(), &main.join("trail")) {
        Ok(lock) => lock,
        Err(TrailError::InUse { .. }) => return Err(PromoteError::MainRuns(main.to_owned())),
        // A disk that cannot be written any more may still be read.
        Err(_) => None,
    };
    match Record::read(main) {
        Ok(record) => Ok(Some(Main { epoch, record, _lock: lock })),
        Err(error) => {
            tracing::warn!("the main directory does not say how its mirror was: {error}");
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
            Some(_) => may_lack(format!("The main directory {at} says that another copy has taken this one's place")),
            None => may_lack(format!("The main directory {at} knows of no mirror: it may have more than this one")),
        };
    }
    let at = of.main.display();
    match (of.state, of.away) {
        (CopyState::LeftBehind, _) => may_lack(format!(
            "The server went on without this mirror, which was in service {seen}: what was acknowledged from then on is NOT here"
        )),
        _ if of.seen_unix_ms == 0 => may_lack("This mirror never had everything: it had not caught up yet".to_owned()),
        (_, crate::config::Away::Wait) => certain(&format!(
            "It has everything that was acknowledged while this mirror was configured (mirror_away = \"wait\"; in service \
             {seen}). The main directory {at} could not be asked whether the server ever ran without it"
        )),
        (_, crate::config::Away::GoOn) => may_lack(format!(
            "The server was allowed to go on without this mirror (mirror_away = \"go_on\"), which was in service {seen}; the \
             main directory {at} cannot be asked whether it did: what was acknowledged from then on may be missing here"
        )),
    }
}

/// The end of the mirror's trail, and how old that is.
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

fn moment(unix_ms: u64) -> String {
    let us = i64::try_from(unix_ms).ok().and_then(|ms| ms.checked_mul(1000));
    us.and_then(|us| format_timestamp(us).ok())
        .map_or_else(|| "at an unknown time".to_owned(), |t| format!("at {t} UTC"))
}

/// Recovers the directory as a master's: the epoch, and where it begins.
fn take_over(dir: &Path, epoch_min: Epoch) -> Result<(Epoch, Lsn), PromoteError> {
    let path = dir.join(FILE_NAME);
    let config = match std::fs::read_to_string(&path) {
        Ok(text) => Config::parse(&text).map_err(|message| PromoteError::Config(path, message))?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => Config::default(),
        Err(e) => return Err(e.into()),
    };
    let engine = Engine::open(dir, Options { epoch_min, ..config.options() })?;
    let told = (engine.trail().epoch(), engine.recovered().end);
    engine.close()?;
    Ok(told)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Away;

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
