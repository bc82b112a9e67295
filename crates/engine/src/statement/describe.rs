//! Prepares a statement on one connection and describes it for all connections.

use crate::statement::classify::{Classified, classify};
use crate::statement::model::{Class, Report, Statement};
use holdfast_store::sqlite::{Conn, SqliteError};
use holdfast_types::Cost;
use holdfast_types::definition::redefinition::Redefinition;
use std::sync::atomic::{AtomicU64, Ordering};

/// Prepares the statement on `conn` and describes it.
pub fn describe(conn: &mut Conn, sql: &str, report: Report) -> Result<Statement, SqliteError> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if Redefinition::is(sql) {
        return Ok(Statement {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            sql: sql.to_owned(),
            param_count: 0,
            class: Class::Ddl,
            cost: Cost::Unbounded,
            names_its_rows: false,
            columns: Vec::new(),
            report,
            touched: Box::default(),
            temp: None,
        });
    }
    let (id, touched) = match report.internal {
        true => (conn.prepare(sql)?, Vec::new()),
        false => conn.guarded_touching(|conn| conn.prepare(sql))?,
    };
    let described =
        classify(conn, id, sql, report.facts.explained_at.is_some()).map(|Classified { class, cost }| Statement {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            sql: sql.to_owned(),
            param_count: conn.param_count(id),
            class: match class {
                _ if report.ddl => Class::Ddl,
                Class::Read if report.write => Class::Write,
                Class::Scan if report.write => Class::WriteScan,
                class => class,
            },
            cost,
            names_its_rows: class == Class::Write && report.facts.names_its_rows,
            columns: conn.columns(id),
            report,
            touched: touched.into(),
            temp: None,
        });
    conn.finalize(id);
    described
}
