//! CREATE VIEW.
//!
//! The view is one of SQLite. A comment after its name lists the types of its columns, separated by semicolons: `CREATE
//! VIEW "v" /*bigint; text*/ ("n", "name") AS SELECT ...`.

use super::{check_free, ddl};
use crate::bind::{Binder, need};
use crate::context::Context;
use crate::names::{exact_name, fold, quote};
use crate::scan::Piece;
use crate::translated::Translated;
use crate::types::{Type, view_column_types};
use holdfast_types::access::needs::Creates;
use holdfast_types::access::{Access, Need};
use holdfast_types::schema::{Table, TableKind};
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::CreateView;

pub fn translate(create: &CreateView, piece: &Piece<'_>, context: &Context<'_>) -> SqlResult<Translated> {
    if create.materialized {
        return Err(SqlError::unsupported("a materialized view"));
    }
    if create.temporary {
        return Err(SqlError::unsupported("a temporary view"));
    }
    let name = exact_name(&create.name)?;
    let mut steps = Vec::new();
    let (mut needs, mut replaces) = (vec![Need::CreateInSchema], None);
    match context.schema.table_among(false, &name) {
        Some(old) if create.or_replace && old.kind == TableKind::View => {
            needs.extend(need::owner(old));
            replaces = Some(old.oid);
            steps.push(format!("DROP VIEW {}", quote(&name)));
        }
        _ => check_free(context, false, &name)?,
    }
    let mut binder = Binder::new(piece, context);
    binder.stored = true;
    let bound = binder.query(&create.query, None, None)?;
    if create.columns.len() > bound.columns.len() {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "CREATE VIEW specifies more column names than columns"));
    }
    let mut names: Vec<String> = Vec::new();
    for (i, column) in bound.columns.iter().enumerate() {
        let shown = create.columns.get(i).map_or_else(|| column.name.clone(), |c| fold(&c.name));
        if names.contains(&shown) {
            let message = format!("column \"{shown}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        names.push(shown);
    }
    let types: Vec<String> = bound.columns.iter().map(|c| c.ty.name()).collect();
    if let Some(old) = context.schema.table_among(false, &name) {
        check_replacement(old, &names, &bound.columns.iter().map(|c| c.ty).collect::<Vec<_>>())?;
    }
    let listed: Vec<String> = names.iter().map(|n| quote(n)).collect();
    steps.push(format!(
        "CREATE VIEW {} /*{}*/ ({}) AS {}",
        quote(&name),
        types.join("; "),
        listed.join(", "),
        bound.sql
    ));
    let creates = Some(Creates { name, sequence: false, replaces });
    Ok(Translated { access: Access { needs, creates, ..Access::default() }, ..ddl(steps, "CREATE VIEW") })
}

/// 42P16 where the new view lacks or changes a column of the old one.
fn check_replacement(old: &Table, names: &[String], types: &[Type]) -> SqlResult<()> {
    let invalid = |message: String| Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
    if names.len() < old.columns.len() {
        return invalid("cannot drop columns from view".into());
    }
    let old_types = view_column_types(old).unwrap_or_default();
    for (i, column) in old.columns.iter().enumerate() {
        if column.name != names[i] {
            return invalid(format!("cannot change name of view column \"{}\" to \"{}\"", column.name, names[i]));
        }
        if let Some(was) = old_types.get(i).filter(|was| was.name() != types[i].name()) {
            let (from, to) = (was.name(), types[i].name());
            return invalid(format!("cannot change data type of view column \"{}\" from {from} to {to}", names[i]));
        }
    }
    Ok(())
}
