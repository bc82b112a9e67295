//! A place with dumps: a directory or an object store, as an archive is one ([`holdfast_archive::ArchiveLocation`]).
//!
//! | folder | objects |
//! |---|---|
//! | `dumps` | manifests, one for each dump |
//! | `chunks` | pages; several dumps use the same chunk |
//! | `running` | marks of commands at work ([`crate::running`]) |
//!
//! Dumps of several servers may lie in one place. Everything that is read is checked; see the formats.

use crate::chunk::{self, ChunkId, Naming};
use crate::error::DumpError;
use crate::manifest::{self, Head, Manifest};
use bytes::Bytes;
use holdfast_archive::{ArchiveError, ArchiveLocation, Expects, Keys, Listed, Put, SealedStore, Store};
use holdfast_seams::RealDisk;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Threads of the runtime: the store's own work runs on them.
const RUNTIME_THREADS: usize = 2;

/// See the module. Its methods block.
pub struct Repository {
    store: Arc<SealedStore>,
    keys: Keys,
    archive_identity: Option<PathBuf>,
    runtime: Runtime,
}

/// A dump as a list shows it.
#[derive(Debug)]
pub struct Listing {
    /// The manifest's name.
    pub name: String,
    /// Of the manifest.
    pub bytes: u64,
    /// An error: it cannot be read.
    pub head: Result<Head, DumpError>,
}

impl Repository {
    /// Opens a place by its URL or path; relative paths are allowed.
    pub fn open(place: &str) -> Result<Repository, DumpError> {
        Repository::open_with(place, Keys::default())
    }

    /// Opens a place that is, or becomes, encrypted.
    pub fn open_with(place: &str, keys: Keys) -> Result<Repository, DumpError> {
        keys.check().map_err(|error| DumpError::of_store(place, error))?;
        let refuse = |what: String| DumpError::Place { place: place.to_owned(), what };
        let is_relative = !place.contains("://") && !place.is_empty() && !place.starts_with('/');
        let whole = match is_relative {
            true => std::env::current_dir().map_err(|e| refuse(e.to_string()))?.join(place).display().to_string(),
            false => place.to_owned(),
        };
        let location = ArchiveLocation::parse(&whole).map_err(|error| DumpError::of_store(place, error))?;
        let location = location.ok_or_else(|| refuse("no place is given".to_owned()))?;
        // Part of the names of files that are not complete.
        let node = format!(
            "{}-{:08x}",
            std::process::id(),
            crate::running::random().map_err(|e| refuse(e.to_string()))? as u32
        );
        let store = location.open(Arc::new(RealDisk::new()), &node);
        Repository::over(store.map_err(|error| DumpError::of_store(place, error))?, keys)
    }

    /// Over any store.
    pub fn over(store: Arc<dyn Store>, keys: Keys) -> Result<Repository, DumpError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(RUNTIME_THREADS).enable_all().build();
        let place = store.place().to_owned();
        let runtime = runtime.map_err(|e| DumpError::Place { place, what: format!("cannot start: {e}") })?;
        Ok(Repository { store: Arc::new(SealedStore::new(store, keys.clone())), keys, archive_identity: None, runtime })
    }

    /// The archive that belongs to these dumps is encrypted, and this file has an identity for it.
    pub fn with_archive_identity(mut self, file: Option<PathBuf>) -> Repository {
        self.archive_identity = file;
        self
    }

    /// How the archive of these dumps is read. `is_encrypted`: the server's settings say that it is. Otherwise the identity of
    /// the dumps opens what is encrypted, and the archive may be plain.
    pub(crate) fn archive_keys(&self, is_encrypted: bool) -> Keys {
        let (identity, expects) = match &self.archive_identity {
            Some(file) => (Some(file.clone()), Expects::AsNamed),
            None if is_encrypted => (self.keys.identity.clone(), Expects::Encrypted),
            None => (self.keys.identity.clone(), Expects::Either),
        };
        Keys { encrypt_to: Vec::new(), identity, expects }
    }

    /// How its chunks are named.
    pub(crate) fn naming(&self) -> Result<Naming, DumpError> {
        let key = self.runtime.block_on(self.store.key(true)).map_err(|error| self.failed(error))?;
        Ok(Naming(key.map(|key| key.names)))
    }

    pub fn place(&self) -> &str {
        self.store.place()
    }

    fn failed(&self, error: ArchiveError) -> DumpError {
        DumpError::of_store(self.place(), error)
    }

    /// Puts an object that must not exist.
    pub(crate) fn put(&self, name: &str, object: Bytes) -> Result<Put, DumpError> {
        self.runtime.block_on(self.store.put_new(name, object)).map_err(|error| self.failed(error))
    }

    pub(crate) fn get(&self, name: &str, bytes_max: u64) -> Result<Option<Bytes>, DumpError> {
        self.runtime.block_on(self.store.get(name, bytes_max)).map_err(|error| self.failed(error))
    }

    fn get_head(&self, name: &str, bytes: u64) -> Result<Bytes, DumpError> {
        let read = self.runtime.block_on(self.store.get_head(name, bytes)).map_err(|error| self.failed(error))?;
        read.ok_or_else(|| self.missing(name, "its list"))
    }

    /// Whether an object is there, asked by its name.
    pub(crate) fn has(&self, name: &str) -> Result<bool, DumpError> {
        let read = self.runtime.block_on(self.store.get_head(name, 1)).map_err(|error| self.failed(error))?;
        Ok(read.is_some())
    }

    pub(crate) fn list(&self, directory: &str) -> Result<Vec<Listed>, DumpError> {
        self.runtime.block_on(self.store.list(directory)).map_err(|error| self.failed(error))
    }

    pub(crate) fn remove(&self, name: &str) -> Result<(), DumpError> {
        self.runtime.block_on(self.store.remove(name)).map_err(|error| self.failed(error))
    }

    /// Work on another store, by this one's runtime.
    pub(crate) fn wait<T>(&self, work: impl Future<Output = Result<T, ArchiveError>>) -> Result<T, DumpError> {
        Ok(self.runtime.block_on(work)?)
    }

    pub(crate) fn missing(&self, name: &str, needed_by: &str) -> DumpError {
        DumpError::Missing { name: name.to_owned(), place: self.place().to_owned(), needed_by: needed_by.to_owned() }
    }

    /// All dumps, the oldest first.
    pub fn dumps(&self) -> Result<Vec<Listing>, DumpError> {
        let mut listed = self.list(manifest::DIRECTORY)?;
        // Names with control characters are not of this program, and would reach terminals.
        listed.retain(|object| object.name.ends_with(".hfd") && !object.name.contains(char::is_control));
        // A name begins with the time.
        listed.sort_by(|a, b| a.name.cmp(&b.name));
        let listing = |Listed { name, bytes }| match self.head(&name, bytes) {
            // Of the whole place.
            Err(error @ DumpError::Key(_)) => Err(error),
            head => Ok(Listing { head, name, bytes }),
        };
        listed.into_iter().map(listing).collect()
    }

    /// `bytes`: how long the store says that the object is.
    fn head(&self, name: &str, bytes: u64) -> Result<Head, DumpError> {
        let mut read = self.get_head(name, manifest::HEAD_READ_BYTES)?;
        if let Some(whole) = manifest::head_bytes(&read).filter(|whole| *whole > read.len() as u64) {
            read = self.get_head(name, whole)?;
        }
        let (head, _) = manifest::decode_head(name, &read)?;
        match manifest::object_bytes(&read).filter(|whole| *whole != bytes) {
            Some(whole) => {
                let what = format!("it has {bytes} bytes, not the {whole} of its header");
                Err(DumpError::Damaged { name: name.to_owned(), what })
            }
            None => Ok(head),
        }
    }

    /// A whole manifest, every byte checked.
    pub(crate) fn manifest(&self, name: &str) -> Result<Manifest, DumpError> {
        let object = self.get(name, manifest::OBJECT_BYTES_MAX)?;
        let object = object.ok_or_else(|| self.missing(name, "the dump"))?;
        Manifest::decode(name, &object)
    }

    /// The chunks that are there, with the bytes of their objects.
    pub(crate) fn chunks(&self) -> Result<HashMap<ChunkId, u64>, DumpError> {
        let listed = self.list(chunk::DIRECTORY)?;
        Ok(listed.into_iter().filter_map(|o| ChunkId::parse(&o.name).map(|id| (id, o.bytes))).collect())
    }

    /// A chunk's pages, checked.
    pub(crate) fn chunk(&self, id: &ChunkId, needed_by: &str) -> Result<Vec<u8>, DumpError> {
        let object = self.get(&id.name(), chunk::OBJECT_BYTES_MAX)?;
        chunk::decode(&self.naming()?, id, &object.ok_or_else(|| self.missing(&id.name(), needed_by))?)
    }
}
