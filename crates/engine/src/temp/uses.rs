//! Which tables a statement uses, temporary or permanent: SQLite's program for it begins with a transaction in each
//! schema that it touches.
//!
//! What reads the catalogue runs as a statement of temporary tables as well, since it shows them. So do PRAGMAs and
//! their table functions, whose programs do not say what they look at.

use super::TempSpace;
use crate::statement::Statement;
use holdfast_store::sqlite::{Conn, SqliteError, TEMP_SCHEMA};
use holdfast_types::Value;
use std::sync::Arc;

/// How a statement uses its session's temporary tables.
#[derive(Clone, Debug)]
pub struct TempUse {
    pub space: Arc<TempSpace>,
    /// It names some. Else it only shows what there is.
    pub uses: bool,
    /// It changes their rows.
    pub writes: bool,
    /// It uses permanent tables as well.
    pub main: bool,
    /// It changes or locks those.
    pub changes_main: bool,
}

/// `None` where it can run without them.
pub fn temp_use(
    conn: &mut Conn,
    space: &Arc<TempSpace>,
    statement: &Statement,
) -> Result<Option<TempUse>, SqliteError> {
    let (sql, explains) = explained(&statement.sql);
    let place = conn.query_rows("pragma database_list")?;
    let temp = place.iter().find(|row| row[1] == Value::Text(TEMP_SCHEMA.into())).map(|row| row[0].clone());
    let changes_main = statement.report.write;
    let mut found = TempUse { space: space.clone(), uses: false, writes: false, main: false, changes_main };
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

/// What an EXPLAIN explains, and whether it is one.
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
