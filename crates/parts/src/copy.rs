//! From the restored file into the server.
//!
//! | what | in |
//! |---|---|
//! | a table: definition, rows, indexes | one transaction |
//! | a database: CREATE DATABASE; each table as above; views, virtual tables, triggers | a transaction for each; after an error the database is dropped |
//!
//! Failure: see the crate.

use crate::error::PartError;
use crate::order::{rowid_name, rows_in_order};
use crate::rows::{Cell, Rows, put_copy_row};
use crate::source::{Definition, Source};
use bytes::BytesMut;
use futures::SinkExt;
use holdfast_client::{Server, StatementError, rows, run};
use holdfast_dump::identifier::after_word;
use holdfast_dump::restore::Part;
use holdfast_sql::types::{Type, of_column};
use holdfast_store::sqlite::StmtId;
use holdfast_types::lsn::parse_lsn;
use holdfast_types::quoting::{quote, quote_text};
use holdfast_types::schema::{Dialect, Table};
use serde::Serialize;
use std::collections::HashMap;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The database in the dump; a table goes into the server's database of the same name.
    pub database: String,
    /// `None`: the whole database.
    pub table: Option<String>,
    /// Its name in the server.
    pub name: String,
    pub foreign_keys: bool,
}

impl Wanted {
    /// The server's database in which a session begins.
    fn session_database(&self) -> &str {
        if self.table.is_some() { &self.database } else { "postgres" }
    }
}

/// How far a copy is.
#[derive(Clone, Copy, Debug)]
pub struct PartProgress {
    pub rows: u64,
    pub total_rows: u64,
}

/// What was copied.
#[derive(Serialize, Clone, Copy, PartialEq, Debug)]
pub struct Copied {
    pub tables: usize,
    pub rows: u64,
    pub seconds: f64,
}

/// The name of its sessions.
const PROGRAM: &str = "holdfast restore";
/// Bytes of COPY's text that are sent at a time.
const COPY_BYTES: usize = 64 << 10;
/// Prepared INSERTs that are kept for a table.
const STATEMENTS_MAX: usize = 64;
/// How often the archive is looked at, and how long it may stand still.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const STANDS_STILL: Duration = Duration::from_secs(30);

/// Whether the server will take it, before anything is fetched: the name is free, and the role may create there.
pub async fn check(server: &Server, wanted: &Wanted) -> Result<(), PartError> {
    let client = server.connect(wanted.session_database(), PROGRAM).await?;
    if wanted.table.is_none() {
        let sql = format!("SELECT 1 FROM pg_database WHERE datname = {}", quote_text(&wanted.name));
        return match rows(&client, "the server's databases", &sql).await?.is_empty() {
            true => Ok(()),
            false => Err(PartError::DatabaseExists(wanted.name.clone())),
        };
    }
    let probe = format!("BEGIN; CREATE TABLE {} (probe integer); ROLLBACK", quote(&wanted.name));
    let what = format!("table {} cannot be created in database {}", wanted.name, wanted.database);
    Ok(run(&client, what, &probe).await?)
}

/// Has the server put everything that it has committed so far into its archive, so that the restore can reach it. `Err`: why
/// the archive may lack the last of it.
pub async fn archive_now(server: &Server, wanted: &Wanted) -> Result<(), String> {
    let client = server.connect(wanted.session_database(), PROGRAM).await.map_err(|e| e.to_string())?;
    let position = async |what: &str, sql: &str| -> Result<Option<u64>, String> {
        let answer = rows(&client, what, sql).await.map_err(|error| error.to_string())?;
        let cell = answer.into_iter().next().and_then(|row| row.into_iter().next().flatten());
        Ok(cell.as_deref().and_then(parse_lsn))
    };
    let archived = async || position("the archive", "SELECT archived_lsn FROM holdfast_stat_archive").await;
    let Some(mut last) = archived().await? else { return Err("the server has no archive".to_owned()) };
    let wanted = position("the end of the trail", "SELECT pg_switch_wal()").await?.unwrap_or(0);
    let mut since = Instant::now();
    while last < wanted {
        if since.elapsed() > STANDS_STILL {
            return Err(format!("the archive has not moved beyond LSN {last} for {} s", STANDS_STILL.as_secs()));
        }
        tokio::time::sleep(LOOK_EVERY).await;
        let now = archived().await?.unwrap_or(0);
        if now > last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(())
}

/// Copies the part into the server.
pub async fn copy(
    server: &Server,
    wanted: &Wanted,
    part: &Part,
    progress: &(dyn Fn(PartProgress) + Sync),
) -> Result<Copied, PartError> {
    let began = Instant::now();
    let mut source = Source::open(part)?;
    let client = server.connect(wanted.session_database(), PROGRAM).await?;
    let (tables, rows) = match &wanted.table {
        Some(table) => (1, copy_table(&client, &mut source, wanted, table, progress).await?),
        None => {
            let dialect = if source.dialect == Dialect::Sqlite { " DIALECT sqlite" } else { "" };
            let name = quote(&wanted.name);
            run(&client, format!("database {}", wanted.name), &format!("CREATE DATABASE {name}{dialect}")).await?;
            match copy_database(server, &mut source, wanted, progress).await {
                Ok(copied) => copied,
                Err(error) => {
                    // What is reported is why; a database that stays is seen in the server.
                    let _ = client.batch_execute(&format!("DROP DATABASE {name}")).await;
                    return Err(error);
                }
            }
        }
    };
    Ok(Copied { tables, rows, seconds: began.elapsed().as_secs_f64() })
}

/// A session that runs as long as it takes.
async fn prepare(client: &Client) -> Result<(), PartError> {
    let sql = "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0; \
               SET auto_transaction = off; SET default_transaction_read_only = off";
    Ok(run(client, "the session", sql).await?)
}

async fn copy_table(
    client: &Client,
    source: &mut Source,
    wanted: &Wanted,
    table: &str,
    progress: &(dyn Fn(PartProgress) + Sync),
) -> Result<u64, PartError> {
    prepare(client).await?;
    // Only SQLite's dialect has this function.
    let here = match client.simple_query("SELECT typeof(1)").await {
        Ok(_) => Dialect::Sqlite,
        Err(_) => Dialect::Postgres,
    };
    if here != source.dialect {
        let (here, there) = (name_of(here), name_of(source.dialect));
        return Err(PartError::Dialect { database: wanted.database.clone(), here, there });
    }
    let sql = "SELECT relname FROM pg_catalog.pg_class";
    let taken: Vec<String> = rows(client, "the server's tables", sql).await?.into_iter().flatten().flatten().collect();
    let definition = source.table(&wanted.database, table, &wanted.name, &taken, wanted.foreign_keys)?;
    let total_rows = definition.rows;
    fill(client, source, &definition, &|rows| progress(PartProgress { rows, total_rows })).await?;
    Ok(total_rows)
}

fn name_of(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Sqlite => "SQLite's",
        Dialect::Postgres => "PostgreSQL's",
    }
}

async fn copy_database(
    server: &Server,
    source: &mut Source,
    wanted: &Wanted,
    progress: &(dyn Fn(PartProgress) + Sync),
) -> Result<(usize, u64), PartError> {
    let client = server.connect(&wanted.name, PROGRAM).await?;
    prepare(&client).await?;
    let definitions = source.tables(wanted.foreign_keys)?;
    let total_rows = definitions.iter().map(|definition| definition.rows).sum();
    let mut done = 0;
    for definition in &definitions {
        let before = done;
        fill(&client, source, definition, &|rows| progress(PartProgress { rows: before + rows, total_rows })).await?;
        done += definition.rows;
    }
    for view in source.views() {
        run(&client, "a view", &stored(&view, source.dialect)).await?;
    }
    for table in source.virtual_tables() {
        done += fill_virtual(&client, source, &table).await?;
    }
    for trigger in source.triggers() {
        run(&client, "a trigger", &trigger).await?;
    }
    Ok((definitions.len(), done))
}

/// The statement that makes the object of a stored definition.
fn stored(definition: &str, dialect: Dialect) -> String {
    match (dialect, after_word(definition, "create")) {
        (Dialect::Postgres, Some(rest)) => format!("CREATE STORED{rest}"),
        _ => definition.to_owned(),
    }
}

/// Creates a table with its rows and indexes, in one transaction.
async fn fill(
    client: &Client,
    source: &mut Source,
    definition: &Definition,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), PartError> {
    let filled = fill_in_transaction(client, source, definition, progress).await;
    if filled.is_err() {
        let _ = client.batch_execute("ROLLBACK").await;
    }
    filled.map_err(|error| with_hint(error, definition))
}

/// An error of a foreign key, with the way around it.
fn with_hint(error: PartError, definition: &Definition) -> PartError {
    let of_key = [SqlState::FOREIGN_KEY_VIOLATION, SqlState::UNDEFINED_TABLE];
    match error {
        PartError::Statement(mut error)
            if !definition.table.foreign_keys.is_empty() && of_key.iter().any(|state| error.is(state.code())) =>
        {
            error.message.push_str(
                ". The table refers to rows that are not in the server: bring it back with --without-foreign-keys",
            );
            error.into()
        }
        other => other,
    }
}

async fn fill_in_transaction(
    client: &Client,
    source: &mut Source,
    definition: &Definition,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(), PartError> {
    let name = &definition.name;
    let what = || format!("table {name}");
    run(client, what(), "BEGIN").await?;
    run(client, what(), &stored(&definition.create, source.dialect)).await?;
    let copied = match source.dialect {
        Dialect::Postgres => copy_rows(client, source, definition, progress).await?,
        Dialect::Sqlite => insert_rows(client, source, &definition.table, name, true, progress).await?,
    };
    if copied != definition.rows {
        return Err(PartError::Count { table: name.clone(), copied, rows: definition.rows });
    }
    for index in &definition.indexes {
        run(client, format!("an index of table {name}"), &stored(index, source.dialect)).await?;
    }
    run(client, what(), "COMMIT").await?;
    // The counter goes its own way: a transaction with others has it from its rows.
    let Some(sequence) = definition.sequence else { return Ok(()) };
    let of = quote_text(name);
    // A table without rows has no counter yet.
    let sql = format!(
        "DELETE FROM sqlite_sequence WHERE name = {of}; INSERT INTO sqlite_sequence(name, seq) VALUES ({of}, {sequence})"
    );
    Ok(run(client, what(), &sql).await?)
}

/// The columns that rows are given in: not those that are computed.
fn columns(table: &Table) -> Vec<String> {
    table.columns.iter().filter(|column| !column.generated).map(|column| quote(&column.name)).collect()
}

fn select(table: &Table, name: &str, columns: &[String]) -> String {
    let listed: Vec<String> = columns.iter().map(|column| format!("\"t\".{column}")).collect();
    format!("SELECT {} FROM {}", listed.join(", "), rows_in_order(table, name))
}

async fn copy_rows(
    client: &Client,
    source: &mut Source,
    definition: &Definition,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<u64, PartError> {
    let (table, name) = (&definition.table, &definition.name);
    let failed = |error: tokio_postgres::Error| StatementError::of(format!("table {name}"), &error);
    let listed = columns(table);
    if listed.is_empty() {
        return Ok(0);
    }
    let types: Vec<Type> = table
        .columns
        .iter()
        .filter(|column| !column.generated)
        .map(|column| of_column(table, column, Dialect::Postgres))
        .collect();
    let sql = format!("COPY {} ({}) FROM STDIN", quote(name), listed.join(", "));
    let mut sink = pin!(client.copy_in::<_, bytes::Bytes>(&sql).await.map_err(failed)?);
    let statement = source.conn.prepare(&select(table, name, &listed))?;
    let (mut scratch, mut out, mut rows) = (Vec::new(), BytesMut::new(), 0u64);
    while source.conn.step(statement)? {
        let conn = &source.conn;
        let values = types.iter().enumerate().map(|(i, ty)| (*ty, conn.column(statement, i)));
        put_copy_row(values, &mut scratch, &mut out);
        rows += 1;
        if out.len() >= COPY_BYTES {
            sink.feed(out.split().freeze()).await.map_err(failed)?;
            progress(rows);
        }
    }
    source.conn.finalize(statement);
    if !out.is_empty() {
        sink.feed(out.freeze()).await.map_err(failed)?;
    }
    let copied = sink.as_mut().finish().await.map_err(failed)?;
    progress(rows);
    Ok(copied)
}

/// Rows of a database of SQLite's dialect; returns how many were stored.
async fn insert_rows(
    client: &Client,
    source: &mut Source,
    table: &Table,
    name: &str,
    keep_ids: bool,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<u64, PartError> {
    let mut listed = columns(table);
    let hidden = rowid_name(table).filter(|rowid| keep_ids && !table.without_rowid && !listed.contains(rowid));
    listed.splice(0..0, hidden);
    let into = format!("INSERT INTO {} ({})", quote(name), listed.join(", "));
    let mut inserts = Inserts { client, name, into, prepared: HashMap::new(), stored: 0 };
    let statement = source.conn.prepare(&select(table, name, &listed))?;
    let (mut rows, mut read) = (Rows::default(), 0u64);
    while source.conn.step(statement)? {
        read += 1;
        if let Err(row) = rows.take(row(source, statement, listed.len())) {
            inserts.run(&mut rows).await?;
            progress(read);
            // An empty INSERT takes any row.
            let _ = rows.take(row);
        }
    }
    source.conn.finalize(statement);
    if !rows.is_empty() {
        inserts.run(&mut rows).await?;
    }
    progress(read);
    Ok(inserts.stored)
}

fn row(source: &Source, statement: StmtId, columns: usize) -> Vec<Cell> {
    (0..columns).map(|i| Cell::of(source.conn.column(statement, i))).collect()
}

/// The INSERTs of a table.
struct Inserts<'a> {
    client: &'a Client,
    name: &'a str,
    into: String,
    prepared: HashMap<(String, Vec<u32>), Statement>,
    stored: u64,
}

impl Inserts<'_> {
    async fn run(&mut self, rows: &mut Rows) -> Result<(), PartError> {
        let failed = |error: tokio_postgres::Error| StatementError::of(format!("table {}", self.name), &error);
        let (sql, types) = rows.statement(&self.into);
        let key = (sql, types.iter().map(tokio_postgres::types::Type::oid).collect::<Vec<u32>>());
        if self.prepared.len() >= STATEMENTS_MAX {
            self.prepared.clear();
        }
        let statement = match self.prepared.get(&key) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.client.prepare_typed(&key.0, &types).await.map_err(failed)?;
                self.prepared.insert(key, statement.clone());
                statement
            }
        };
        let cells = rows.clear();
        let parameters: Vec<&(dyn ToSql + Sync)> = cells.iter().map(|cell| cell as &(dyn ToSql + Sync)).collect();
        self.stored += self.client.execute(&statement, &parameters).await.map_err(failed)?;
        Ok(())
    }
}

/// FTS5 and R-tree tables; returns how many rows were stored.
async fn fill_virtual(client: &Client, source: &mut Source, table: &Table) -> Result<u64, PartError> {
    let name = &table.name;
    let words = table.sql.to_ascii_lowercase().replace([' ', '\t', '\n', '"', '\''], "");
    let is_fts = words.contains("usingfts5(");
    if !is_fts && !words.contains("usingrtree") {
        return Err(PartError::Virtual(name.clone()));
    }
    let content = is_fts.then(|| words.split_once("content=").map(|(_, of)| !of.starts_with([',', ')']))).flatten();
    run(client, format!("virtual table {name}"), &table.sql).await?;
    match content {
        // The index of another table, which is filled by now.
        Some(true) => {
            let name = quote(name);
            run(client, format!("virtual table {name}"), &format!("INSERT INTO {name} ({name}) VALUES ('rebuild')"))
                .await?;
            Ok(0)
        }
        Some(false) => Err(PartError::Virtual(name.clone())),
        None => insert_rows(client, source, table, name, is_fts, &|_| ()).await,
    }
}
