//! Identifiers: PostgreSQL's folding, SQLite's quoting.

use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{Ident, ObjectName};

/// The name an identifier means: folded to lower case unless quoted.
pub fn fold(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// An identifier in SQLite's SQL.
pub fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text literal in SQLite's SQL.
pub fn quote_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Schema, if one was written, and name of an object.
pub fn object_name(name: &ObjectName) -> SqlResult<(Option<String>, String)> {
    let parts: Vec<String> = name.0.iter().filter_map(|p| p.as_ident().map(fold)).collect();
    match <[String; 1]>::try_from(parts) {
        Ok([only]) => Ok((None, only)),
        Err(parts) => match parts.as_slice() {
            [schema, last] => Ok((Some(schema.clone()), last.clone())),
            [_, schema, last] => Ok((Some(schema.clone()), last.clone())),
            _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("improper qualified name: {name}"))),
        },
    }
}

/// The name of a user object: in `public`, which is the only schema.
pub fn exact_name(name: &ObjectName) -> SqlResult<String> {
    match object_name(name)? {
        (None, last) => Ok(last),
        (Some(schema), last) if schema == "public" => Ok(last),
        (Some(schema), _) if schema == "pg_catalog" || schema == "information_schema" => Err(SqlError::new(
            SqlState::INSUFFICIENT_PRIVILEGE,
            format!("permission denied: \"{schema}\" cannot be changed"),
        )),
        (Some(schema), _) => {
            Err(SqlError::new(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{schema}\" does not exist"))
                .with_hint("All tables are in the schema \"public\"."))
        }
    }
}
