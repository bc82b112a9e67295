//! An archive in a directory: a local disk, a network file system.
//!
//! An object is written under a name of this node's own, synced, renamed to its name only if no object has that name,
//! and the directory is synced: after a power cut the object is there whole or not at all. It is read past the page
//! cache, so the bytes come from the device.
//!
//! If an object's name belongs to something that is not a regular file, it is reported as damage and never opened:
//! opening a pipe blocks until another program writes into it, possibly indefinitely.
//!
//! The directory itself must exist. It is never created here: where a file system is not mounted, its mount point would
//! be filled instead.

use std::io::{self, ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use holdfast_seams::{AlignedBuf, BLOCK_BYTES, Create, Disk, OpenHow};

use crate::error::{ArchiveError, blocking};
use crate::store::{Listed, Pending, Put, Store};

/// Bytes of one write or read.
const CHUNK_BYTES: usize = 1 << 20;

/// Describes, in messages, something that is not a regular file.
const NOT_REGULAR: &str = "not a regular file but a directory, a pipe or a device";

/// The archive's own directory does not exist.
#[derive(Debug, thiserror::Error)]
#[error("the archive directory does not exist")]
struct NoRoot;

/// An archive in a directory.
#[derive(Clone)]
pub struct FileStore {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    /// Part of the names under which this node writes temporary files.
    node: String,
    place: String,
}

impl FileStore {
    /// Opens the archive. `node` must be unique among the nodes; letters, digits, "_", "-" and ".".
    pub fn new(disk: Arc<dyn Disk>, root: &Path, node: &str) -> FileStore {
        FileStore { disk, root: root.to_owned(), node: node.to_owned(), place: root.display().to_string() }
    }

    fn put_blocking(&self, name: &str, object: &[u8]) -> io::Result<Put> {
        self.check_root()?;
        let path = self.root.join(name);
        let dir = path.parent().unwrap_or(&self.root);
        if self.disk.metadata(&path)?.is_some() {
            // The node that put it may have been killed before its name was durable.
            self.disk.sync_dir(dir)?;
            self.disk.sync_dir(&self.root)?;
            return Ok(Put::Exists);
        }
        if dir != self.root {
            self.disk.create_dir(dir)?;
        }
        let new = self.root.join(format!("{name}.{}.new", self.node));
        let put = self.write(&new, object).and_then(|()| match self.disk.rename_new(&new, &path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Put::Exists),
            renamed => renamed.map(|()| Put::Done),
        });
        if !matches!(put, Ok(Put::Done)) {
            // The partly written file is removed; if that fails too, the next attempt overwrites it.
            let _ = self.disk.remove(&new);
        }
        let put = put?;
        self.disk.sync_dir(dir)?;
        // The process that made the directory may have been killed before its name was durable.
        self.disk.sync_dir(&self.root)?;
        Ok(put)
    }

    fn check_root(&self) -> io::Result<()> {
        match self.disk.list(&self.root) {
            Err(error) if error.kind() == ErrorKind::NotFound => Err(io::Error::new(error.kind(), NoRoot)),
            listed => listed.map(drop),
        }
    }

    /// The error of an operation on an object, or that the archive directory is missing.
    fn failed(&self, what: &'static str, name: String, error: io::Error) -> ArchiveError {
        match error.get_ref() {
            Some(cause) if cause.is::<NoRoot>() => ArchiveError::NoDirectory { place: self.place.clone() },
            _ => ArchiveError::store(what, name, error),
        }
    }

    fn write(&self, path: &Path, object: &[u8]) -> io::Result<()> {
        if self.disk.metadata(path)?.is_some_and(|there| !there.is_regular) {
            return Err(io::Error::other(format!("{} is {NOT_REGULAR}; move it away", path.display())));
        }
        let how = OpenHow { create: Create::IfMissing, write: true, ..OpenHow::default() };
        let file = self.disk.open(path, &how)?;
        file.set_len(0)?;
        for (index, chunk) in object.chunks(CHUNK_BYTES).enumerate() {
            file.write_at(&[IoSlice::new(chunk)], (index * CHUNK_BYTES) as u64)?;
        }
        file.sync_all()
    }

    /// Reads like [`Self::read`], but only files that can be read without blocking.
    fn read_regular(&self, name: String, bytes_max: u64, whole: bool) -> Result<Option<Bytes>, ArchiveError> {
        let read = match self.disk.metadata(&self.root.join(&name)) {
            Ok(Some(there)) if !there.is_regular => {
                return Err(ArchiveError::Damaged { name, what: format!("it is {NOT_REGULAR}") });
            }
            Ok(Some(_)) => self.read(&name, bytes_max, whole),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        read.map_err(|error| ArchiveError::store("read", name, error))
    }

    /// Reads at most `bytes_max` bytes from the beginning.
    fn read(&self, name: &str, bytes_max: u64, whole: bool) -> io::Result<Option<Bytes>> {
        let file = match self.disk.open(&self.root.join(name), &OpenHow::READ_DIRECT) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let bytes = file.len_bytes()?;
        if whole && bytes > bytes_max {
            return Err(io::Error::other(format!("it is {bytes} bytes long; the limit is {bytes_max} bytes")));
        }
        let bytes = bytes.min(bytes_max) as usize;
        let mut object = Vec::with_capacity(bytes);
        let mut buf = AlignedBuf::zeroed(CHUNK_BYTES.min(bytes.next_multiple_of(BLOCK_BYTES)));
        while object.len() < bytes {
            let read = file.read_at(buf.as_mut_slice(), object.len() as u64)?;
            if read == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            object.extend_from_slice(&buf.as_slice()[..read.min(bytes - object.len())]);
        }
        Ok(Some(object.into()))
    }

    fn remove_blocking(&self, name: &str) -> io::Result<()> {
        self.check_root()?;
        let path = self.root.join(name);
        match self.disk.remove(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed.and_then(|()| self.disk.sync_dir(path.parent().unwrap_or(&self.root))),
        }
    }

    fn list_blocking(&self, directory: &str, from: &str) -> io::Result<Vec<Listed>> {
        self.check_root()?;
        if directory.is_empty() {
            let names = self.disk.list(&self.root)?;
            let directories = names.iter().filter(|name| crate::name::parse_trail_id(name).is_some());
            return directories
                .map(|name| self.list_blocking(name, from))
                .collect::<io::Result<Vec<_>>>()
                .map(|l| l.concat());
        }
        let dir = self.root.join(directory);
        let names = match self.disk.list(&dir) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            listed => listed?,
        };
        let mut listed = Vec::new();
        for name in names.into_iter().filter(|name| name.as_str() >= from) {
            // An object that was removed meanwhile is skipped.
            if let Some(metadata) = self.disk.metadata(&dir.join(&name))? {
                listed.push(Listed { name: format!("{directory}/{name}"), bytes: metadata.len_bytes });
            }
        }
        Ok(listed)
    }
}

impl Store for FileStore {
    fn place(&self) -> &str {
        &self.place
    }

    fn put_new<'a>(&'a self, name: &'a str, object: Bytes) -> Pending<'a, Put> {
        let (store, owned) = (self.clone(), name.to_owned());
        Box::pin(blocking(move || {
            store.put_blocking(&owned, &object).map_err(|error| store.failed("put", owned, error))
        }))
    }

    fn get<'a>(&'a self, name: &'a str, bytes_max: u64) -> Pending<'a, Option<Bytes>> {
        let (store, owned) = (self.clone(), name.to_owned());
        Box::pin(blocking(move || store.read_regular(owned, bytes_max, true)))
    }

    fn get_head<'a>(&'a self, name: &'a str, bytes: u64) -> Pending<'a, Option<Bytes>> {
        let (store, owned) = (self.clone(), name.to_owned());
        Box::pin(blocking(move || store.read_regular(owned, bytes, false)))
    }

    fn remove<'a>(&'a self, name: &'a str) -> Pending<'a, ()> {
        let (store, owned) = (self.clone(), name.to_owned());
        Box::pin(blocking(move || store.remove_blocking(&owned).map_err(|error| store.failed("remove", owned, error))))
    }

    fn list<'a>(&'a self, directory: &'a str) -> Pending<'a, Vec<Listed>> {
        self.list_from(directory, "")
    }

    fn list_from<'a>(&'a self, directory: &'a str, from: &'a str) -> Pending<'a, Vec<Listed>> {
        let (store, owned, from) = (self.clone(), directory.to_owned(), from.to_owned());
        Box::pin(blocking(move || {
            store.list_blocking(&owned, &from).map_err(|error| store.failed("list", owned, error))
        }))
    }
}
