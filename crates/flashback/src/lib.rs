//! Looks back into the trail for one row, and undoes one transaction: `holdfast trail find` and `holdfast trail undo`.
//!
//! Every change of a row is in the trail with the values before and after it. [`find`](find()) lists the changes of a table's
//! rows that a condition selects; [`plan()`] makes the statements that take one transaction back, and [`apply()`] runs them in
//! one transaction of the running server. So an undo is a transaction like any other: it is in the trail and can be
//! undone.
//!
//! | file | what |
//! |---|---|
//! | [`source`] | the trail of a data directory and, in front of it, the archive's objects; read by several threads |
//! | [`events`] | the wanted changes in boxcars, put together to transactions by the crate `changes` |
//! | [`schema_text`] | the tables that the text of a schema change is about |
//! | [`row`] | one change of one row, and what it is found by |
//! | [`server`], [`table`] | a session with the server; names, types and keys of a table as they are now |
//! | [`condition`], [`find`](mod@find) | which versions of rows a condition selects |
//! | [`undo`](mod@undo) | the net effect of a transaction, its inverse, and what changed later |
//!
//! How it fails: nothing is changed except by [`apply()`], and that changes everything or nothing. What cannot be undone
//! is refused by name: the row and the later transaction, the schema change, the table that no longer exists.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod by;
mod condition;
mod conflict;
mod error;
mod events;
mod find;
mod row;
mod schema_text;
mod server;
mod source;
mod table;
mod undo;

pub use by::By;
pub use conflict::Conflict;
pub use error::FlashbackError;
pub use find::{FindOptions, FoundChanges, RowChange, find};
pub use holdfast_archive::{Expects, Keys};
pub use server::Connect;
pub use source::{Place, Read, Source};
pub use undo::{Applied, Plan, Target, apply, plan};
