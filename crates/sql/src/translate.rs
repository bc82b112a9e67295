//! The entry point of translation.
//!
//! [`translate`] parses one statement of a scanned message, binds names and types against the schema, and writes
//! SQLite's SQL. It never runs anything. Where PostgreSQL returns an error, translation fails with PostgreSQL's
//! SQLSTATE. What Holdfast does not support is 0A000; the message names it.

use crate::bind::need;
use crate::context::Context;
use crate::scan::Piece;
use crate::translated::Translated;
use holdfast_types::SqlResult;
use holdfast_types::schema::Dialect;

/// Translates one statement.
pub fn translate(piece: &Piece<'_>, context: &Context<'_>) -> SqlResult<Translated> {
    match context.dialect {
        Dialect::Postgres => {
            let mut translated = crate::statement::translate(piece, context)?;
            if !context.applies {
                need::add_not_subscribed(context.schema, &mut translated.access);
            }
            Ok(translated)
        }
        Dialect::Sqlite => crate::sqlite::translate(piece, context),
    }
}
