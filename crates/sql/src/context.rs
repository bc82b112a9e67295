//! What surrounds a statement that is translated.

use holdfast_types::schema::{Dialect, Schema};

/// What surrounds a statement.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub dialect: Dialect,
    pub schema: &'a Schema,
    pub database: &'a str,
    pub user: &'a str,
    /// OIDs a Parse message gave for `$1` ..., 0 where it leaves the choice.
    pub param_types: &'a [u32],
    /// A subscription's worker applies it: it may change tables that the subscription writes. No session sets this.
    pub applies: bool,
}
