//! Errors from applying images to a connection.

use crate::statement::run::to_sql;
use holdfast_store::apply::ApplyError;
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlState};

/// The error of images that cannot be applied to a database.
pub fn image_error(error: &ApplyError) -> SqlError {
    let sqlite = match error {
        ApplyError::Row { error, .. } | ApplyError::Sqlite(error) => Some(error),
        _ => None,
    };
    match sqlite.map(|e| to_sql(e, "", &Schema::default())) {
        Some(e) if e.state().0.starts_with("23") => e,
        Some(e) if [SqlState::QUERY_CANCELED, SqlState::SNAPSHOT_TOO_OLD, SqlState::IO_ERROR].contains(&e.state()) => e,
        _ => SqlError::new(SqlState::SERIALIZATION_FAILURE, "could not serialize access due to concurrent update")
            .with_detail(error.to_string())
            .with_hint("Run the transaction again."),
    }
}
