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
    let facts = &statement.report.facts;
    let explains = facts.explained_at.is_some();
    let sql = &statement.sql[facts.explained_at.unwrap_or(0)..];
    let place = conn.query_rows("pragma database_list")?;
    let temp = place.iter().find(|row| row[1] == Value::Text(TEMP_SCHEMA.into())).map(|row| row[0].clone());
    let changes_main = statement.report.write;
    let mut found = TempUse { tables: tables.clone(), uses: false, writes: false, main: false, changes_main };
    let mut needed = facts.pragma;
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

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_store::sqlite::OpenFlags;

    #[test]
    fn what_lists_tables_may_list_temporary_ones() {
        let mut conn = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        conn.exec("create table t(x)").unwrap();
        let tables = TempTables::new("d".into(), "unused".into(), 0);
        for (sql, found) in [
            ("pragma table_info(t)", true),
            ("/* c */ explain pragma table_info(t)", true),
            ("select * from pragma_table_info('t')", true),
            ("explain query plan select * from pragma_table_list", true),
            ("select x as pragma from t where x = 'pragma'", false),
            (" /* c */ explain query plan select x from t", false),
            ("explain delete from t", false),
        ] {
            let report = Report { facts: holdfast_sql::facts(sql), ..Report::default() };
            let statement = describe(&mut conn, sql, report).unwrap();
            let temp = temp_use(&mut conn, &tables, &statement).unwrap();
            assert_eq!(temp.as_ref().map(|temp| temp.changes_main), found.then_some(false), "{sql}");
        }
    }
}
