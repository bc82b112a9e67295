//! The archive: finished segments of the trail, each an object in a directory or an object store, so that the trail may
//! recycle them and yet nothing of it is lost.
//!
//! An object ([`object`]) holds the boxcars of one segment as they travel between nodes, the same bytes on every node that
//! has them. Its name ([`name`]) says trail, epoch and segment. A [`Store`] keeps objects: [`FileStore`] through the disk
//! seam, [`CloudStore`] at S3, Google or Azure; [`Place`] is what stands in the settings. [`put`] archives a segment and
//! reads it back; [`Holdings`] is what a store lists; [`History`] reads a trail back, for standbys that lack what its
//! master has recycled; [`verify`] reads everything.
//!
//! Two nodes may archive the same trail: an object is put only where there is none of its name, so none is ever
//! overwritten. Where there is one it must hold the same boxcars; if not, two nodes have written different trails in the
//! same epoch, and whoever comes second is told so and keeps its segments. A new master writes in a higher epoch and
//! thereby under other names. Which of several objects of one segment belongs to a given trail is told by the checksums:
//! each boxcar names the one before it.
//!
//! How it fails: every error names the object. What cannot be archived is tried again by the caller and stays in the
//! trail meanwhile. Damage is found when an object is read, by its own checksums and those of each boxcar, and is never
//! repaired here.

mod cloud;
mod error;
mod file;
mod history;
mod holdings;
pub mod name;
pub mod object;
mod place;
mod put;
mod store;
mod verify;

pub use cloud::CloudStore;
pub use error::ArchiveError;
pub use file::FileStore;
pub use history::History;
pub use holdings::{Holding, Holdings};
pub use name::ObjectName;
pub use object::{Codec, Manifest, Segment};
pub use place::Place;
pub use put::{Kept, check_still_there, is_archived, put};
pub use store::{Listed, Pending, Put, Store};
pub use verify::{Finding, Report, verify};
