//! From a parsed statement to its translation: one arm for each kind.

use crate::bind::scope::Column;
use crate::bind::{self, Binder};
use crate::locks::{self, Clause};
use crate::parse;
use crate::scan::Piece;
use crate::translate::{Context, Kind, Param, Translated};
use crate::types::Type;
use crate::{copy, ddl, session};
use holdfast_types::desc::{ColumnDesc, StatementDesc, oid};
use holdfast_types::{SqlError, SqlResult};
use sqlparser::ast::{Query, SetExpr, Statement, With};
use std::sync::Arc;

/// Translates a statement of PostgreSQL's SQL.
pub fn translate(piece: &Piece<'_>, context: &Context<'_>) -> SqlResult<Translated> {
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
        Statement::Lock(lock) => locks::lock_table(lock, context),
        Statement::Copy { .. } => copy::translate(statement, binder),
        Statement::Execute { name, parameters, .. } => session::execute(name.as_ref(), parameters),
        other => match session::translate(other)? {
            Some(command) => Ok(command),
            None => ddl::translate(other, piece, context),
        },
    }
}

/// INSERT, UPDATE or DELETE, and the WITH before it.
fn change(mut binder: Binder<'_>, statement: &Statement, with: Option<&With>) -> SqlResult<Translated> {
    let with = with.map(|with| binder.with(with, None)).transpose()?.unwrap_or_default();
    let (bound, kind, verb) = match statement {
        Statement::Insert(insert) => (bind::insert(&mut binder, insert)?, Kind::Insert, "INSERT 0"),
        Statement::Update(update) => (bind::update(&mut binder, update)?, Kind::Update, "UPDATE"),
        Statement::Delete(delete) => (bind::delete(&mut binder, delete)?, Kind::Delete, "DELETE"),
        _ => return Err(SqlError::unsupported("this statement behind WITH")),
    };
    Ok(finish(binder, format!("{with}{}", bound.sql), &bound.columns, kind, verb))
}

/// A query, or the data-modifying statement that the parser hands over as one because of its WITH.
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

/// Result columns as clients see them.
pub fn describe(columns: &[Column]) -> Vec<ColumnDesc> {
    columns
        .iter()
        .map(|c| ColumnDesc {
            name: c.name.clone(),
            type_oid: if c.ty == Type::UNKNOWN { oid::TEXT } else { c.ty.oid },
            typmod: c.ty.typmod,
            table_oid: c.table_oid,
            attnum: c.attnum,
        })
        .collect()
}

/// Puts a bound statement together. A parameter that nothing gave a type is text.
pub fn finish(binder: Binder<'_>, sql: String, columns: &[Column], kind: Kind, verb: &'static str) -> Translated {
    let types = binder.client_types.iter().map(|t| if *t == 0 { oid::TEXT } else { *t }).collect();
    let (sql, params) = used_params(sql, binder.params);
    Translated {
        kind,
        steps: vec![sql],
        params,
        desc: Arc::new(StatementDesc { params: types, columns: describe(columns) }),
        verb,
        counts: true,
        locks: binder.locks || binder.advisory,
        advisory: binder.advisory,
        temporary: binder.temporary,
        row_locks: binder.row_locks,
        cacheable: true,
        ..Translated::default()
    }
}

/// Leaves out the parameters that the text does not use, since what took them was not needed after all, and numbers
/// the others anew.
fn used_params(sql: String, params: Vec<Param>) -> (String, Vec<Param>) {
    let mut uses: Vec<(usize, usize, usize)> = Vec::new();
    let (bytes, mut at) = (sql.as_bytes(), 0);
    while let Some(found) = memchr::memchr3(b'?', b'\'', b'"', &bytes[at..]) {
        let start = at + found;
        if bytes[start] != b'?' {
            at = memchr::memchr(bytes[start], &bytes[start + 1..]).map_or(bytes.len(), |n| start + n + 2);
            continue;
        }
        let digits = bytes[start + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
        at = start + 1 + digits;
        if let Ok(n) = sql[start + 1..at].parse::<usize>() {
            uses.push((start + 1, at, n - 1));
        }
    }
    let mut used = vec![false; params.len()];
    for (.., n) in &uses {
        if let Some(used) = used.get_mut(*n) {
            *used = true;
        }
    }
    if used.iter().all(|u| *u) {
        return (sql, params);
    }
    let kept: Vec<usize> = (0..params.len()).filter(|i| used[*i]).collect();
    let mut out = sql.clone();
    for (start, end, n) in uses.into_iter().rev() {
        let place = kept.iter().position(|k| *k == n).unwrap_or(0);
        out.replace_range(start..end, &(place + 1).to_string());
    }
    (out, kept.into_iter().map(|i| params[i].clone()).collect())
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
        steps: vec![format!("EXPLAIN QUERY PLAN {step}")],
        desc: Arc::new(StatementDesc { params: planned.desc.params.clone(), columns }),
        verb: "EXPLAIN",
        counts: false,
        locks: false,
        advisory: false,
        row_locks: Vec::new(),
        ..planned
    })
}
