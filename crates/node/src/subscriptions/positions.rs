//! How far a subscription is: the rows of the internal table `holdfast_positions`, which change in the same transaction as the rows
//! that they speak of. So a crash repeats nothing and leaves nothing out.
//!
//! | object | LSN of the publisher |
//! |---|---|
//! | 0 | everything below is applied |
//! | stable id of a table | its rows were copied as they were there |

use super::target::internal;
use holdfast_engine::{Collect, Database, Statement, Step, Submission};
use holdfast_store::schema_map::POSITIONS_TABLE;
use holdfast_store::schema_read::FIRST_OID;
use holdfast_types::{Level, SqlError, SqlResult, SqlState, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// Object and LSN of each row of a subscription.
fn read(db: &Database, number: u32) -> SqlResult<Vec<(u32, u64)>> {
    let sql = format!("SELECT object, lsn FROM main.{POSITIONS_TABLE} WHERE subscription = {number}");
    let row = |row: Vec<Value>| match row.as_slice() {
        [Value::Int(object), Value::Int(lsn)] => Ok((*object as u32, *lsn as u64)),
        _ => Err(SqlError::internal(format!("{POSITIONS_TABLE} is damaged"))),
    };
    db.position_rows(&sql)?.into_iter().map(row).collect()
}

fn copies(rows: &[(u32, u64)]) -> HashMap<u32, u64> {
    rows.iter().filter(|(object, _)| *object != 0).map(|(object, lsn)| (object + FIRST_OID, *lsn)).collect()
}

/// The positions of one subscription.
pub struct Positions {
    db: Database,
    number: u32,
    moved: Arc<Statement>,
    add: Arc<Statement>,
    /// Everything below is applied.
    pub applied: u64,
    /// The tables whose rows were copied, by OID, with the place at which they were.
    pub copied: HashMap<u32, u64>,
}

impl Positions {
    /// Reads them. A subscription that begins gets its row.
    pub async fn of(db: &Database, number: u32) -> SqlResult<Positions> {
        let rows = read(db, number)?;
        // By its key, so that the writer takes it with the changes.
        let moved = format!(
            "UPDATE main.{POSITIONS_TABLE} SET lsn = CASE WHEN lsn = ?3 THEN ?2 END WHERE subscription = ?1 AND object = 0"
        );
        let add = format!("INSERT INTO main.{POSITIONS_TABLE} VALUES(?1, ?2, ?3)");
        let mut positions = Positions {
            db: db.clone(),
            number,
            moved: internal(db, &moved)?,
            add: internal(db, &add)?,
            applied: 0,
            copied: HashMap::new(),
        };
        positions.copied = copies(&rows);
        let begun = rows.iter().find(|(object, _)| *object == 0);
        positions.applied = begun.map_or(0, |(_, lsn)| *lsn);
        if begun.is_none() {
            positions.run(positions.added(0, 0)).await?;
        }
        Ok(positions)
    }

    /// Notes that everything below `lsn` is applied. Fails where the position is not the one that this worker knows, because a
    /// commit of an earlier worker arrived late: see [`Positions::is_other`]. Where the subscription was dropped meanwhile there is no
    /// row, and what comes with this step fails, because it was made for another schema.
    pub fn moved(&self, lsn: u64) -> Step {
        let params = [self.number.into(), lsn as i64, self.applied as i64];
        Step { stmt: self.moved.clone(), params: params.map(Value::Int).to_vec() }
    }

    /// The error of a step of [`Positions::moved`] or [`Positions::copied_at`]: the position is another and the column refuses NULL, or
    /// the table was copied meanwhile.
    pub fn is_other(error: &SqlError) -> bool {
        matches!(error.state(), SqlState::NOT_NULL_VIOLATION | SqlState::UNIQUE_VIOLATION)
    }

    /// Notes that a table's rows were copied as they were at `lsn`.
    pub fn copied_at(&self, table: u32, lsn: u64) -> Step {
        self.added(table - FIRST_OID, lsn)
    }

    fn added(&self, object: u32, lsn: u64) -> Step {
        let params = vec![Value::Int(self.number.into()), Value::Int(object.into()), Value::Int(lsn as i64)];
        Step { stmt: self.add.clone(), params }
    }

    /// Runs one step as a transaction of its own.
    pub async fn run(&self, step: Step) -> SqlResult<()> {
        let submission = Submission::new(vec![step], Box::new(Collect::new()));
        let done = self.db.submit(Submission { level: Level::Local, ..submission })?.await;
        done.ok_or_else(SqlError::shutting_down)?.result
    }
}
