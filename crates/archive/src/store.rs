//! The interface to the store that keeps an archive's objects.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use crate::error::ArchiveError;

/// A pending answer of a store.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, ArchiveError>> + Send + 'a>>;

/// The result of putting an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// The object is in the store, durably as far as the store reports.
    Done,
    /// An object with that name already exists; it was left as it is.
    Exists,
}

/// An object as a store lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// The name including the directory, as in [`crate::ObjectName`].
    pub name: String,
    pub bytes: u64,
}

/// Keeps objects. Dropping a future stops waiting; the operation that it began may still happen.
pub trait Store: Send + Sync {
    /// Location of the store, for messages. It contains no secrets.
    fn place(&self) -> &str;

    /// Puts a whole object, unless one with that name exists.
    fn put_new<'a>(&'a self, name: &'a str, object: Bytes) -> Pending<'a, Put>;

    /// Reads a whole object from the store; `None` when it does not exist. An object longer than `bytes_max` is an
    /// error and is not read.
    fn get<'a>(&'a self, name: &'a str, bytes_max: u64) -> Pending<'a, Option<Bytes>>;

    /// Reads the first `bytes` of an object, or all of a shorter one.
    fn get_head<'a>(&'a self, name: &'a str, bytes: u64) -> Pending<'a, Option<Bytes>>;

    /// Removes an object; no error if it does not exist. Of an archive only [`crate::remove_needless`] does.
    fn remove<'a>(&'a self, name: &'a str) -> Pending<'a, ()>;

    /// Lists the objects in a directory, or in all directories when `directory` is empty. In no particular order.
    fn list<'a>(&'a self, directory: &'a str) -> Pending<'a, Vec<Listed>>;

    /// Lists the objects in a directory whose names, behind the directory's, are `from` or later in the order of their bytes.
    /// Stores that can begin a list there do; of the others the whole directory is listed.
    fn list_from<'a>(&'a self, directory: &'a str, from: &'a str) -> Pending<'a, Vec<Listed>> {
        Box::pin(async move {
            let mut listed = self.list(directory).await?;
            listed.retain(|object| is_from(&object.name, directory, from));
            Ok(listed)
        })
    }
}

/// Whether an object in a directory has a name from `from` on.
pub(crate) fn is_from(name: &str, directory: &str, from: &str) -> bool {
    let file = name.strip_prefix(directory).and_then(|rest| rest.strip_prefix('/'));
    file.is_some_and(|file| file >= from)
}
