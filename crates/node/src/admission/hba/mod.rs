//! `pg_hba.conf`: which connections must prove what, in PostgreSQL's format. The first rule that matches decides.
//!
//! Anchor: PostgreSQL 15, section 21.1.

mod interfaces;
mod parse;
mod rule;
#[cfg(test)]
mod tests;
pub mod tokens;

pub use parse::{Entry, parse};
pub use rule::{Attempt, ClientCert, ClientName, Connection, Method, Rule};
