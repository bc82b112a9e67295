//! Runs a schema change on a branch's connection.

use crate::state::branch_connection::{Connection, OwnSchema};
use crate::statement::model::Step;
use crate::statement::run::{schema_to_sql, to_sql};
use holdfast_store::apply::{Applier, ApplyMode};
use holdfast_store::ddl::execute_ddl_on_branch;
use holdfast_store::schema_read::read_schema;
use holdfast_types::schema::Schema;
use holdfast_types::{Sink, SqlResult, Tag};
use std::sync::Arc;
use std::time::Duration;

/// A transaction whose schema changes took longer than this keeps its connection, so that they are made again only where
/// a statement has to see a newer snapshot. It cannot continue in the writer: transactions that wait for its tables keep it from becoming the exclusive writer.
pub const SCHEMA_CHANGES_TIME_MAX: Duration = Duration::from_millis(100);

/// Runs one schema change on the connection, which no other transaction can use from then on.
pub fn change_schema(
    c: &mut Connection,
    schema: &Schema,
    number: usize,
    step: &Step,
    sink: &mut dyn Sink,
) -> SqlResult<()> {
    let sql = &step.stmt.sql;
    sink.begin(number, &step.stmt.report.desc);
    c.changed = true;
    c.cache.clear(&mut c.conn);
    let map = execute_ddl_on_branch(&mut c.conn, sql).map_err(|e| schema_to_sql(&e, sql, schema))?;
    c.applier.forget(&mut c.conn);
    c.applier = Applier::for_images(ApplyMode::Branch, map.clone());
    let schema = Arc::new(read_schema(&mut c.conn, &map).map_err(|e| to_sql(&e, sql, schema))?);
    c.own = Some(OwnSchema { map, schema });
    sink.end(&Tag { verb: step.stmt.report.verb, rows: None });
    Ok(())
}
