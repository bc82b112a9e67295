//! Refuses what a client's statement may not do, through SQLite's authorizer, which is called while a statement is
//! compiled (sqlite.org/c3ref/set_authorizer.html).
//!
//! | refused | because |
//! |---|---|
//! | ATTACH, DETACH | files other than the volume are not audited |
//! | PRAGMA that sets anything but user_version and application_id | the store manages journals, locks and caches |
//! | writing or dropping tables whose name begins with `holdfast_` | internal: positions and table ids |
//! | TEMP tables, views, triggers | they would belong to a connection that clients share |
//! | load_extension() | it would load foreign code into the server |
//!
//! The guard is installed once per connection and switched on only while a client's text is prepared. Installing or
//! removing an authorizer would make SQLite compile every statement of the connection again.

use super::conn::Conn;
use super::error::SqliteError;
use crate::names::is_internal;
use parking_lot::Mutex;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use std::collections::BTreeSet;
use std::sync::Arc;

/// PRAGMAs that only read, even with an argument.
const READING: [&str; 19] = [
    "table_info",
    "table_xinfo",
    "table_list",
    "index_list",
    "index_info",
    "index_xinfo",
    "foreign_key_list",
    "foreign_key_check",
    "integrity_check",
    "quick_check",
    "database_list",
    "collation_list",
    "function_list",
    "module_list",
    "pragma_list",
    "compile_options",
    "page_count",
    "freelist_count",
    "data_version",
];

/// PRAGMAs that read without an argument; with an argument they are refused.
const READING_WITHOUT_ARGUMENT: [&str; 10] = [
    "encoding",
    "page_size",
    "schema_version",
    "journal_mode",
    "foreign_keys",
    "auto_vacuum",
    "cache_size",
    "synchronous",
    "recursive_triggers",
    "max_page_count",
];

/// PRAGMAs that may set a value: the trail carries their text.
const SETTING: [&str; 2] = ["user_version", "application_id"];

/// What a statement does with a table or with another object of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TouchKind {
    Read,
    Insert,
    Update,
    Delete,
    CreateTable,
    CreateView,
    CreateIndex,
    CreateTrigger,
    CreateVirtual,
    DropTable,
    DropView,
    DropIndex,
    DropTrigger,
    AlterTable,
    Reindex,
}

impl TouchKind {
    /// Whether it changes the schema.
    pub fn is_ddl(self) -> bool {
        !matches!(self, TouchKind::Read | TouchKind::Insert | TouchKind::Update | TouchKind::Delete)
    }
}

/// The database in which a statement touches a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    Main,
    /// `pg_catalog` or `information_schema`.
    Catalogue,
    /// The session's temporary tables.
    Temporary,
}

/// A table or view that a statement touches, as SQLite reports it while it compiles the statement.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Touch {
    pub kind: TouchKind,
    pub place: Place,
    /// Empty for REINDEX, which names an index only.
    pub table: String,
    /// Empty where no column is read, for inserts and deletes, and for tables of the catalogue. For an index or a trigger
    /// that is created, dropped or rebuilt: its name.
    pub column: String,
    /// The innermost view, trigger or WITH query in which the statement touches it.
    pub via: Option<String>,
}

#[derive(Default)]
pub(super) struct State {
    on: bool,
    refused: Option<String>,
    touched: BTreeSet<Touch>,
}

/// Switches the guard of one connection.
#[derive(Clone, Default)]
pub(super) struct Guard(Arc<Mutex<State>>);

impl Conn {
    /// Installs the guard, switched off.
    pub fn install_guard(&mut self) -> Result<(), SqliteError> {
        let guard = Guard::default();
        self.guard = Some(guard.clone());
        let hook = move |context: AuthContext<'_>| {
            let mut state = guard.0.lock();
            if !state.on {
                return Authorization::Allow;
            }
            match refusal(&context.action) {
                None => {
                    state.touched.extend(touch(&context));
                    Authorization::Allow
                }
                Some(why) => {
                    state.refused = Some(why);
                    Authorization::Deny
                }
            }
        };
        self.rusqlite().authorizer(Some(hook)).map_err(SqliteError::from_rusqlite)
    }

    /// Runs `prepare`, in which a client's text is compiled, under the guard. The error message names the construct
    /// that was refused.
    pub fn guarded<T>(&mut self, prepare: impl FnOnce(&mut Conn) -> Result<T, SqliteError>) -> Result<T, SqliteError> {
        self.guarded_touching(prepare).map(|(result, _)| result)
    }

    /// [`Conn::guarded`], also returning what the statement touches.
    pub fn guarded_touching<T>(
        &mut self,
        prepare: impl FnOnce(&mut Conn) -> Result<T, SqliteError>,
    ) -> Result<(T, Vec<Touch>), SqliteError> {
        let Some(guard) = self.guard.clone() else { return prepare(self).map(|result| (result, Vec::new())) };
        *guard.0.lock() = State { on: true, ..State::default() };
        let result = prepare(self);
        let State { refused, touched, .. } = std::mem::take(&mut *guard.0.lock());
        match (result, refused) {
            (Ok(result), _) => Ok((result, touched.into_iter().collect())),
            (Err(e), Some(message)) => Err(SqliteError { message, ..e }),
            (Err(e), None) => Err(e),
        }
    }
}

fn touch(context: &AuthContext<'_>) -> Option<Touch> {
    use TouchKind as K;
    let mut database = context.database_name;
    let (kind, table, column) = match context.action {
        AuthAction::Read { table_name, column_name } => (K::Read, table_name, column_name),
        AuthAction::Insert { table_name } => (K::Insert, table_name, ""),
        AuthAction::Update { table_name, column_name } => (K::Update, table_name, column_name),
        AuthAction::Delete { table_name } => (K::Delete, table_name, ""),
        AuthAction::CreateTable { table_name } => (K::CreateTable, table_name, ""),
        AuthAction::CreateView { view_name } => (K::CreateView, view_name, ""),
        AuthAction::CreateIndex { index_name, table_name } => (K::CreateIndex, table_name, index_name),
        AuthAction::CreateTrigger { trigger_name, table_name } => (K::CreateTrigger, table_name, trigger_name),
        AuthAction::CreateVtable { table_name, .. } => (K::CreateVirtual, table_name, ""),
        AuthAction::DropTable { table_name } | AuthAction::DropVtable { table_name, .. } => {
            (K::DropTable, table_name, "")
        }
        AuthAction::DropView { view_name } => (K::DropView, view_name, ""),
        AuthAction::DropIndex { index_name, table_name } => (K::DropIndex, table_name, index_name),
        AuthAction::DropTrigger { trigger_name, table_name } => (K::DropTrigger, table_name, trigger_name),
        AuthAction::AlterTable { database_name, table_name } => {
            database = Some(database_name);
            (K::AlterTable, table_name, "")
        }
        AuthAction::Reindex { index_name } => (K::Reindex, "", index_name),
        _ => return None,
    };
    let place = match database {
        // No name: a table-valued function or a subquery.
        None | Some("main") => Place::Main,
        Some("pg_catalog" | "information_schema") => Place::Catalogue,
        Some(_) => Place::Temporary,
    };
    // What a session does with its temporary tables needs no privilege, except to create them.
    let counts = place != Place::Temporary || kind == K::CreateTable;
    counts.then(|| Touch {
        kind,
        place,
        table: table.to_owned(),
        column: if place == Place::Catalogue { String::new() } else { column.to_owned() },
        via: context.accessor.map(str::to_owned),
    })
}

fn refusal(action: &AuthAction<'_>) -> Option<String> {
    match action {
        AuthAction::Attach { .. } | AuthAction::Detach { .. } => {
            Some("ATTACH and DETACH are not supported: a connection sees its one database".into())
        }
        AuthAction::Pragma { pragma_name, pragma_value } => pragma(pragma_name, pragma_value.is_some()),
        AuthAction::Insert { table_name }
        | AuthAction::Update { table_name, .. }
        | AuthAction::Delete { table_name }
        | AuthAction::DropTable { table_name }
        | AuthAction::AlterTable { table_name, .. }
        | AuthAction::CreateTable { table_name }
        | AuthAction::CreateTrigger { table_name, .. }
            if is_internal(table_name.as_bytes()) =>
        {
            Some(format!("table {table_name} is internal: names that begin with holdfast_ are reserved"))
        }
        AuthAction::CreateTempTable { .. }
        | AuthAction::CreateTempView { .. }
        | AuthAction::CreateTempTrigger { .. }
        | AuthAction::CreateTempIndex { .. } => Some("temporary tables, views and triggers are not supported".into()),
        AuthAction::Function { function_name } if function_name.eq_ignore_ascii_case("load_extension") => {
            Some("load_extension() is not supported".into())
        }
        _ => None,
    }
}

fn pragma(name: &str, argument: bool) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let allowed = READING.contains(&name.as_str())
        || SETTING.contains(&name.as_str())
        || (!argument && READING_WITHOUT_ARGUMENT.contains(&name.as_str()));
    (!allowed).then(|| format!("PRAGMA {name}{} is not supported", if argument { " with a value" } else { "" }))
}

#[cfg(test)]
mod tests {
    use super::super::conn::OpenFlags;
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn clients_cannot_use_refused_statements() {
        let mut c = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        c.exec("create table t(x); create table holdfast_meta(x)").unwrap();
        c.install_guard().unwrap();
        for sql in [
            "attach ':memory:' as a",
            "pragma journal_mode = wal",
            "pragma writable_schema = on",
            "pragma foreign_keys = off",
            "insert into holdfast_meta values(1)",
            "drop table holdfast_meta",
            "create temp table x(y)",
            "select load_extension('x')",
        ] {
            let e = c.guarded(|c| c.prepare(sql)).unwrap_err();
            assert!(e.primary() == ffi::SQLITE_AUTH || sql.contains("load_extension"), "{sql}: {e}");
            assert!(e.message.contains("support") || e.message.contains("reserved"), "{sql}: {e}");
            assert!(c.prepare(sql).is_ok() || sql.contains("load_extension"), "not guarded: {sql}");
        }
        for sql in [
            "select * from t",
            "pragma table_info(t)",
            "pragma user_version = 3",
            "pragma journal_mode",
            "drop table t",
        ] {
            c.guarded(|c| c.prepare(sql)).unwrap();
        }
    }

    #[test]
    fn schema_changes_and_the_catalogue_are_reported() {
        let mut c = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        c.exec(
            "attach ':memory:' as pg_catalog; attach ':memory:' as pg_temp; create table pg_catalog.pg_authid(a, b);
             create table t(a); create view v as select 1; create index i on t(a);
             create trigger tr after insert on t begin select 1; end",
        )
        .unwrap();
        c.install_guard().unwrap();
        let mut touched = |sql: &str| {
            let (_, touched) = c.guarded_touching(|c| c.prepare(sql)).unwrap();
            let own = touched.iter().filter(|t| !t.table.starts_with("sqlite_"));
            own.map(|t| format!("{:?} {:?} {}.{}", t.kind, t.place, t.table, t.column)).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(touched("select a, b from 'pg_authid'"), "Read Catalogue pg_authid.");
        assert_eq!(
            touched("create table x(a primary key)"),
            "Read Main x.a, CreateTable Main x., CreateIndex Main x.sqlite_autoindex_x_1"
        );
        assert_eq!(touched("create/**/table view as select a from t"), "Read Main t.a, CreateTable Main view.");
        assert_eq!(touched("create table pg_temp.x as select a from t"), "Read Main t.a, CreateTable Temporary x.");
        assert_eq!(touched("create view x as select * from t"), "CreateView Main x.");
        assert_eq!(touched("create index x on \u{feff}t(a)"), "Read Main t.a, CreateIndex Main t.x, Reindex Main .x");
        assert_eq!(touched("create trigger x after delete on t begin select 1; end"), "CreateTrigger Main t.x");
        assert_eq!(touched("alter table t add column b"), "AlterTable Main t.");
        assert_eq!(touched("reindex i"), "Reindex Main .i");
        assert!(touched("drop table t").contains("DropTable Main t."));
        assert_eq!(touched("drop view v"), "Delete Main v., DropView Main v.");
        assert_eq!(touched("drop index i"), "DropIndex Main t.i");
        assert_eq!(touched("drop trigger tr"), "DropTrigger Main t.tr");
        assert_eq!(touched("drop table if exists none"), "");
    }

    #[test]
    fn what_a_statement_touches_is_reported_with_the_view_that_touches_it() {
        let mut c = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        c.exec(
            "create table t(a, b); create table u(x); create table w(x); create view v as select a from t where b > 0;
             create view outside as select a as y from v; create view plain as select 1 from t;
             create trigger after_u after insert on u begin update t set a = new.x; end;
             create table parent(id integer primary key);
             create table child(p references parent on delete cascade); pragma foreign_keys = on",
        )
        .unwrap();
        c.install_guard().unwrap();
        let mut touched = |sql: &str| {
            let (_, touched) = c.guarded_touching(|c| c.prepare(sql)).unwrap();
            let shown =
                |t: &Touch| format!("{:?} {}.{} {}", t.kind, t.table, t.column, t.via.as_deref().unwrap_or("-"));
            touched.iter().map(shown).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(touched("select a from t"), "Read t.a -");
        assert_eq!(touched("select count(*) from t"), "Read t. -");
        assert_eq!(touched("select y from outside"), "Read outside.y -, Read t.a v, Read t.b v, Read v.a outside");
        assert_eq!(touched("update t set a = 1"), "Update t.a -");
        assert_eq!(touched("with v as (select x from w) select x from v"), "Read w.x v");
        assert_eq!(
            touched("insert into u values(1) returning x"),
            "Read u.x -, Read u.x after_u, Insert u. -, Update t.a after_u"
        );
        // A view whose columns are not read is not named.
        assert_eq!(touched("select count(*) from v"), "Read t.a v, Read t.b v");
        assert_eq!(touched("select count(*) from plain"), "Read t. -");
        // What a foreign key reads and deletes.
        assert_eq!(
            touched("delete from parent"),
            "Read child.p -, Read parent.id -, Delete child. -, Delete parent. -"
        );
    }
}
