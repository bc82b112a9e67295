//! Puts a dump's pages into the files of a new data directory. Each chunk is fetched once, whole, and its pages are written
//! to wherever they belong; several chunks at a time.
//!
//! Failure: a chunk that is missing or damaged ends it, by name. At the end every page is read back and its own checksum
//! checked ([`BaseReceiver::adopt`]).

use super::error::RestoreError;
use super::options::{RestoreOptions, Step, io_error};
use crate::error::DumpError;
use crate::manifest::Manifest;
use crate::parallel::for_each;
use crate::repository::Repository;
use holdfast_engine::{BaseReceiver, Manifest as DatabaseList};
use holdfast_seams::{Create, Disk, DiskFile, OpenHow};
use holdfast_standby::limits::PAGE_BYTES;
use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a part of a chunk belongs.
struct Part {
    volume: usize,
    first_page: u32,
    slot: u32,
    pages: u32,
}

/// Writes all pages; returns the number of volumes.
pub fn lay(
    repository: &Repository,
    manifest: &Manifest,
    dump: &str,
    disk: &dyn Disk,
    options: &RestoreOptions<'_>,
    progress: &(dyn Fn(Step) + Sync),
) -> Result<usize, DumpError> {
    let files = create_files(manifest, disk, options)?;
    let mut parts: Vec<Vec<Part>> = manifest.chunks.iter().map(|_| Vec::new()).collect();
    for (volume, map) in manifest.volumes.iter().enumerate() {
        let mut first_page = 0;
        for run in &map.runs {
            parts[run.chunk as usize].push(Part { volume, first_page, slot: run.slot, pages: run.pages });
            first_page += run.pages;
        }
    }
    let (done, total_bytes) = (AtomicU64::new(0), manifest.head.bytes);
    for_each(options.threads, manifest.chunks.iter().zip(parts), |(chunk, parts)| {
        let pages = repository.chunk(&chunk.id, dump)?;
        let mut bytes = 0;
        for part in parts {
            let (path, file) = &files[part.volume];
            let (from, length) = (part.slot as usize * PAGE_BYTES, part.pages as usize * PAGE_BYTES);
            let content = pages.get(from..from + length).ok_or_else(|| DumpError::Damaged {
                name: chunk.id.name(),
                what: format!("it has fewer pages than {dump} names"),
            })?;
            let at = u64::from(part.first_page) * PAGE_BYTES as u64;
            file.write_at(&[IoSlice::new(content)], at).map_err(io_error("write", path))?;
            bytes += length as u64;
        }
        let done_bytes = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        progress(Step::Pages { done_bytes, total_bytes });
        Ok(())
    })?;
    Ok(files.len())
}

type OpenFile = (PathBuf, Box<dyn DiskFile>);

/// The files under their temporary names, which [`BaseReceiver::adopt`] expects. It has checked the list.
fn create_files(
    manifest: &Manifest,
    disk: &dyn Disk,
    options: &RestoreOptions<'_>,
) -> Result<Vec<OpenFile>, RestoreError> {
    let list = DatabaseList::parse(&manifest.head.plan.manifest).map_err(RestoreError::Settings)?;
    let how = OpenHow { create: Create::New, write: true, ..OpenHow::default() };
    let create = |entry: &holdfast_engine::Entry| {
        let path = options.dir.join(&entry.file).with_extension("db.new");
        let file = disk.open(&path, &how).map_err(io_error("create", &path))?;
        Ok((path, file))
    };
    list.databases.iter().map(create).collect()
}

/// Checks every page, and makes the directory one that follows the dump's trail.
pub fn adopt(mut receiver: BaseReceiver, volumes: usize) -> Result<(), DumpError> {
    for _ in 0..volumes {
        receiver.adopt()?;
    }
    Ok(receiver.finish()?)
}
