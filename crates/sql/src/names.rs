//! Identifiers: PostgreSQL's folding, SQLite's quoting.

pub use holdfast_types::quoting::{quote, quote_text};
use holdfast_types::schema::Table;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{Ident, ObjectName};

/// The name of an identifier: folded to lower case unless quoted.
pub fn fold(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// The schema of temporary tables, as it is named in SQLite's SQL; a session also uses it for its own.
pub const TEMP_SCHEMA: &str = "pg_temp";

/// The name under which `pg_namespace` lists that schema.
pub const TEMP_NAMESPACE: &str = "pg_temp_1";

/// True where the name means the session's temporary schema.
pub fn is_temp_schema(name: &str) -> bool {
    name == TEMP_SCHEMA || name == TEMP_NAMESPACE
}

/// A table in SQLite's SQL. A name without a schema means a permanent table: SQLite looks there first.
pub fn quote_table(table: &Table) -> String {
    quote_in(table.temp, &table.name)
}

/// The name of a table or index, temporary or not, in SQLite's SQL.
pub fn quote_in(temp: bool, name: &str) -> String {
    if temp { format!("{}.{}", quote(TEMP_SCHEMA), quote(name)) } else { quote(name) }
}

/// The schema of an object, if one was written, and its name.
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

/// The tables among which a name is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// No schema was written: a temporary table hides a permanent one.
    All,
    Permanent,
    Temporary,
}

/// The name of a user object in `public`, the only schema of permanent objects.
pub fn exact_name(name: &ObjectName) -> SqlResult<String> {
    match relation_name(name)? {
        (Among::Temporary, last) => Err(SqlError::unsupported(format!("the name {TEMP_SCHEMA}.{last} here"))),
        (_, last) => Ok(last),
    }
}

/// The name of a user object, and the tables among which it is looked up.
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
