//! Brings one table or one database back from a dump into a running server, under another name.
//!
//! The database is restored to the chosen moment in a scratch directory ([`holdfast_dump::restore::restore_part`]). From there
//! definitions and rows go into the server as a client's ordinary statements: through its trail, to its standbys, with the
//! privileges of the role that connects.
//!
//! | file | what |
//! |---|---|
//! | [`source`] | the restored file: definitions under their new names, and rows |
//! | [`order`] | tables in an order in which foreign keys hold; definitions without foreign keys |
//! | [`rows`] | rows as COPY's text, or as typed parameters where a column has values of several types |
//! | [`copy`] | the way: look first, then one transaction for a table |
//!
//! How it fails: the server's error is reported with the table's name. A table is there whole or not at all; a database that
//! could not be completed is dropped again.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod copy;
mod error;
mod order;
mod rows;
mod source;

pub use copy::{Copied, PartProgress, Wanted, archive_now, check, copy};
pub use error::PartError;
