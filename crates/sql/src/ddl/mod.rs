//! Schema changes.
//!
//! What is stored is SQLite's SQL without any function or collation that stock sqlite3 does not have. UNIQUE
//! constraints become unique indexes under PostgreSQL's name, marked as constraints, because SQLite can neither name
//! nor drop a UNIQUE constraint.

mod alter;
mod create_table;
mod drop;
mod index;
mod view;

use crate::command::Kind;
use crate::context::Context;
use crate::scan::Piece;
use crate::translated::{Notice, TempDdl, Translated};
pub(crate) use create_table::{own_scope, parenthesised};
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{AlterIndexOperation, CommentObject, Statement};

pub fn translate(statement: &Statement, piece: &Piece<'_>, context: &Context<'_>) -> SqlResult<Translated> {
    let refuse = |what: &str| Err(SqlError::unsupported(what));
    match statement {
        Statement::CreateTable(create) => create_table::translate(create, piece, context),
        Statement::CreateIndex(create) => index::translate(create, piece, context),
        Statement::CreateView(create) => view::translate(create, piece, context),
        Statement::AlterTable(alter) => alter::translate(alter, piece, context),
        Statement::AlterIndex { name, operation: AlterIndexOperation::RenameIndex { index_name } } => {
            alter::rename_index(name, index_name, context)
        }
        Statement::Drop { .. } => drop::translate(statement, context),
        Statement::Truncate(truncate) => drop::truncate(truncate, context),
        Statement::Comment { object_type, object_name, .. } => {
            check_commented(object_type, object_name, context)?;
            let notice = Notice {
                severity: "WARNING",
                state: SqlState::FEATURE_NOT_SUPPORTED,
                message: "COMMENT has no effect: comments are not stored".into(),
            };
            Ok(Translated { notices: vec![notice], ..Translated::command(Kind::NoOp, "COMMENT") })
        }
        Statement::CreateSchema { schema_name, if_not_exists, .. } => {
            if schema_name.to_string() != "public" {
                return refuse("a schema other than \"public\"");
            }
            match if_not_exists {
                true => Ok(skipping("CREATE SCHEMA", "schema \"public\" already exists", SqlState("42P06"))),
                false => Err(SqlError::new(SqlState("42P06"), "schema \"public\" already exists")),
            }
        }
        Statement::CreateExtension(create) => match create.name.value.as_str() {
            "plpgsql" => {
                Ok(skipping("CREATE EXTENSION", "extension \"plpgsql\" already exists", SqlState::DUPLICATE_OBJECT))
            }
            // Its views are always there.
            "pg_stat_statements" => Ok(skipping(
                "CREATE EXTENSION",
                "extension \"pg_stat_statements\" already exists",
                SqlState::DUPLICATE_OBJECT,
            )),
            name => Err(SqlError::unsupported(format!("the extension {name}"))),
        },
        Statement::CreateSequence { .. } => {
            Err(SqlError::unsupported("CREATE SEQUENCE").with_hint("Use a serial or identity primary key."))
        }
        Statement::CreateFunction(_) | Statement::CreateProcedure { .. } => refuse("CREATE FUNCTION"),
        Statement::CreateTrigger(_) => refuse("CREATE TRIGGER in a database of PostgreSQL's dialect"),
        Statement::CreateType { .. } | Statement::CreateDomain(_) => refuse("a user-defined type"),
        Statement::Merge(_) => Err(SqlError::unsupported("MERGE").with_hint("Use INSERT ... ON CONFLICT.")),
        Statement::Call(_) => refuse("CALL"),
        other => {
            let text = other.to_string();
            let words: Vec<&str> = text.split_ascii_whitespace().take(2).collect();
            Err(SqlError::unsupported(words.join(" ")))
        }
    }
}

/// The object of a COMMENT ON must exist.
fn check_commented(kind: &CommentObject, name: &sqlparser::ast::ObjectName, context: &Context<'_>) -> SqlResult<()> {
    use crate::bind::scope;
    match kind {
        CommentObject::Table | CommentObject::View => scope::table_named(context.schema, name).map(|_| ()),
        CommentObject::Column => {
            let Some((last, table)) = name.0.split_last() else { return Ok(()) };
            let table = scope::table_named(context.schema, &sqlparser::ast::ObjectName(table.to_vec()))?;
            let column = last.as_ident().map(crate::names::fold).unwrap_or_default();
            if table.columns.iter().any(|c| c.name == column) {
                return Ok(());
            }
            let message = format!("column \"{column}\" of relation \"{}\" does not exist", table.name);
            Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message))
        }
        _ => Ok(()),
    }
}

/// A schema change with these steps.
fn ddl(steps: Vec<String>, verb: &'static str) -> Translated {
    let steps = steps.into_iter().map(Into::into).collect();
    Translated { steps, cacheable: false, ..Translated::command(Kind::Ddl, verb) }
}

/// A schema change of temporary tables with these steps.
fn temp_ddl(steps: Vec<String>, verb: &'static str) -> Translated {
    Translated { temp: Some(TempDdl::default()), ..ddl(steps, verb) }
}

/// A schema change of a permanent or a temporary table.
fn ddl_of(temp: bool, steps: Vec<String>, verb: &'static str) -> Translated {
    if temp { temp_ddl(steps, verb) } else { ddl(steps, verb) }
}

/// A statement without effect, with a notice that says so.
fn skipping(verb: &'static str, what: &str, state: SqlState) -> Translated {
    let notice = Notice { severity: "NOTICE", state, message: format!("{what}, skipping") };
    Translated { notices: vec![notice], cacheable: false, ..Translated::command(Kind::NoOp, verb) }
}

/// 42P07 where a table, view or index of this name exists among the temporary ones, or among the others.
fn check_free(context: &Context<'_>, temp: bool, name: &str) -> SqlResult<()> {
    if name.to_ascii_lowercase().starts_with("sqlite_") {
        return Err(SqlError::new(SqlState("42939"), format!("the name \"{name}\" is reserved"))
            .with_hint("Names that begin with sqlite_ belong to SQLite."));
    }
    let mut tables = context.schema.tables.iter().filter(|t| t.temp == temp);
    let taken = |other: &str| other.eq_ignore_ascii_case(name);
    if tables.any(|t| taken(&t.name) || t.indexes.iter().any(|i| taken(&i.name))) {
        return Err(SqlError::new(SqlState::DUPLICATE_TABLE, format!("relation \"{name}\" already exists")));
    }
    Ok(())
}

/// A name that is not in use yet: `t_a_key`, `t_a_key1` ...
fn free_name(context: &Context<'_>, temp: bool, wanted: &str, taken: &[String]) -> String {
    let free = |name: &str| check_free(context, temp, name).is_ok() && !taken.iter().any(|t| t == name);
    if free(wanted) {
        return wanted.to_owned();
    }
    (1..).map(|n| format!("{wanted}{n}")).find(|name| free(name)).unwrap_or_else(|| wanted.to_owned())
}
