//! Puts a dump's pages into the files of a new data directory. Each chunk is fetched once, whole, and its pages are written
//! to wherever they belong; several chunks at a time. A chunk is not fetched if all its pages are there already, by their hashes in
//! the manifest: an earlier restore was interrupted.
//!
//! Failure: a chunk that is missing or damaged ends it, by name. At the end every page is read back and its own checksum
//! checked ([`BaseReceiver::adopt`]).

use super::error::RestoreError;
use super::options::{RestoreOptions, Step, VOLUMES, io_error};
use crate::error::DumpError;
use crate::manifest::{Manifest, PAGE_HASH_BYTES, page_hash};
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
    let (files, left) = create_files(manifest, disk, options)?;
    let mut parts: Vec<Vec<Part>> = manifest.chunks.iter().map(|_| Vec::new()).collect();
    for (volume, map) in manifest.volumes.iter().enumerate() {
        let mut first_page = 0;
        for run in &map.runs {
            parts[run.chunk as usize].push(Part { volume, first_page, slot: run.slot, pages: run.pages });
            first_page += run.pages;
        }
    }
    let (done, total_bytes) = (AtomicU64::new(0), manifest.head.bytes);
    // Of a part of a dump, not all chunks are needed.
    let needed = manifest.chunks.iter().zip(parts).filter(|(_, parts)| !parts.is_empty());
    for_each(options.threads, needed, |(chunk, parts)| {
        let mut bytes: u64 = parts.iter().map(|part| u64::from(part.pages) * PAGE_BYTES as u64).sum();
        if left && all_there(manifest, &files, &parts)? {
            let done_bytes = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
            progress(Step::Pages { done_bytes, total_bytes });
            return Ok(());
        }
        let pages = repository.chunk(&chunk.id, dump)?;
        bytes = 0;
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

/// Whether all parts of a chunk are in their files.
fn all_there(manifest: &Manifest, files: &[OpenFile], parts: &[Part]) -> Result<bool, RestoreError> {
    for part in parts {
        if !is_there(manifest, files, part)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a part of a chunk is in its file.
fn is_there(manifest: &Manifest, files: &[OpenFile], part: &Part) -> Result<bool, RestoreError> {
    let ((path, file), map) = (&files[part.volume], &manifest.volumes[part.volume]);
    let mut page = [0; PAGE_BYTES];
    for number in part.first_page..part.first_page + part.pages {
        let at = u64::from(number) * PAGE_BYTES as u64;
        let read = file.read_at(&mut page, at).map_err(io_error("read", path))?;
        let from = number as usize * PAGE_HASH_BYTES;
        let hash = map.hashes.get(from..from + PAGE_HASH_BYTES);
        if read < PAGE_BYTES || hash != Some(&page_hash(&page)) {
            return Ok(false);
        }
    }
    Ok(true)
}

type OpenFile = (PathBuf, Box<dyn DiskFile>);

/// The files under their temporary names, which [`BaseReceiver::adopt`] expects, and whether an earlier restore has left one of
/// them. It has checked the list.
fn create_files(
    manifest: &Manifest,
    disk: &dyn Disk,
    options: &RestoreOptions<'_>,
) -> Result<(Vec<OpenFile>, bool), RestoreError> {
    let list = DatabaseList::parse(&manifest.head.plan.manifest).map_err(RestoreError::Settings)?;
    let how = OpenHow { create: Create::IfMissing, write: true, ..OpenHow::default() };
    let (mut files, mut left) = (Vec::new(), false);
    for (entry, volume) in list.databases.iter().zip(&manifest.head.plan.volumes) {
        let path = options.dir.join(&entry.file).with_extension("db.new");
        let file = disk.open(&path, &how).map_err(io_error("create", &path))?;
        left |= file.len_bytes().map_err(io_error("look at", &path))? > 0;
        // What an earlier restore, of another moment perhaps, has behind the end.
        file.set_len(u64::from(volume.pages) * PAGE_BYTES as u64).map_err(io_error("create", &path))?;
        files.push((path, file));
    }
    remove_others(&files, options)?;
    Ok((files, left))
}

/// Removes files of databases that this dump does not have.
fn remove_others(files: &[OpenFile], options: &RestoreOptions<'_>) -> Result<(), RestoreError> {
    let dir = options.dir.join(VOLUMES);
    for entry in std::fs::read_dir(&dir).map_err(io_error("list", &dir))? {
        let path = entry.map_err(io_error("list", &dir))?.path();
        if !files.iter().any(|(known, _)| *known == path) {
            std::fs::remove_file(&path).map_err(io_error("remove", &path))?;
        }
    }
    Ok(())
}

/// Checks every page, and makes the directory one that follows the dump's trail.
pub fn adopt(mut receiver: BaseReceiver, volumes: usize) -> Result<(), DumpError> {
    for _ in 0..volumes {
        receiver.adopt()?;
    }
    Ok(receiver.finish()?)
}
