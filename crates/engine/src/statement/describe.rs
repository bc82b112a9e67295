//! Prepares a statement on one connection and describes it for all connections.

use crate::statement::classify::{Classified, classify};
use crate::statement::model::{Class, Report, Statement};
use holdfast_store::sqlite::{Conn, SqliteError};
use holdfast_types::Cost;
use holdfast_types::definition::redefinition::Redefinition;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whether the statement changes only rows that it names. Judged from words that may read other rows or skip some; a
/// wrong "no" only costs time.
fn names_its_rows(sql: &str) -> bool {
    let sql = sql.to_ascii_lowercase();
    let after = ["insert into", "update ", "delete from"].iter().find_map(|v| sql.trim_start().strip_prefix(v));
    // A second table (UPDATE ... FROM), a subquery, several rows, rows left out.
    let looks_elsewhere = |rest: &str| {
        let mut words = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.any(|w| matches!(w, "select" | "from" | "conflict" | "in" | "or" | "exists" | "with"))
    };
    after.is_some_and(|rest| !looks_elsewhere(rest))
}

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
    let described = classify(conn, id, sql).map(|Classified { class, cost }| Statement {
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
        names_its_rows: class == Class::Write && names_its_rows(sql),
        columns: conn.columns(id),
        report,
        touched: touched.into(),
        temp: None,
    });
    conn.finalize(id);
    described
}

#[cfg(test)]
mod tests {
    use super::names_its_rows;

    #[test]
    fn what_looks_elsewhere_does_not_only_name_its_rows() {
        assert!(names_its_rows("INSERT INTO t(a) VALUES(?1)"));
        assert!(names_its_rows("update t set a = ?1 where id = ?2 returning a"));
        assert!(names_its_rows("delete from t where id = 1"));
        assert!(!names_its_rows("update t set a = o.a from o where t.id = 1 and o.id = 2"));
        assert!(!names_its_rows("update t set a = (select a from o) where id = 1"));
        assert!(!names_its_rows("insert into t values(1) on conflict do nothing"));
        assert!(!names_its_rows("insert or ignore into t values(1)"));
        assert!(!names_its_rows("update t set a = 1 where id in (1, 2)"));
        assert!(!names_its_rows("delete from t where id=1 or\tid=2"));
    }
}
