//! The trail as committed transactions of row changes, in the order of their commits.
//!
//! A boxcar's body is read in two steps. [`parts`] takes it apart and needs no other boxcar, so several threads may do it; the
//! reader leaves out what it does not want ([`Part::keeping`]). [`Assembly`] takes the parts in the trail's order and hands out
//! each committed transaction with all its operations.
//!
//! | in the trail | what comes out |
//! |---|---|
//! | several transactions in one boxcar | each has its own place: [`Position`], from its first byte to the byte behind its last |
//! | a transaction over several databases | one transaction for each database |
//! | fragments, then a commit that refers to them | one transaction, at the place of the commit |
//! | fragments, then a record that drops them, the end of their database, or a boxcar of a later epoch | nothing |
//! | PREPARE TRANSACTION | rows of a table of the server's own, which the reader leaves out like every table that it does not want: a transaction without operations |
//! | COMMIT PREPARED | a transaction with its row changes |
//!
//! Reading may end after any transaction and begin again: at [`Assembly::restart`], which is the first fragment of a
//! transaction that was still open, or the end of the last transaction. What was handed out before comes again where it
//! lies behind that place, and has the same [`Position`], by which the reader passes over it.
//!
//! Memory: fragments are kept in memory up to a bound, beyond it in a scratch file ([`Fragments`]); one fragment at a time is
//! read back.
//!
//! How it fails: a body that cannot be read names the boxcar. A transaction of which fragments are missing, because reading
//! began behind them, is handed out as such and has no operations.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod assembly;
mod error;
mod part;

pub use assembly::{Assembly, Committed};
pub use error::ChangesError;
pub use holdfast_store::fragments::{Beyond, Fragments};
pub use part::{Car, Part, Position, What, parts};

#[cfg(test)]
mod tests;
