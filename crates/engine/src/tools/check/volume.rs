//! One volume: its file as it is, then as the next start would have it.

use super::{DatabaseFound, Looked};
use crate::background::recovery::{self, Redone, Survey};
use crate::state::error::OpenError;
use crate::state::manifest::Entry;
use crate::state::options::Options;
use holdfast_store::checkpoint::wal_path;
use holdfast_store::pages::Limits;
use holdfast_store::schema_map::read_map;
use holdfast_store::volume::{Volume, VolumeError};
use holdfast_types::Value;
use std::path::Path;
use std::sync::Arc;

/// Findings of one kind that a report lists.
const FINDINGS_MAX: usize = 10;

/// Checks one volume. Without a trail only its file can be looked at.
pub fn check(dir: &Path, entry: &Entry, options: &Options, trail: Option<(&Looked<'_>, &Survey)>) -> DatabaseFound {
    let (name, file) = (entry.name.clone(), entry.file.clone());
    let mut found = DatabaseFound { name, file, ..DatabaseFound::default() };
    let open = || open(dir, entry, options);
    if let Err(e) = check_pages(&open, &mut found) {
        found.problems.push(e.to_string());
        return found;
    }
    let volume = match trail.map(|(looked, survey)| as_started(looked, survey, entry, &open)) {
        Some(Ok(redone)) => {
            found.number = Some(redone.found_at);
            found.number_redone = Some(redone.volume.store().visible());
            redone.volume
        }
        Some(Err(e)) => {
            found.problems.push(e.to_string());
            match open() {
                Ok(volume) => Arc::new(volume),
                Err(_) => return found,
            }
        }
        None => match open() {
            Ok(volume) => Arc::new(volume),
            Err(_) => return found,
        },
    };
    if let Err(e) = check_content(&volume, &mut found) {
        found.problems.push(e);
    }
    found
}

/// The volume as the next start would make it, where it can be.
pub fn started(
    dir: &Path,
    entry: &Entry,
    options: &Options,
    looked: &Looked<'_>,
    survey: &Survey,
) -> Option<Arc<Volume>> {
    as_started(looked, survey, entry, &|| open(dir, entry, options)).ok().map(|redone| redone.volume)
}

fn open(dir: &Path, entry: &Entry, options: &Options) -> Result<Volume, VolumeError> {
    let limits = Limits { memory_bytes_max: options.memory_bytes_max, scratch_bytes_max: options.scratch_bytes_max };
    Volume::open_to_look(&*options.disk, &dir.join(&entry.file), &std::env::temp_dir(), entry.volume(), limits)
}

fn check_pages(open: &impl Fn() -> Result<Volume, VolumeError>, found: &mut DatabaseFound) -> Result<(), VolumeError> {
    let volume = open()?;
    found.checkpoint_pending = volume.checkpoint_finished();
    if found.checkpoint_pending {
        found.notes.push("a checkpoint was interrupted; the next start finishes it".to_owned());
    }
    if volume.wal_header_damaged() {
        let wal = wal_path(Path::new(volume.store().path()));
        found.notes.push(format!(
            "{} at byte 0: the header is damaged; its frames are whole, and the next start goes by them",
            wal.display()
        ));
    }
    let mut damaged = 0;
    found.pages = volume.check_pages(|e| {
        damaged += 1;
        if damaged <= FINDINGS_MAX {
            found.problems.push(e.to_string());
        }
    });
    if damaged > FINDINGS_MAX {
        found.problems.push(format!("{} more pages do not hold their checksum", damaged - FINDINGS_MAX));
    }
    Ok(())
}

/// What the next start would do, in memory.
fn as_started(
    looked: &Looked<'_>,
    survey: &Survey,
    entry: &Entry,
    open: &impl Fn() -> Result<Volume, VolumeError>,
) -> Result<Redone, OpenError> {
    let redone = recovery::redo(looked, std::slice::from_ref(entry), survey, |_| open())?;
    match redone.into_iter().next() {
        Some(redone) => Ok(redone),
        None => {
            let id = entry.volume();
            recovery::served_as_it_is(open()?, entry, survey.checkpoint(id), survey.last.get(&id).map(|l| l.number))
        }
    }
}

/// SQLite's own checks.
fn check_content(volume: &Volume, found: &mut DatabaseFound) -> Result<(), String> {
    let mut conn = volume.open_reader().map_err(|e| e.to_string())?;
    let map = read_map(&mut conn).map_err(|e| e.to_string())?;
    found.tables = map.tables().len();
    let rows = conn.query_rows(&format!("pragma integrity_check({FINDINGS_MAX})")).map_err(|e| e.to_string())?;
    for row in rows {
        match row.first() {
            Some(Value::Text(finding)) if finding != "ok" => found.problems.push(format!("integrity_check: {finding}")),
            _ => {}
        }
    }
    let orphaned = conn.query_rows("pragma foreign_key_check").map_err(|e| e.to_string())?.len();
    if orphaned > 0 {
        found.notes.push(format!("{orphaned} rows refer to a parent row that does not exist (foreign_key_check)"));
    }
    Ok(())
}
