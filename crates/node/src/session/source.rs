//! Where a statement comes from: a prepared statement with its parameters, or a piece of a simple message.

use super::values::Values;
use crate::plan::{Extra, Plan};
use holdfast_sql::{Entry, Piece};
use holdfast_types::schema::Schema;
use holdfast_types::{SqlResult, Value};
use std::sync::Arc;

/// Where a statement comes from.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// From a prepared statement, with the client's parameters.
    Plan(&'a Arc<Plan>, &'a [Value]),
    /// From a simple message, perhaps translated already.
    Piece(Piece<'a>, Option<&'a Known>),
}

/// The translation of a statement under a schema.
pub(super) struct Known {
    pub schema: Arc<Schema>,
    pub entry: Arc<Entry<Extra>>,
}

impl Source<'_> {
    pub(super) fn bind(&self, entry: &Entry<Extra>, session: &Values<'_>) -> SqlResult<Vec<Value>> {
        match self {
            Source::Plan(plan, params) => plan.bind(entry, params, session),
            Source::Piece(piece, _) => entry.translated.bind(&piece.literals(), &[], session),
        }
    }

    /// Its translation, if that was made under this very schema.
    pub(super) fn known_under(&self, schema: &Arc<Schema>) -> Option<&Arc<Entry<Extra>>> {
        match self {
            Source::Plan(plan, _) if Arc::ptr_eq(&plan.schema, schema) => plan.entry.as_ref(),
            Source::Piece(_, Some(known)) if Arc::ptr_eq(&known.schema, schema) => Some(&known.entry),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Source::Plan(plan, _) => &plan.text,
            Source::Piece(piece, _) => piece.text(),
        }
    }
}
