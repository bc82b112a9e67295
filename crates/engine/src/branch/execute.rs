//! Executes a statement, or one statement for many rows of parameters, on a branch's connection.

use super::locking_read::RowLocker;
use super::schema_change::change_schema;
use super::work::Work;
use crate::state::branch_connection::Connection;
use crate::state::database::DatabaseState;
use crate::statement::collect::Ignore;
use crate::statement::model::{Class, Step};
use crate::statement::run::{Under, run_step, run_step_visiting};
use crate::statement::temp::shown::Shown;
use holdfast_store::sqlite::Conn;
use holdfast_store::volume::BRANCH_CACHE_KIB;
use holdfast_types::schema::Schema;
use holdfast_types::{Row, SessionContext, SqlError, SqlResult};
use std::sync::Arc;

/// Executes the work under the schema of its transaction.
pub fn execute(
    database: &Arc<DatabaseState>,
    c: &mut Connection,
    mut schema: Arc<Schema>,
    work: &mut Work,
    on_a_network_thread: bool,
) -> SqlResult<()> {
    if work.epoch().is_some_and(|epoch| epoch != c.own.as_ref().map_or(c.epoch(), |own| own.map.epoch)) {
        return Err(SqlError::schema_changed());
    }
    let temporary = work.temp().map(|t| t.tables.schema(&schema));
    let cache = if temporary.is_some() { &mut c.temp_cache } else { &mut c.cache };
    // The catalogue shows what the transaction itself has created and dropped.
    let _shown = Shown::new(temporary.as_ref().unwrap_or(&schema).clone());
    if let Some(temporary) = temporary.filter(|_| work.temp().is_some_and(|t| !t.changes_main)) {
        schema = temporary;
    }
    let _attempt = work.ids().attempt();
    match work {
        Work::Statement { number, step, sink, .. } if step.stmt.class == Class::Ddl => {
            change_schema(c, &schema, *number, step, &mut **sink)
        }
        Work::Statement { number, step, context, sink, .. } if step.stmt.report.row_locks.is_empty() => {
            let under = Under { schema: &schema, context };
            let mut run = |conn: &mut Conn| run_step(conn, cache, under, *number, step, &mut **sink);
            match step.stmt.class.is_read() && !on_a_network_thread {
                true => database.engine.wide_caches.run(&mut c.conn, BRANCH_CACHE_KIB, run),
                false => run(&mut c.conn),
            }
        }
        Work::Statement { number, step, context, sink, .. } => {
            let under = Under { schema: &schema, context };
            let locks = &step.stmt.report.row_locks;
            let mut locker = RowLocker { database, running: &c.running, locks, granted: 0 };
            let mut visit = |row: &dyn Row| locker.visit(row);
            run_step_visiting(&mut c.conn, cache, under, *number, step, &mut **sink, &mut visit)
        }
        Work::Rows { stmt, rows, failed, .. } => {
            let under = Under { schema: &schema, context: &SessionContext::NONE };
            for (i, params) in rows.iter_mut().enumerate() {
                *failed = i;
                let step = Step { stmt: stmt.clone(), params: std::mem::take(params) };
                let ran = run_step(&mut c.conn, cache, under, 0, &step, &mut Ignore);
                // They may run again.
                *params = step.params;
                ran?;
                if c.running.lock().found.blocked.is_some() {
                    break;
                }
            }
            Ok(())
        }
    }
}
