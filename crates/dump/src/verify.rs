//! Reads everything that dumps consist of, and checks every byte.
//!
//! Failure: what is damaged or missing is listed with the dumps that need it; only a store that does not answer is an error.

use crate::chunk::ChunkId;
use crate::error::DumpError;
use crate::manifest::Manifest;
use crate::parallel::for_each;
use crate::repository::Repository;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::BTreeMap;

/// The result for a place.
#[derive(Serialize, Debug, Default)]
pub struct Verified {
    pub place: String,
    pub dumps: usize,
    pub chunks: u64,
    /// Bytes of pages that were read.
    pub bytes: u64,
    pub problems: Vec<Problem>,
}

/// What is wrong with an object.
#[derive(Serialize, Debug)]
pub struct Problem {
    pub object: String,
    pub what: String,
    /// The dumps that need it.
    pub dumps: Vec<String>,
}

/// Reads all dumps, or one. `progress` is called with the bytes of pages read and to be read.
pub fn verify(
    repository: &Repository,
    only: Option<&str>,
    threads: usize,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Verified, DumpError> {
    let place = repository.place().to_owned();
    let mut listed = repository.dumps()?;
    listed.retain(|dump| only.is_none_or(|only| dump.name == only));
    if let Some(only) = only.filter(|_| listed.is_empty()) {
        return Err(DumpError::NoDump { place, which: format!(" {only}") });
    }
    let mut report = Verified { place, dumps: listed.len(), ..Verified::default() };
    let mut needed: BTreeMap<ChunkId, (u32, Vec<String>)> = BTreeMap::new();
    for dump in &listed {
        match repository.manifest(&dump.name) {
            Ok(Manifest { chunks, .. }) => {
                for chunk in chunks {
                    let (pages, dumps) = needed.entry(chunk.id).or_default();
                    *pages = (*pages).max(chunk.pages);
                    dumps.push(dump.name.clone());
                }
            }
            Err(error) => {
                report.problems.push(problem(&dump.name, error, vec![dump.name.clone()])?);
            }
        }
    }
    let page_bytes = holdfast_standby::limits::PAGE_BYTES as u64;
    let total_bytes: u64 = needed.values().map(|(pages, _)| u64::from(*pages) * page_bytes).sum();
    let found = Mutex::new(report);
    for_each(threads, needed, |(id, (pages, dumps))| {
        let read = repository.chunk(&id, dumps.first().map_or("", String::as_str));
        let mut report = found.lock();
        match read {
            Ok(content) if content.len() as u64 == u64::from(pages) * page_bytes => report.chunks += 1,
            Ok(content) => {
                let what = format!("it has {} pages; a manifest names {pages}", content.len() as u64 / page_bytes);
                report.problems.push(Problem { object: id.name(), what, dumps });
            }
            Err(error) => report.problems.push(problem(&id.name(), error, dumps)?),
        }
        report.bytes += u64::from(pages) * page_bytes;
        progress(report.bytes, total_bytes);
        Ok(())
    })?;
    Ok(found.into_inner())
}

/// An error about the object is a finding; any other is one.
fn problem(object: &str, error: DumpError, dumps: Vec<String>) -> Result<Problem, DumpError> {
    let what = match error {
        DumpError::Damaged { what, .. } => format!("damaged: {what}"),
        DumpError::Missing { .. } => "missing".to_owned(),
        error @ (DumpError::Newer { .. } | DumpError::OtherKey(_)) => error.to_string(),
        // A store reports an object that is too long, or not a file, in its own words.
        DumpError::Store { source, .. } => format!("cannot be read: {source}"),
        other => return Err(other),
    };
    Ok(Problem { object: object.to_owned(), what, dumps })
}
