//! Putting a transaction's images on a snapshot again, and looking behind a uniqueness error.

use super::connection::Connection;
use super::core::{Attempt, Core, Work};
use super::schema::Own;
use crate::collect::Ignore;
use crate::run::{run_step, to_sql};
use crate::statement::{Statement, Step};
use holdfast_store::apply::{Applier, ApplyError, Place};
use holdfast_store::schema_map::read_map;
use holdfast_types::record::Ops;
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// The error of images that do not go onto a database.
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

/// Puts the images back in order. A foreign key that holds only at a statement's end makes a second round, in which
/// such checks wait.
pub fn replay(c: &mut Connection, ops: &[u8], own: Option<&Own>) -> Result<(), Attempt> {
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
    match (found.blocked, found.alone, found.stale, applied) {
        (Some((id, mode)), ..) => Err(Attempt::Blocked(id, mode)),
        (_, true, ..) => Err(Attempt::Alone),
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
        c.applier = Applier::for_images(Place::Branch, map);
    }
    c.conn.exec("pragma defer_foreign_keys=1").ok()?;
    let applied = c.applier.apply(&mut c.conn, Ops::new(ops)).map_err(|e| image_error(&e));
    c.conn.exec("pragma defer_foreign_keys=0").ok()?;
    Some(applied)
}

/// SQLite reports a duplicate before the hook has seen anything. The row in the way may be one that somebody else is
/// deleting or has deleted meanwhile, and PostgreSQL would wait for that: so the statement is run once more in a form
/// that removes the rows in its way, only to let the hook look at them.
pub fn duplicate_of_another(core: &Core, c: &mut Connection, work: &Work, error: &SqlError) -> Option<Attempt> {
    let Work::Statement { step, .. } = work else { return None };
    if error.state() != SqlState::UNIQUE_VIOLATION || c.conn.autocommit() {
        return None;
    }
    let sql = removing(&step.stmt.sql)?;
    c.run(c.control.rollback_to).ok()?;
    c.listen();
    let schema = core.schema();
    let probe = Statement { sql, ..describe(&step.stmt) };
    let step = Step { stmt: Arc::new(probe), params: step.params.clone() };
    let mut once = crate::cache::StatementCache::default();
    // Only what the hook finds is of interest; the caller undoes it all.
    drop(run_step(&mut c.conn, &mut once, &schema, 0, &step, &mut Ignore));
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
        names_its_rows: false,
        columns: stmt.columns.clone(),
        report: stmt.report.clone(),
        temp: stmt.temp.clone(),
    }
}

/// The same INSERT or UPDATE with OR REPLACE; `None` where it says itself what to do with duplicates.
fn removing(sql: &str) -> Option<String> {
    let words: Vec<&str> = sql.split_ascii_whitespace().take(2).collect();
    let [verb, next] = words.as_slice() else { return None };
    let plain = !next.eq_ignore_ascii_case("or") && !sql.to_ascii_lowercase().contains("on conflict");
    let known = verb.eq_ignore_ascii_case("insert") || verb.eq_ignore_ascii_case("update");
    (plain && known).then(|| sql.trim_start().replacen(verb, &format!("{verb} or replace"), 1))
}

#[cfg(test)]
mod tests {
    use super::removing;

    #[test]
    fn only_plain_statements_are_looked_behind() {
        assert_eq!(removing(" INSERT INTO t VALUES(1)").unwrap(), "INSERT or replace INTO t VALUES(1)");
        assert_eq!(removing("update t set a = 1").unwrap(), "update or replace t set a = 1");
        assert_eq!(removing("insert or ignore into t values(1)"), None);
        assert_eq!(removing("insert into t values(1) on conflict do nothing"), None);
        assert_eq!(removing("delete from t"), None);
    }
}
