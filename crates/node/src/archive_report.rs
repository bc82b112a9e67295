//! Reports what is in an archive, compared with the trail of a data directory: for `holdfast archive`.
//!
//! The server may run meanwhile. Nothing is changed.

use crate::config::{Config, FILE_NAME};
use holdfast_archive::{
    ArchiveError, ArchiveLocation, Holdings, Keys, Manifest, ObjectName, Report, Store, check_still_there, object,
    verify,
};
use holdfast_engine::Engine;
use holdfast_seams::RealDisk;
use holdfast_trail::{Outline, TrailError, TrailId};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;

/// Why an archive cannot be inspected.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveReportError {
    #[error("cannot read {path}: {source}; name the archive with --archive")]
    Config { path: String, source: std::io::Error },
    #[error("{path}: {message}")]
    Content { path: String, message: String },
    #[error("{path} configures no archive; add the setting archive, or name the archive with --archive")]
    None { path: String },
    #[error("cannot start: {0}")]
    Start(#[from] std::io::Error),
    #[error(transparent)]
    Trail(#[from] TrailError),
    #[error(transparent)]
    Archive(#[from] ArchiveError),
}

/// The content of an archive.
#[derive(Debug, Serialize)]
pub struct ArchiveReport {
    pub place: String,
    /// The trail of the data directory; without a directory all trails.
    pub trails: Vec<TrailReport>,
}

/// What the archive holds of one trail.
#[derive(Debug, Serialize)]
pub struct TrailReport {
    pub trail_id: String,
    pub objects: u64,
    pub bytes: u64,
    pub first: Option<Part>,
    pub last: Option<Part>,
    /// First and last segment of each gap.
    pub gaps: Vec<(u32, u32)>,
    /// Segments of which there is more than one object.
    pub forked: Vec<u32>,
    /// The oldest segment that the data directory's trail still has.
    pub trail_begins: Option<u32>,
    /// Segments that are neither in the archive nor in that trail any more.
    pub missing: Option<(u32, u32)>,
    /// The object archived last for this trail, where the archive does not have it: it is another archive, or is not mounted.
    pub lost: Option<String>,
    pub verified: Option<Report>,
}

/// The first or last object.
#[derive(Debug, Serialize)]
pub struct Part {
    pub object: String,
    pub segment: u32,
    pub first_lsn: u64,
    pub end_lsn: u64,
    pub first_written_unix_ms: u64,
    pub last_written_unix_ms: u64,
}

impl TrailReport {
    /// Whether everything is there that rolling forward needs, as far as was checked.
    pub fn is_sound(&self) -> bool {
        let damaged = self.verified.as_ref().is_some_and(|report| !report.problems.is_empty());
        !damaged && self.gaps.is_empty() && self.missing.is_none() && self.lost.is_none()
    }
}

/// Inspects the archive of a data directory, or the one that `place` names. `progress` is called after each object that is
/// read.
pub fn archive_report(
    dir: &Path,
    place: Option<&str>,
    identity: Option<&Path>,
    verifies: bool,
    progress: impl FnMut(),
) -> Result<ArchiveReport, ArchiveReportError> {
    let disk = Arc::new(RealDisk::new());
    let outline = Outline::of(&*disk, &dir.join("trail"))?;
    let path = dir.join(FILE_NAME).display().to_string();
    let (text, mut keys) = match place {
        Some(place) => (place.to_owned(), Keys::default()),
        None => configured(dir, &path)?,
    };
    keys.identity = identity.map(Path::to_owned).or(keys.identity);
    let place = ArchiveLocation::parse(&text)?.ok_or(ArchiveReportError::None { path })?;
    let last = Engine::last_archived_in(&*disk, dir).ok().flatten();
    let store = place.open_with(disk, "report", keys)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let own_last = last.as_deref().and_then(ObjectName::parse);
    let mut report = runtime.block_on(look(&*store, outline, own_last, verifies, progress))?;
    if let Some(last) = last.filter(|_| outline.is_some())
        && runtime.block_on(check_still_there(&*store, &last)).is_err()
    {
        report.trails.iter_mut().for_each(|trail| trail.lost = Some(last.clone()));
    }
    Ok(report)
}

fn configured(dir: &Path, path: &str) -> Result<(String, Keys), ArchiveReportError> {
    let text = std::fs::read_to_string(dir.join(FILE_NAME));
    let text = text.map_err(|source| ArchiveReportError::Config { path: path.to_owned(), source })?;
    match Config::parse(&text) {
        Ok(config) => Ok((config.archive.clone(), config.archive_keys())),
        Err(message) => Err(ArchiveReportError::Content { path: path.to_owned(), message }),
    }
}

async fn look(
    store: &dyn Store,
    outline: Option<Outline>,
    own_last: Option<ObjectName>,
    verifies: bool,
    mut progress: impl FnMut(),
) -> Result<ArchiveReport, ArchiveError> {
    let mut trails: Vec<(TrailId, Holdings)> = match outline {
        Some(outline) => vec![(outline.trail_id, Holdings::of(store, outline.trail_id).await?)],
        None => Holdings::of_all(store).await?.into_values().collect(),
    };
    let mut report = ArchiveReport { place: store.place().to_owned(), trails: Vec::new() };
    for (trail_id, holdings) in trails.drain(..) {
        let verified = match verifies {
            true => Some(verify(store, &holdings, &mut progress).await?),
            false => None,
        };
        // Nodes whose history diverged from this one's have objects of their own there.
        let own = own_last.map_or_else(|| holdings.clone(), |last| holdings.up_to(&last));
        let mut trail = outlined(trail_id, &holdings, &own, outline);
        // `verify` reports a header that cannot be read.
        trail.first = part(store, &own, own.first_segment()).await.ok().flatten();
        trail.last = part(store, &own, own.last_segment()).await.ok().flatten();
        trail.verified = verified;
        report.trails.push(trail);
    }
    Ok(report)
}

fn outlined(trail_id: TrailId, holdings: &Holdings, own: &Holdings, outline: Option<Outline>) -> TrailReport {
    let begins = outline.map(|outline| outline.first_segment);
    let missing = own.last_segment().zip(begins).filter(|(last, begins)| *last + 1 < *begins);
    TrailReport {
        trail_id: trail_id.to_string(),
        objects: holdings.objects().count() as u64,
        bytes: holdings.bytes(),
        first: None,
        last: None,
        gaps: own.gaps(),
        forked: holdings.forked(),
        trail_begins: begins,
        missing: missing.map(|(last, begins)| (last + 1, begins - 1)),
        lost: None,
        verified: None,
    }
}

/// The object of a segment; of several objects the one with the highest epoch.
async fn part(store: &dyn Store, holdings: &Holdings, segment: Option<u32>) -> Result<Option<Part>, ArchiveError> {
    let Some(name) = segment.and_then(|segment| holdings.names(segment).first().copied()) else { return Ok(None) };
    let Some(head) = store.get_head(&name.to_string(), object::HEADER_BYTES as u64).await? else { return Ok(None) };
    let manifest = Manifest::decode(&name, &head)?;
    Ok(Some(Part {
        object: name.to_string(),
        segment: name.segment,
        first_lsn: manifest.first.0,
        end_lsn: manifest.end.0,
        first_written_unix_ms: manifest.first_written_unix_ms,
        last_written_unix_ms: manifest.last_written_unix_ms,
    }))
}
