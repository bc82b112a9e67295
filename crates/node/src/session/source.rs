//! Where a statement comes from: a prepared statement with its parameters, or a piece of a simple message.

use super::values::Values;
use crate::plan::{Extra, Plan};
use holdfast_sql::{Entry, Piece};
use holdfast_types::{SqlResult, Value};
use std::sync::Arc;

/// Where a statement comes from.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// From a prepared statement, with the client's parameters.
    Plan(&'a Arc<Plan>, &'a [Value]),
    /// From a simple message.
    Piece(Piece<'a>),
}

impl Source<'_> {
    pub(super) fn bind(&self, entry: &Entry<Extra>, session: &Values<'_>) -> SqlResult<Vec<Value>> {
        match self {
            Source::Plan(plan, params) => plan.bind(entry, params, session),
            Source::Piece(piece) => entry.translated.bind(&piece.literals(), &[], session),
        }
    }
}
