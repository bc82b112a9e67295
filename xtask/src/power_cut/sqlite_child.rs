//! The program that uses SQLite under a power-cut test: a child, so that it can be killed and its acknowledgements are
//! kept elsewhere.
//!
//! It opens the database (which recovers it), says `ready`, and obeys lines on its standard input: `create` makes the
//! tables, `verify` prints `row ID NOTE`, `part ID NOTE` and `sum N`, each ended by `done`, `load N FIRST` lets N threads
//! write transactions with ids from FIRST on and prints `ack ID` after each commit. It ends at the first error, with the
//! reason on its standard error, and at the end of its input.

use std::io::{BufRead as _, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rusqlite::Connection;

use crate::recorder::note;

const TABLES: &str = "CREATE TABLE ack (id integer PRIMARY KEY, note text NOT NULL); \
    CREATE TABLE ack_part (id bigint NOT NULL, part int NOT NULL, note text NOT NULL, PRIMARY KEY (id, part)); \
    CREATE TABLE account (id int PRIMARY KEY, v bigint NOT NULL); \
    INSERT INTO account VALUES (0, 0), (1, 0), (2, 0), (3, 0)";

/// Pages in the WAL before a checkpoint: few, so that many cuts meet one.
const CHECKPOINT_PAGES: u32 = 100;

#[derive(clap::Args)]
pub struct Child {
    #[arg(long)]
    file: PathBuf,
    #[arg(long)]
    synchronous: String,
}

pub fn run(child: &Child) -> anyhow::Result<bool> {
    let database = open(child)?;
    let found: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if found != "ok" {
        bail!("integrity_check: {found}");
    }
    say("ready")?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            ["create"] => database.execute_batch(TABLES)?,
            ["verify"] => verify(&database)?,
            ["load", threads, first] => load(child, threads.parse()?, first.parse()?)?,
            _ => bail!("what is `{line}`?"),
        }
        say("done")?;
    }
    Ok(true)
}

fn open(child: &Child) -> anyhow::Result<Connection> {
    let database = Connection::open(&child.file).context("opening the database")?;
    database.busy_timeout(Duration::from_secs(60))?;
    database.pragma_update(None, "journal_mode", "wal")?;
    database.pragma_update(None, "synchronous", &child.synchronous)?;
    database.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    Ok(database)
}

/// A whole line at once, whichever thread says it.
fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes())?;
    out.flush()
}

fn verify(database: &Connection) -> anyhow::Result<()> {
    for (table, word) in [("ack", "row"), ("ack_part", "part")] {
        let mut statement = database.prepare(&format!("SELECT id, note FROM {table}"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            say(&format!("{word} {} {}", row.get::<_, i64>(0)?, row.get::<_, String>(1)?))?;
        }
    }
    let sum: i64 = database.query_row("SELECT sum(v) FROM account", [], |row| row.get(0))?;
    Ok(say(&format!("sum {sum}"))?)
}

/// Returns with the first error of a thread.
fn load(child: &Child, threads: u32, first: i64) -> anyhow::Result<()> {
    let next = AtomicI64::new(first);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| -> anyhow::Result<()> {
                    let database = open(child)?;
                    loop {
                        let id = next.fetch_add(1, Ordering::Relaxed);
                        if let Err(error) = write(&database, id) {
                            // The others would go on, and the power fails for all.
                            eprintln!("{error:#}");
                            std::process::exit(1);
                        }
                        say(&format!("ack {id}"))?;
                    }
                })
            })
            .collect();
        writers.into_iter().try_for_each(|writer| writer.join().unwrap_or_else(|_| bail!("a writer panicked")))
    })
}

fn write(database: &Connection, id: i64) -> anyhow::Result<()> {
    let note = note(id);
    database.execute_batch(&format!(
        "BEGIN IMMEDIATE; INSERT INTO ack VALUES ({id}, '{note}'); \
         INSERT INTO ack_part VALUES ({id}, 1, '{note}'), ({id}, 2, '{note}'); \
         UPDATE account SET v = v - {id} WHERE id = {}; UPDATE account SET v = v + {id} WHERE id = {}; COMMIT",
        id % 4,
        (id + 1) % 4
    ))?;
    Ok(())
}
