//! Identifiers: PostgreSQL's folding, SQLite's quoting.

use holdfast_types::schema::Table;
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

/// The schema of temporary tables: its name in SQLite's SQL, and the one by which a session knows its own.
pub const TEMP_SCHEMA: &str = "pg_temp";

/// Does the name mean the session's temporary schema?
pub fn is_temp_schema(name: &str) -> bool {
    name == TEMP_SCHEMA || name == crate::catalogue::TEMP_NAMESPACE
}

/// A table in SQLite's SQL. A name alone is a permanent one's: SQLite looks among those first.
pub fn quote_table(table: &Table) -> String {
    quote_in(table.temp, &table.name)
}

/// The name of a table or index, temporary or not, in SQLite's SQL.
pub fn quote_in(temp: bool, name: &str) -> String {
    if temp { format!("{}.{}", quote(TEMP_SCHEMA), quote(name)) } else { quote(name) }
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

/// Among which tables a name is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// No schema was written: a temporary table hides a permanent one.
    All,
    Permanent,
    Temporary,
}

/// The name of a user object in `public`, the only schema of permanent ones.
pub fn exact_name(name: &ObjectName) -> SqlResult<String> {
    match relation_name(name)? {
        (Among::Temporary, last) => Err(SqlError::unsupported(format!("the name {TEMP_SCHEMA}.{last} here"))),
        (_, last) => Ok(last),
    }
}

/// The name of a user object, and where it is looked for.
pub fn relation_name(name: &ObjectName) -> SqlResult<(Among, String)> {
    match object_name(name)? {
        (None, last) => Ok((Among::All, last)),
        (Some(schema), last) if schema == "public" => Ok((Among::Permanent, last)),
        (Some(schema), last) if is_temp_schema(&schema) => Ok((Among::Temporary, last)),
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
