//! What an archive asks of whatever keeps its objects.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

use crate::error::ArchiveError;

/// A store's answer that is on its way.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = Result<T, ArchiveError>> + Send + 'a>>;

/// What came of putting an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Put {
    /// It is there, durably as far as the store says.
    Done,
    /// There is one of that name already; it was left as it is.
    Exists,
}

/// An object as a store lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// With the directory in front, as in [`crate::ObjectName`].
    pub name: String,
    pub bytes: u64,
}

/// Keeps objects. Dropping a future gives up waiting; what it began may still come about.
pub trait Store: Send + Sync {
    /// Where it is, for messages. No secrets.
    fn place(&self) -> &str;

    /// Puts an object whole, unless there is one of that name.
    fn put_new<'a>(&'a self, name: &'a str, object: Bytes) -> Pending<'a, Put>;

    /// An object, read anew and whole; `None` when there is none. One that is longer than `bytes_max` is an error, and is
    /// not read.
    fn get<'a>(&'a self, name: &'a str, bytes_max: u64) -> Pending<'a, Option<Bytes>>;

    /// The first `bytes` of an object, or all of a shorter one.
    fn get_head<'a>(&'a self, name: &'a str, bytes: u64) -> Pending<'a, Option<Bytes>>;

    /// The objects in a directory; of all directories when that is empty. In no order.
    fn list<'a>(&'a self, directory: &'a str) -> Pending<'a, Vec<Listed>>;
}
