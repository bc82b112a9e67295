//! Replays a transaction's images on a snapshot, and finds the row behind a uniqueness error.

use super::work::{Attempt, Work};
use crate::state::branch_connection::{Connection, OwnSchema};
use crate::statement::cache::StatementCache;
use crate::statement::collect::Ignore;
use crate::statement::images::image_error;
use crate::statement::model::{Statement, Step};
use crate::statement::run::{Under, run_step};
use holdfast_store::apply::{Applier, ApplyMode};
use holdfast_store::schema_map::read_map;
use holdfast_types::record::Ops;
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// Puts the images back in order. A foreign key that holds only at a statement's end makes a second round, in which
/// such checks wait.
pub fn replay(c: &mut Connection, ops: &[u8], own: Option<&OwnSchema>) -> Result<(), Attempt> {
    if ops.is_empty() {
        return Ok(());
    }
    c.changed |= own.is_some();
    c.listen();
    c.running.lock().replaying = true;
    let mut applied = c.applier.apply(&mut c.conn, Ops::new(ops)).map_err(|e| image_error(&e));
    if applied.as_ref().is_err_and(|e| e.state() == SqlState::FOREIGN_KEY_VIOLATION) {
        applied = again_deferred(c, ops).unwrap_or(applied);
    }
    c.running.lock().replaying = false;
    c.conn.capture().take();
    c.own = own.cloned();
    let found = c.found();
    match (found.blocked, found.needs_exclusive, found.stale, applied) {
        (Some((id, mode)), ..) => Err(Attempt::Blocked(id, mode)),
        (_, true, ..) => Err(Attempt::NeedsExclusive),
        (_, _, Some(number), _) => Err(Attempt::Stale(number)),
        (.., Err(e)) => Err(Attempt::Failed(e)),
        (.., Ok(())) => Ok(()),
    }
}

fn again_deferred(c: &mut Connection, ops: &[u8]) -> Option<SqlResult<()>> {
    c.run(c.control.rollback).and_then(|()| c.run(c.control.begin)).ok()?;
    if c.changed {
        c.applier.forget(&mut c.conn);
        let map = read_map(&mut c.conn).map(Arc::new).ok()?;
        c.conn.capture().set_map(map.clone());
        c.applier = Applier::for_images(ApplyMode::Branch, map);
    }
    c.conn.exec("pragma defer_foreign_keys=1").ok()?;
    let applied = c.applier.apply(&mut c.conn, Ops::new(ops)).map_err(|e| image_error(&e));
    c.conn.exec("pragma defer_foreign_keys=0").ok()?;
    Some(applied)
}

/// SQLite reports a duplicate before the hook has seen anything. The row in the way may be one that another transaction is
/// deleting or has deleted meanwhile, and PostgreSQL would wait for that: so the statement is run again in a form
/// that removes the rows in its way, only to let the hook look at them.
pub fn duplicate_of_another(
    c: &mut Connection,
    schema: impl Fn() -> Arc<Schema>,
    work: &Work,
    error: &SqlError,
) -> Option<Attempt> {
    let Work::Statement { step, context, .. } = work else { return None };
    if error.state() != SqlState::UNIQUE_VIOLATION || c.conn.autocommit() {
        return None;
    }
    let sql = removing(&step.stmt)?;
    c.run(c.control.rollback_to).ok()?;
    c.listen();
    let schema = schema();
    let probe = Statement { sql, ..describe(&step.stmt) };
    let step = Step { stmt: Arc::new(probe), params: step.params.clone() };
    let mut once = StatementCache::default();
    // Only the hook's findings matter; the caller undoes everything.
    let under = Under { schema: &schema, context };
    drop(run_step(&mut c.conn, &mut once, under, 0, &step, &mut Ignore));
    once.clear(&mut c.conn);
    let found = c.found();
    match (found.blocked, found.stale) {
        (Some((id, mode)), _) => Some(Attempt::Blocked(id, mode)),
        (_, Some(number)) => Some(Attempt::Stale(number)),
        _ => None,
    }
}

fn describe(stmt: &Statement) -> Statement {
    Statement {
        id: 0,
        sql: String::new(),
        param_count: stmt.param_count,
        class: stmt.class,
        cost: stmt.cost,
        names_its_rows: false,
        columns: stmt.columns.clone(),
        touched: Box::default(),
        report: stmt.report.clone(),
        temp: stmt.temp.clone(),
    }
}

/// An INSERT or UPDATE with OR REPLACE added; `None` where it says itself what to do with duplicates.
fn removing(stmt: &Statement) -> Option<String> {
    let (verb, rest) = stmt.sql.split_at_checked(stmt.report.facts.or_replace_at?)?;
    Some(format!("{verb} or replace{rest}"))
}
