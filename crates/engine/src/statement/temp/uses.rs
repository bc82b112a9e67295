//! Which tables a statement uses, temporary or permanent: SQLite's program for it begins with a transaction in each
//! schema that it touches.
//!
//! A statement that reads the catalogue also counts as one over temporary tables, because the catalogue shows them. So
//! do PRAGMAs and their table functions, whose programs do not reveal what they read.

use super::tables::{TempTables, TempUse};
use crate::statement::describe::describe;
use crate::statement::model::{Class, Report, Statement};
use crate::statement::run::to_sql;
use holdfast_store::sqlite::{Conn, SqliteError, TEMP_SCHEMA};
use holdfast_types::schema::Schema;
use holdfast_types::{SqlResult, Value};
use std::sync::Arc;

/// Prepares a statement on a connection that has the schema `permanent` and the tables attached.
pub fn describe_with(
    tables: &Arc<TempTables>,
    conn: &mut Conn,
    permanent: &Arc<Schema>,
    sql: &str,
    report: Report,
) -> SqlResult<Arc<Statement>> {
    let schema = tables.schema(permanent);
    let error = |e| to_sql(&e, sql, &schema);
    let mut statement = describe(conn, sql, report).map_err(error)?;
    statement.temp = temp_use(conn, tables, &statement).map_err(error)?;
    if let Some(temp) = &statement.temp {
        statement.class = if temp.changes_main { Class::WriteScan } else { Class::Scan };
        statement.names_its_rows = false;
    }
    Ok(Arc::new(statement))
}

/// `None` if it can run without them.
pub fn temp_use(
    conn: &mut Conn,
    tables: &Arc<TempTables>,
    statement: &Statement,
) -> Result<Option<TempUse>, SqliteError> {
    let (sql, explains) = explained(&statement.sql);
    let place = conn.query_rows("pragma database_list")?;
    let temp = place.iter().find(|row| row[1] == Value::Text(TEMP_SCHEMA.into())).map(|row| row[0].clone());
    let changes_main = statement.report.write;
    let mut found = TempUse { tables: tables.clone(), uses: false, writes: false, main: false, changes_main };
    let mut needed = sql.to_ascii_lowercase().contains("pragma");
    for row in conn.query_rows(&format!("explain {sql}"))? {
        let (Value::Text(op), schema, Value::Int(write)) = (&row[1], &row[2], &row[3]) else { continue };
        let writes = *write != 0 && !explains;
        match op.as_str() {
            "Transaction" if Some(schema) == temp.as_ref() => {
                found.uses = true;
                found.writes |= writes;
            }
            "Transaction" if *schema == Value::Int(0) => {
                found.main = true;
                found.changes_main |= writes;
            }
            "Transaction" | "VOpen" => needed = true,
            _ => {}
        }
    }
    found.main |= found.changes_main;
    Ok((needed || found.uses).then_some(found))
}

/// The statement behind an EXPLAIN, and whether there is an EXPLAIN.
fn explained(sql: &str) -> (&str, bool) {
    let mut rest = sql.trim_start();
    let mut explains = false;
    for word in ["explain", "query", "plan"] {
        if rest.get(..word.len()).is_some_and(|w| w.eq_ignore_ascii_case(word)) && (explains || word == "explain") {
            rest = rest[word.len()..].trim_start();
            explains = true;
        }
    }
    (rest, explains)
}

#[cfg(test)]
mod tests {
    use super::explained;

    #[test]
    fn explain_is_looked_through() {
        assert_eq!(explained("EXPLAIN QUERY PLAN select 1"), ("select 1", true));
        assert_eq!(explained("explain delete from t"), ("delete from t", true));
        assert_eq!(explained("select plan from query"), ("select plan from query", false));
    }
}
