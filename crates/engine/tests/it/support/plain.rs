//! Plain SQLite, in memory, as oracle: the same transactions, and everything it holds as text.

use super::workload::{Step, Transaction};
use holdfast_store::sqlite::{Conn, OpenFlags};
use holdfast_types::Value;

pub struct Plain {
    conn: Conn,
}

impl Plain {
    pub fn new() -> Plain {
        let mut conn = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        conn.exec("pragma foreign_keys=on").unwrap();
        Plain { conn }
    }

    /// Whether it committed.
    pub fn run(&mut self, transaction: &Transaction) -> bool {
        self.conn.exec("begin").unwrap();
        let ran = match transaction {
            Transaction::Message(sqls) => sqls.iter().all(|sql| self.conn.exec(sql).is_ok()),
            Transaction::Interactive(steps) => {
                steps.iter().for_each(|step| self.step(step));
                true
            }
        };
        let committed = ran && self.conn.exec("commit").is_ok();
        if !self.conn.autocommit() {
            self.conn.exec("rollback").unwrap();
        }
        committed
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Run(sql) => {
                self.conn.exec("savepoint one").unwrap();
                if self.conn.exec(sql).is_err() {
                    self.conn.exec("rollback to one").unwrap();
                }
                self.conn.exec("release one").unwrap();
            }
            Step::Savepoint(name) => self.conn.exec(&format!("savepoint {name}")).unwrap(),
            Step::RollbackTo(name) => self.conn.exec(&format!("rollback to {name}")).unwrap(),
            Step::Release(name) => self.conn.exec(&format!("release {name}")).unwrap(),
        }
    }

    pub fn dump(&mut self) -> String {
        dump(|sql| self.conn.query_rows(sql).map_err(|e| e.to_string())).expect("memory can be read")
    }
}

const OBJECTS: &str = "select name, sql from sqlite_schema where tbl_name not like 'holdfast%' order by name";

/// Everything a database holds, as text, by a way to run a query.
pub fn dump(mut query: impl FnMut(&str) -> Result<Vec<Vec<Value>>, String>) -> Result<String, String> {
    let mut all = String::new();
    let mut add = |sql: &str| -> Result<Vec<Vec<Value>>, String> {
        let rows = query(sql).map_err(|e| format!("{sql}: {e}"))?;
        all.push_str(&format!("{sql}\n"));
        rows.iter().for_each(|row| all.push_str(&format!("{row:?}\n")));
        Ok(rows)
    };
    for object in add(OBJECTS)? {
        let [Value::Text(name), Value::Text(sql)] = object.as_slice() else { continue };
        match sql.to_ascii_lowercase() {
            sql if !sql.starts_with("create table") || name.starts_with("f_") => {}
            sql if sql.contains("without rowid") => drop(add(&format!("select * from {name} order by 1"))?),
            _ => drop(add(&format!("select rowid, * from {name} order by rowid"))?),
        }
        if name == "f" {
            add("select rowid, body from f order by rowid")?;
            add("select rowid from f where f match 'red' order by rowid")?;
        }
    }
    Ok(all)
}
