//! The archive: finished segments of the trail, each an object in a directory or an object store, so that the trail can
//! recycle them and nothing of it is lost.
//!
//! An object ([`object`]) holds the boxcars of one segment as they travel between nodes, the same bytes on every node that
//! has them. Its name ([`name`]) says trail, epoch and segment. A [`Store`] keeps objects: [`FileStore`] through the disk
//! seam, `CloudStore` (with the feature `object-stores`) at S3, Google or Azure; [`ArchiveLocation`] is what stands in the settings; [`SealedStore`] encrypts what goes to either, and of a [`TimedStore`] requests end that are not answered. [`put`] archives a segment and
//! reads it back; [`Holdings`] is what a store lists; [`History`] reads a trail back, for standbys that lack what its
//! master has recycled; [`verify`] reads everything.
//!
//! Two nodes may archive the same trail: an object is put only if no object has its name, so none is ever overwritten.
//! An existing object must hold the same boxcars; if it does not, two nodes have written different trails in one epoch,
//! and the second one gets an error and keeps its segments. A new master writes in a higher epoch and therefore under
//! other names. The checksums decide which of several objects of one segment belongs to a given trail: each boxcar has
//! the checksum of the one before it.
//!
//! How it fails: every error names the object. A segment that cannot be archived stays in the trail, and the caller
//! tries again. Damage is found when an object is read, by its own checksums and those of each boxcar, and is never
//! repaired here.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

#[cfg(feature = "object-stores")]
mod cloud;
mod error;
mod file;
mod forget;
mod history;
mod holdings;
mod keys;
mod location;
pub mod name;
pub mod object;
mod put;
mod sealed;
mod store;
mod timed;
mod verify;

#[cfg(feature = "object-stores")]
pub use cloud::CloudStore;
pub use error::ArchiveError;
pub use file::FileStore;
pub use forget::{Needless, Removed, remove_needless};
pub use history::History;
pub use holdings::{Holding, Holdings};
pub use keys::{Expects, Keys, new_identity};
pub use location::ArchiveLocation;
pub use name::ObjectName;
pub use object::{Codec, Manifest, Segment};
pub use put::{Kept, check_only_server, check_still_there, is_archived, put};
pub use sealed::{PlaceKey, SealedStore};
pub use store::{Listed, Pending, Put, Store};
pub use timed::TimedStore;
pub use verify::{Finding, Report, verify};
