//! A database on real SQLite behind the translation: it registers the functions, fills the catalogue and reads the
//! schema.
#![allow(dead_code)]

use holdfast_sql::catalogue::{
    self, CatalogContext, DatabaseRow, HbaRow, IdentRow, Live, SessionRow, Standing, TransactionsRow, Viewer,
};
use holdfast_sql::{
    ADVISORY_FUNCTION, AdvisoryOp, Context, Function, HAS_PRIVILEGE_FUNCTION, Kind, MAY_SEE_FUNCTION, NEXT_ID_FUNCTION,
    Scan, SessionValue, SessionValues, Translated, error, functions, sqlite, translate, types,
};
use holdfast_types::access::Roles;
use holdfast_types::definition::redefinition::Redefinition;
use holdfast_types::schema::{Column, Dialect, ForeignKey, Index, Schema, Table, TableKind, Trigger};
use holdfast_types::{SqlError, SqlResult, SqlState, Value, ValueRef, VolumeId};
use rusqlite::Connection;
use rusqlite::functions::FunctionFlags;
use rusqlite::types::{Value as Lite, ValueRef as LiteRef};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

pub struct Db {
    pub conn: Connection,
    pub schema: Schema,
    pub dialect: Dialect,
    pub param_types: Vec<u32>,
    /// The last id that the function of new ids returned, by table.
    pub ids: Arc<Mutex<HashMap<String, i64>>>,
    /// Calls of the advisory lock function: operation, key, space.
    pub advisory: Arc<Mutex<Vec<(AdvisoryOp, i64, i64)>>>,
}

/// A server without sessions.
#[derive(Debug)]
struct Quiet;

impl Live for Quiet {
    fn sessions(&self) -> Vec<SessionRow> {
        Vec::new()
    }

    fn blocked(&self) -> Vec<(i32, Vec<i32>)> {
        Vec::new()
    }

    fn transactions(&self) -> TransactionsRow {
        TransactionsRow::default()
    }

    fn standing(&self) -> Standing {
        Standing::default()
    }

    fn hba_file(&self) -> Vec<HbaRow> {
        Vec::new()
    }

    fn ident_file(&self) -> Vec<IdentRow> {
        Vec::new()
    }
}

/// The result of a statement: its column names and types, and its rows as text, NULL as `None`.
#[derive(Debug, Default, PartialEq)]
pub struct Answer {
    pub verb: String,
    pub columns: Vec<(String, String)>,
    pub rows: Vec<Vec<Option<String>>>,
    pub changes: u64,
}

impl Answer {
    pub fn lines(&self) -> Vec<String> {
        let cell = |c: &Option<String>| c.clone().unwrap_or_else(|| "NULL".into());
        self.rows.iter().map(|r| r.iter().map(cell).collect::<Vec<_>>().join("|")).collect()
    }
}

pub struct Session;

impl SessionValues for Session {
    fn session_value(&self, which: &SessionValue) -> SqlResult<Value> {
        Ok(match which {
            SessionValue::ClientAddress | SessionValue::ServerAddress => Value::Null,
            SessionValue::ClientPort | SessionValue::ServerPort => Value::Null,
            SessionValue::ServerStart | SessionValue::SettingsRead => Value::Int(1),
            SessionValue::TransactionTime | SessionValue::StatementTime | SessionValue::ClockTime => {
                Value::Int(1_795_000_000_123_456)
            }
            SessionValue::User | SessionValue::SessionUser => Value::Text("holdfast".into()),
            SessionValue::Database => Value::Text("postgres".into()),
            SessionValue::BackendPid => Value::Int(42),
            SessionValue::LastInsertId => Value::Int(7),
            SessionValue::CurrentSchema => Value::Text("public".into()),
            SessionValue::Schemas { implicit: true } => Value::Text("{pg_catalog,public}".into()),
            SessionValue::Schemas { implicit: false } => Value::Text("{public}".into()),
            SessionValue::Setting { name, missing_ok } => match name.as_str() {
                "server_version" => Value::Text("15.0".into()),
                "server_version_num" => Value::Text("150000".into()),
                _ if *missing_ok => Value::Null,
                other => {
                    let message = format!("unrecognized configuration parameter \"{other}\"");
                    return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
                }
            },
        })
    }
}

fn borrow(value: LiteRef<'_>) -> ValueRef<'_> {
    match value {
        LiteRef::Null => ValueRef::Null,
        LiteRef::Integer(i) => ValueRef::Int(i),
        LiteRef::Real(r) => ValueRef::Real(r),
        LiteRef::Text(t) => ValueRef::Text(t),
        LiteRef::Blob(b) => ValueRef::Blob(b),
    }
}

pub fn own(value: Value) -> Lite {
    match value {
        Value::Null => Lite::Null,
        Value::Int(i) => Lite::Integer(i),
        Value::Real(r) => Lite::Real(r),
        Value::Text(t) => Lite::Text(t),
        Value::Blob(b) => Lite::Blob(b),
    }
}

fn register(conn: &Connection, function: &'static Function) {
    let flags = if function.deterministic {
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC
    } else {
        FunctionFlags::SQLITE_UTF8
    };
    conn.create_scalar_function(function.name, function.args, flags, move |ctx| {
        let args: Vec<ValueRef<'_>> = (0..ctx.len()).map(|i| borrow(ctx.get_raw(i))).collect();
        function.call(&args).map(own).map_err(|e| rusqlite::Error::UserFunctionError(error::encode(&e).into()))
    })
    .unwrap();
}

/// The function of new ids, as the engine registers it: it counts up from 1 for each table.
fn register_next_id(conn: &Connection) -> Arc<Mutex<HashMap<String, i64>>> {
    let ids: Arc<Mutex<HashMap<String, i64>>> = Arc::default();
    let counters = ids.clone();
    conn.create_scalar_function(NEXT_ID_FUNCTION, 1, FunctionFlags::SQLITE_UTF8, move |ctx| {
        let mut counters = counters.lock().unwrap();
        let last = counters.entry(ctx.get(0)?).or_default();
        *last += 1;
        Ok(*last)
    })
    .unwrap();
    ids
}

/// The advisory lock function, for which every lock is free.
fn register_advisory(conn: &Connection) -> Arc<Mutex<Vec<(AdvisoryOp, i64, i64)>>> {
    let calls: Arc<Mutex<Vec<(AdvisoryOp, i64, i64)>>> = Arc::default();
    let kept = calls.clone();
    conn.create_scalar_function(ADVISORY_FUNCTION, 3, FunctionFlags::SQLITE_UTF8, move |ctx| {
        let op = AdvisoryOp::from_i64(ctx.get(0)?).unwrap();
        kept.lock().unwrap().push((op, ctx.get(1)?, ctx.get(2)?));
        Ok((!op.is_void()).then_some(true))
    })
    .unwrap();
    calls
}

/// The functions of the server that ask for privileges, as a superuser sees them.
fn register_privileges(conn: &Connection) {
    for name in [HAS_PRIVILEGE_FUNCTION, MAY_SEE_FUNCTION] {
        conn.create_scalar_function(name, -1, FunctionFlags::SQLITE_UTF8, |_| Ok(true)).unwrap();
    }
}

impl Db {
    pub fn new(dialect: Dialect) -> Db {
        let conn = Connection::open_in_memory().unwrap();
        conn.execute_batch(
            "ATTACH ':memory:' AS pg_catalog; ATTACH ':memory:' AS information_schema; ATTACH ':memory:' AS pg_temp; PRAGMA foreign_keys = ON",
        )
        .unwrap();
        functions().for_each(|f| register(&conn, f));
        register_privileges(&conn);
        for table in catalogue::tables() {
            let columns: Vec<String> = table.columns.iter().map(|(n, _)| format!("\"{n}\"")).collect();
            conn.execute_batch(&format!("CREATE TABLE {}.\"{}\" ({})", table.schema, table.name, columns.join(", ")))
                .unwrap();
        }
        let (ids, advisory) = (register_next_id(&conn), register_advisory(&conn));
        let mut db = Db { conn, schema: Schema::default(), dialect, param_types: Vec::new(), ids, advisory };
        db.reload();
        db
    }

    pub fn postgres() -> Db {
        Db::new(Dialect::Postgres)
    }

    /// Reads the schema as the engine does, and fills the catalogue from it.
    pub fn reload(&mut self) {
        self.schema = load_schema(&self.conn, self.schema.epoch + 1);
        self.ids.lock().unwrap().retain(|name, _| self.schema.table(name).is_some());
        let context = CatalogContext {
            counters: Vec::new(),
            automatic: Vec::new(),
            locks: Vec::new(),
            prepared: Vec::new(),
            schema: &self.schema,
            dialect: self.dialect,
            database: "postgres",
            database_oid: 5,
            user: "holdfast",
            viewer: Viewer { role: Some(10), ..Viewer::default() },
            databases: vec![DatabaseRow {
                oid: 5,
                name: "postgres".into(),
                dialect: self.dialect,
                volume: VolumeId(1),
                parameters: Vec::new(),
            }],
            parameters_of_all: Vec::new(),
            roles: &Roles::default(),
            settings: vec![holdfast_types::SettingRow {
                name: "server_version".into(),
                setting: "15.0".into(),
                ..Default::default()
            }],
            live: &Quiet,
        };
        for table in catalogue::tables() {
            let name = format!("{}.\"{}\"", table.schema, table.name);
            self.conn.execute(&format!("DELETE FROM {name}"), []).unwrap();
            let marks = vec!["?"; table.columns.len()].join(", ");
            let mut insert = self.conn.prepare(&format!("INSERT INTO {name} VALUES ({marks})")).unwrap();
            for row in (table.rows)(&context) {
                insert.execute(rusqlite::params_from_iter(row.into_iter().map(own))).unwrap();
            }
        }
    }

    pub fn translate(&self, sql: &str) -> SqlResult<Translated> {
        let scan = Scan::new(sql, self.dialect)?;
        let piece = scan.pieces().next().ok_or_else(|| SqlError::internal("no statement"))?;
        translate(&piece, &self.context())
    }

    pub fn context(&self) -> Context<'_> {
        Context {
            dialect: self.dialect,
            schema: &self.schema,
            database: "postgres",
            user: "holdfast",
            param_types: &self.param_types,
            applies: false,
        }
    }

    /// Runs a message and returns the answer of its last statement.
    pub fn run(&mut self, sql: &str) -> SqlResult<Answer> {
        self.run_with(sql, &[])
    }

    pub fn run_with(&mut self, sql: &str, client: &[Value]) -> SqlResult<Answer> {
        let scan = Scan::new(sql, self.dialect)?;
        let mut answer = Answer::default();
        for piece in scan.pieces() {
            let translated = translate(&piece, &self.context())?;
            let params = translated.bind(&piece.literals(), client, &Session)?;
            answer = self.execute(&translated, params)?;
        }
        Ok(answer)
    }

    pub fn execute(&mut self, translated: &Translated, params: Vec<Value>) -> SqlResult<Answer> {
        let mut answer = Answer { verb: translated.verb.to_owned(), ..Answer::default() };
        let last = translated.steps.len().wrapping_sub(1);
        self.conn.execute_batch("SAVEPOINT one").unwrap();
        let result = translated.steps.iter().enumerate().try_for_each(|(i, step)| {
            let step = &step.sql;
            if let Some(redefinition) = Redefinition::of(step) {
                return redefine(&self.conn, &redefinition).map_err(|e| self.error(e, step));
            }
            let mut statement = self.conn.prepare(step).map_err(|e| self.error(e, step))?;
            let columns = match translated.describe_after_prepare {
                false => translated.desc.columns.clone(),
                true => sqlite::describe(step, &origins(&statement, &self.schema), &self.schema),
            };
            if i == last {
                answer.columns =
                    columns.iter().map(|c| (c.name.clone(), types::format_type(c.type_oid, c.typmod))).collect();
            }
            let values: Vec<Lite> = if i == last { params.iter().cloned().map(own).collect() } else { Vec::new() };
            let mut rows = statement.query(rusqlite::params_from_iter(values)).map_err(|e| self.error(e, step))?;
            while let Some(row) = rows.next().map_err(|e| self.error(e, step))? {
                let granted = |at: usize| row.get::<_, i64>(at).unwrap();
                let limit = translated.row_locks.iter().find_map(|l| l.limit).map(granted);
                if limit.is_some_and(|n| n >= 0 && answer.rows.len() as i64 >= n) {
                    break;
                }
                let mut cells = Vec::new();
                for (k, column) in columns.iter().enumerate() {
                    let k = if translated.kind == Kind::Explain { 3 } else { k };
                    let value = borrow(row.get_ref(k).unwrap());
                    cells.push((value != ValueRef::Null).then(|| {
                        let ty = types::Type { oid: column.type_oid, typmod: column.typmod };
                        types::text_of(ty, value)
                    }));
                }
                answer.rows.push(cells);
            }
            answer.changes = self.conn.changes();
            Ok(())
        });
        match result {
            Ok(()) => self.conn.execute_batch("RELEASE one").unwrap(),
            Err(e) => {
                self.conn.execute_batch("ROLLBACK TO one; RELEASE one").unwrap();
                return Err(e);
            }
        }
        if translated.kind == Kind::Ddl {
            self.reload();
        }
        Ok(answer)
    }

    fn error(&self, error: rusqlite::Error, step: &str) -> SqlError {
        match &error {
            rusqlite::Error::SqliteFailure(code, message) => {
                let message = message.clone().unwrap_or_default();
                let mapped = error::from_sqlite(code.extended_code, &message, &self.schema);
                if mapped.state() == SqlState::INTERNAL_ERROR || mapped.state() == SqlState::SYNTAX_ERROR {
                    return SqlError::internal(format!("{} in {step}", mapped.message()));
                }
                mapped
            }
            rusqlite::Error::SqlInputError { error, msg, .. } => {
                SqlError::internal(format!("{} {msg} in {step}", error.extended_code))
            }
            other => SqlError::internal(format!("{other} in {step}")),
        }
    }

    pub fn lines(&mut self, sql: &str) -> Vec<String> {
        match self.run(sql) {
            Ok(answer) => answer.lines(),
            Err(e) => panic!("{sql}\n{e:?}\n{:?}", self.translate(sql).map(|t| t.steps)),
        }
    }

    pub fn state(&mut self, sql: &str) -> &'static str {
        match self.run(sql) {
            Ok(answer) => panic!("{sql} gave {answer:?}"),
            Err(e) => e.state().0,
        }
    }
}

/// Runs a redefinition as the store does.
fn redefine(conn: &Connection, redefinition: &Redefinition) -> rusqlite::Result<()> {
    let version: i64 = conn.query_row("PRAGMA schema_version", [], |r| r.get(0))?;
    if let Some(column) = redefinition.rewritten_column() {
        conn.execute(&format!("UPDATE \"{}\" SET \"{column}\" = \"{column}\"", redefinition.table), [])?;
    }
    conn.execute_batch("PRAGMA writable_schema = ON")?;
    for (sql, params) in redefinition.updates() {
        conn.execute(sql, rusqlite::params_from_iter(params))?;
    }
    conn.execute_batch(&format!("PRAGMA schema_version = {}; PRAGMA writable_schema = OFF", version + 1))?;
    conn.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))
}

/// The result columns as SQLite describes them.
fn origins(statement: &rusqlite::Statement<'_>, schema: &Schema) -> Vec<sqlite::OriginColumn> {
    let own = |s: Option<&str>| s.map(str::to_owned);
    statement
        .columns_with_metadata()
        .map(|m| {
            let table = m.table_name().and_then(|t| schema.table(t));
            let column = table.and_then(|t| t.columns.iter().find(|c| Some(c.name.as_str()) == m.origin_name()));
            sqlite::OriginColumn {
                name: m.name().to_owned(),
                decl_type: column.map(|c| c.decl_type.clone()),
                table: own(m.table_name()),
                column: own(m.origin_name()),
            }
        })
        .collect()
}

fn load_schema(conn: &Connection, epoch: u32) -> Schema {
    let mut schema = Schema { epoch, ..Schema::default() };
    let mut oid = 16_384;
    let mut next = || {
        oid += 1;
        oid
    };
    let mut list = conn
        .prepare("SELECT name, type, sql, rowid FROM main.sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'")
        .unwrap();
    let names: Vec<(String, String, String)> =
        list.query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?))).unwrap().map(Result::unwrap).collect();
    for (name, kind, sql) in names {
        let without_rowid = sql.to_ascii_lowercase().contains("without rowid");
        let columns = load_columns(conn, &name, &sql, without_rowid);
        let virtual_table = sql.to_ascii_lowercase().starts_with("create virtual");
        let kind = match (kind.as_str(), virtual_table) {
            ("view", _) => TableKind::View,
            (_, true) => TableKind::Virtual,
            _ => TableKind::Table,
        };
        let table = Table {
            temp: false,
            oid: next(),
            kind,
            without_rowid,
            columns,
            indexes: load_indexes(conn, &name, &mut next),
            foreign_keys: load_keys(conn, &name),
            triggers: load_triggers(conn, &name),
            key_name: String::new(),
            sql,
            name: name.clone(),
        };
        schema.by_name.insert(name.to_ascii_lowercase(), schema.tables.len());
        schema.tables.push(Arc::new(table.with_definition()));
    }
    schema
}

fn load_columns(conn: &Connection, name: &str, sql: &str, without_rowid: bool) -> Vec<Column> {
    let mut info = conn
        .prepare("SELECT name, type, \"notnull\", dflt_value, pk, hidden, (SELECT count(*) FROM pragma_table_xinfo(?1) WHERE pk > 0) FROM pragma_table_xinfo(?1) WHERE hidden <> 1")
        .unwrap();
    info.query_map([name], |r| {
        let (decl_type, pk, hidden, keys): (String, u32, i64, i64) = (r.get(1)?, r.get(4)?, r.get(5)?, r.get(6)?);
        let rowid_alias = pk == 1 && keys == 1 && decl_type.eq_ignore_ascii_case("integer") && !without_rowid;
        Ok(Column {
            name: r.get(0)?,
            rowid_alias,
            decl_type,
            not_null: r.get(2)?,
            default: r.get(3)?,
            pk,
            autoincrement: rowid_alias && sql.to_ascii_lowercase().contains("autoincrement"),
            generated: hidden > 1,
            generated_virtual: hidden == 2,
        })
    })
    .unwrap()
    .map(Result::unwrap)
    .collect()
}

fn load_indexes(conn: &Connection, name: &str, next: &mut impl FnMut() -> u32) -> Vec<Index> {
    let mut list = conn.prepare("SELECT l.name, l.\"unique\", l.origin, s.sql FROM pragma_index_list(?1) l LEFT JOIN main.sqlite_schema s ON s.name = l.name ORDER BY l.seq DESC").unwrap();
    let found: Vec<(String, bool, String, Option<String>)> = list
        .query_map([name], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?)))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    found
        .into_iter()
        .map(|(index, unique, origin, sql)| {
            let mut info = conn.prepare("SELECT name FROM pragma_index_info(?1) ORDER BY seqno").unwrap();
            let columns = info.query_map([&index], |r| r.get(0)).unwrap().map(Result::unwrap).collect();
            Index { oid: next(), name: index, unique, primary: origin == "pk", columns, sql }
        })
        .collect()
}

fn load_keys(conn: &Connection, name: &str) -> Vec<ForeignKey> {
    let mut list = conn.prepare("SELECT id, \"table\", \"from\", \"to\", on_update, on_delete FROM pragma_foreign_key_list(?1) ORDER BY id DESC, seq").unwrap();
    let mut keys: Vec<(i64, ForeignKey)> = Vec::new();
    let mut rows = list.query([name]).unwrap();
    while let Some(r) = rows.next().unwrap() {
        let id: i64 = r.get(0).unwrap();
        if keys.last().is_none_or(|(known, _)| *known != id) {
            keys.push((
                id,
                ForeignKey {
                    parent: r.get(1).unwrap(),
                    on_update: r.get(4).unwrap(),
                    on_delete: r.get(5).unwrap(),
                    ..ForeignKey::default()
                },
            ));
        }
        let key = &mut keys.last_mut().unwrap().1;
        key.columns.push(r.get(2).unwrap());
        key.parent_columns.push(r.get(3).unwrap());
    }
    keys.into_iter().map(|(_, k)| k).collect()
}

fn load_triggers(conn: &Connection, name: &str) -> Vec<Trigger> {
    let mut list =
        conn.prepare("SELECT name, sql FROM main.sqlite_schema WHERE type = 'trigger' AND tbl_name = ?1").unwrap();
    list.query_map([name], |r| Ok(Trigger { name: r.get(0)?, sql: r.get(1)? })).unwrap().map(Result::unwrap).collect()
}
