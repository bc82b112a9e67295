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
use holdfast_types::{Level, SqlError, SqlResult, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// The positions of one subscription.
pub struct Positions {
    db: Database,
    number: u32,
    move_on: Arc<Statement>,
    add: Arc<Statement>,
    /// Everything below is applied.
    pub applied: u64,
    /// The tables whose rows were copied, by OID, with the place at which they were.
    pub copied: HashMap<u32, u64>,
}

impl Positions {
    /// Reads them. A subscription that begins gets its row.
    pub async fn of(db: &Database, number: u32) -> SqlResult<Positions> {
        let sql = format!("SELECT object, lsn FROM main.{POSITIONS_TABLE} WHERE subscription = {number}");
        let rows = db.internal_rows(POSITIONS_TABLE, &sql)?;
        let move_on = format!("UPDATE main.{POSITIONS_TABLE} SET lsn = ?2 WHERE subscription = ?1 AND object = 0");
        let add = format!("INSERT INTO main.{POSITIONS_TABLE} VALUES(?1, ?2, ?3)");
        let mut positions = Positions {
            db: db.clone(),
            number,
            move_on: internal(db, &move_on)?,
            add: internal(db, &add)?,
            applied: 0,
            copied: HashMap::new(),
        };
        let mut begun = false;
        for row in rows {
            let [Value::Int(object), Value::Int(lsn)] = row.as_slice() else {
                return Err(SqlError::internal(format!("{POSITIONS_TABLE} is damaged")));
            };
            match *object {
                0 => (begun, positions.applied) = (true, *lsn as u64),
                table => _ = positions.copied.insert(table as u32 + FIRST_OID, *lsn as u64),
            }
        }
        if !begun {
            positions.run(positions.added(0, 0)).await?;
        }
        Ok(positions)
    }

    /// Notes that everything below `lsn` is applied.
    pub fn moved(&self, lsn: u64) -> Step {
        Step { stmt: self.move_on.clone(), params: vec![Value::Int(self.number.into()), Value::Int(lsn as i64)] }
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
