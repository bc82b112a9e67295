//! Translates a parsed statement: one match arm for each kind.

use crate::bind::{Binder, write};
use crate::command::Kind;
use crate::context::Context;
use crate::finish::finish;
use crate::locks::Clause;
use crate::parse;
use crate::scan::Piece;
use crate::translated::Translated;
use crate::{copy, ddl, lock_table, session};
use holdfast_types::desc::{ColumnDesc, StatementDesc, oid};
use holdfast_types::{SqlError, SqlResult};
use sqlparser::ast::{Query, SetExpr, Statement, With};
use std::sync::Arc;

/// Translates a statement of PostgreSQL's SQL.
pub fn translate(piece: &Piece<'_>, context: &Context<'_>) -> SqlResult<Translated> {
    if let Some(definition) = crate::sqlite::stored_definition(piece.text()) {
        return crate::sqlite::create_stored(definition, context);
    }
    if let Some(command) = session::from_text(piece.text())? {
        return Ok(command);
    }
    parse::with_room(piece.text(), || {
        let (statement, locking) = parse::parse_locking(piece.text())?;
        translate_statement(&statement, locking, piece, context)
    })
}

/// Translates a parsed statement with the locking clauses of its outermost query.
fn translate_statement(
    statement: &Statement,
    locking: Vec<Clause>,
    piece: &Piece<'_>,
    context: &Context<'_>,
) -> SqlResult<Translated> {
    let binder = Binder::new(piece, context);
    match statement {
        Statement::Query(query) => select(binder, query, locking),
        Statement::Explain { statement, analyze, .. } => explain(statement, *analyze, locking, piece, context),
        Statement::Prepare { name, data_types, .. } => session::prepare(name, data_types, piece.text()),
        _ if !locking.is_empty() => {
            Err(SqlError::unsupported(format!("{} in this statement", locking[0].strength.words())))
        }
        Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => change(binder, statement, None),
        Statement::Lock(lock) => lock_table::translate(lock, context),
        Statement::Copy { .. } => copy::translate(statement, binder),
        Statement::Execute { name, parameters, .. } => session::execute(name.as_ref(), parameters),
        other => match session::translate(other)? {
            Some(command) => Ok(command),
            None => ddl::translate(other, piece, context),
        },
    }
}

/// Translates INSERT, UPDATE or DELETE, and the WITH before it.
fn change(mut binder: Binder<'_>, statement: &Statement, with: Option<&With>) -> SqlResult<Translated> {
    let with = with.map(|with| binder.with(with, None)).transpose()?.unwrap_or_default();
    let (bound, kind, verb) = match statement {
        Statement::Insert(insert) => (write::insert(&mut binder, insert)?, Kind::Insert, "INSERT 0"),
        Statement::Update(update) => (write::update(&mut binder, update)?, Kind::Update, "UPDATE"),
        Statement::Delete(delete) => (write::delete(&mut binder, delete)?, Kind::Delete, "DELETE"),
        _ => return Err(SqlError::unsupported("this statement after WITH")),
    };
    Ok(finish(binder, format!("{with}{}", bound.sql), &bound.columns, kind, verb))
}

/// Translates a query, or a data-modifying statement with WITH, which the parser returns as a query.
fn select(mut binder: Binder<'_>, query: &Query, locking: Vec<Clause>) -> SqlResult<Translated> {
    if let SetExpr::Insert(changes) | SetExpr::Update(changes) | SetExpr::Delete(changes) = &*query.body {
        if let Some(clause) = locking.first() {
            return Err(SqlError::unsupported(format!("{} in this statement", clause.strength.words())));
        }
        return change(binder, changes, query.with.as_ref());
    }
    binder.begin_outermost(locking);
    let bound = binder.query(query, None, None)?;
    Ok(finish(binder, bound.sql, &bound.columns, Kind::Query, "SELECT"))
}

fn explain(
    inner: &Statement,
    analyze: bool,
    locking: Vec<Clause>,
    piece: &Piece<'_>,
    context: &Context<'_>,
) -> SqlResult<Translated> {
    if analyze {
        return Err(SqlError::unsupported("EXPLAIN ANALYZE"));
    }
    let planned = translate_statement(inner, locking, piece, context)?;
    let Some(step) = planned.steps.last() else {
        return Err(SqlError::unsupported("EXPLAIN of this statement"));
    };
    let columns = vec![ColumnDesc::new("QUERY PLAN", oid::TEXT)];
    Ok(Translated {
        kind: Kind::Explain,
        steps: vec![format!("EXPLAIN QUERY PLAN {}", step.sql).into()],
        desc: Arc::new(StatementDesc { params: planned.desc.params.clone(), columns, empty_rows: false }),
        verb: "EXPLAIN",
        counts: false,
        locks: false,
        advisory: false,
        row_locks: Vec::new(),
        ..planned
    })
}
