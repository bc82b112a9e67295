//! Dumps: copies of all databases of a running server in a directory or an object store, and the way back, to any moment
//! that the archive has.
//!
//! A dump is one state of all databases: its pages lie in chunks ([`chunk`]) that are named by their hash, and a manifest
//! ([`manifest`]) says which page is where. The next dump stores only pages that the one before it does not have. Chunks are
//! put, read back and compared one by one, the manifest last: a dump whose manifest is there is whole.
//!
//! | file | what |
//! |---|---|
//! | [`chunk`], [`manifest`] | the two formats, with their byte tables |
//! | [`repository`] | a place with dumps, in any [`holdfast_archive::Store`] |
//! | [`running`] | marks of commands at work, so that no chunk is removed that a dump under way uses |
//! | [`send`] | the copy that a running server sends |
//! | [`create`], [`fetch`], [`claim`] | makes a dump of that copy; which server's schedule dumps to a place |
//! | [`drill`], [`sums`] | restores to scratch, checks, and compares with the live server row by row |
//! | [`verify`], [`forget`] | reads everything; removes old dumps and what only they need, in the archive too |
//! | [`restore`] | a data directory from a dump, and the archive's trail applied to it |
//! | [`moment`], [`identifier`] | times as people write them; names in stored SQL |
//!
//! How it fails: an error names the object or the file. Nothing is repaired and nothing is overwritten. An interrupted dump
//! leaves chunks, which the next one uses; an interrupted restore leaves a directory that no server opens.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod archive_settings;
mod chunk;
mod claim;
mod create;
mod drill;
mod error;
mod fetch;
mod forget;
pub mod identifier;
mod manifest;
mod moment;
mod pace;
mod pages;
mod parallel;
mod places;
mod repository;
pub mod restore;
mod running;
mod send;
mod sums;
mod verify;

pub use create::{CreateOptions, Created, DumpProgress, create};
pub use drill::{DrillOptions, Drilled, drill};
pub use error::DumpError;
pub use forget::{ArchiveKeep, ForgetOptions, Forgotten, Keep, forget};
pub use holdfast_archive::{Keys, new_identity};
pub use manifest::Head;
pub use moment::{parse_moment, show_moment};
pub use repository::{Listing, Repository};
pub use send::begin as begin_dump;
pub use verify::{Problem, Verified, verify};
