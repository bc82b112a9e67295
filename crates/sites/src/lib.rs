//! Databases that replicate parts of their tables, over PostgreSQL's logical replication protocol.
//!
//! A publisher is a server to which subscribers connect as clients: [`command`] reads their replication commands, [`slot`] is what
//! the server keeps for each, [`feed`] makes messages of the trail's transactions, in the format of [`pgoutput`], and
//! [`link`] frames them. A subscriber reads them with [`received`]. No socket and no session: `node` connects these to its clients
//! and to its publishers.
//!
//! How it fails: a feed that cannot describe a change ends with the table's name; the subscriber is not sent the
//! transaction's commit, and so drops what it got of it.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

pub mod command;
pub mod feed;
pub mod link;
pub mod pgoutput;
pub mod received;
pub mod slot;
mod table;

pub use feed::{Feed, FeedError, Message, Types};
