//! Holdfast as a library: a directory, a table, transactions in this process, no socket.
//!
//! `cargo run --example embedded -p holdfast-engine -- [DIR]`
//!
//! A program of its own needs SQLite's flags from this repository's `.cargo/config.toml` in its own.

use holdfast_engine::{Collect, Database, Engine, Options, Report, Step, Submission};
use holdfast_types::{SessionContext, Value};
use std::error::Error;
use std::path::PathBuf;

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("embedded-data"), PathBuf::from);
    let engine = Engine::open(&dir, Options::default())?;
    let db = engine.database("holdfast")?;
    write(&db, &[("create table if not exists account(id integer primary key, balance integer not null)", vec![])])?;
    let open = "insert into account values(?, 100) on conflict do nothing";
    write(&db, &[(open, vec![Value::Int(1)]), (open, vec![Value::Int(2)])])?;

    // Both rows or neither: one transaction, durable when `write` returns.
    let add = "update account set balance = balance + ? where id = ?";
    write(&db, &[(add, vec![Value::Int(-30), Value::Int(1)]), (add, vec![Value::Int(30), Value::Int(2)])])?;

    // Readers see visible snapshots and wait for no one.
    let rows = Collect::new();
    let step = Step { stmt: db.prepare("select id, balance from account", Report::default())?, params: Vec::new() };
    db.reader()?.run(&SessionContext::NONE, 0, &step, &mut rows.clone())?;
    for row in rows.outcomes().iter().flat_map(|outcome| &outcome.rows) {
        println!("{row:?}");
    }
    engine.close()?;
    Ok(())
}

/// Runs statements as one transaction and waits until it is durable.
fn write(db: &Database, statements: &[(&str, Vec<Value>)]) -> Result<(), Box<dyn Error>> {
    let mut steps = Vec::new();
    for (sql, params) in statements {
        steps.push(Step { stmt: db.prepare(sql, Report::default())?, params: params.clone() });
    }
    let ticket = db.submit(Submission::new(steps, Box::new(Collect::new())))?;
    ticket.wait().ok_or("the engine was closed")?.result?;
    Ok(())
}
