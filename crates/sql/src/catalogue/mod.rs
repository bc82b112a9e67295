//! `pg_catalog` and `information_schema`: one file for each table, computed from the schema when it is read.
//!
//! OIDs follow from those of the tables, so that they are the same in every session: see [`oids`]. Tables of
//! PostgreSQL that are always empty here stand together in `empty`.

mod archive;
mod empty;
mod holdfast_stat;
mod information_schema;
mod live;
mod oids;
mod pg_am;
mod pg_attrdef;
mod pg_attribute;
mod pg_class;
mod pg_collation;
mod pg_constraint;
mod pg_database;
mod pg_extension;
mod pg_index;
mod pg_indexes;
mod pg_language;
mod pg_locks;
mod pg_namespace;
mod pg_prepared_xacts;
mod pg_roles;
mod pg_settings;
mod pg_stat_activity;
mod pg_tables;
mod pg_tablespace;
mod pg_trigger;
mod pg_type;
mod pg_views;
mod replication;
mod shapes;

pub use archive::ArchiveRow;
pub use live::{Doing, Live, OldestSnapshot, SessionRow, TransactionsRow};
pub use oids::{OWNER_OID, PG_CATALOG_OID, PUBLIC_OID, TEMP_NAMESPACE};
pub use pg_locks::LockRow;
pub use pg_prepared_xacts::PreparedRow;
pub use replication::{LinkRow, StandbyRow, Standing, lsn_text, parse_lsn};
pub use shapes::index_name;

use holdfast_types::Value;
use holdfast_types::schema::{Dialect, Schema};

/// A table of the catalogue.
#[derive(Debug)]
pub struct CatalogTable {
    /// `pg_catalog` or `information_schema`.
    pub schema: &'static str,
    pub name: &'static str,
    /// Names and type OIDs.
    pub columns: &'static [(&'static str, u32)],
    /// It can have no rows in this release.
    pub always_empty: bool,
    pub rows: fn(&CatalogContext<'_>) -> Vec<Vec<Value>>,
}

/// What the rows are computed from.
#[derive(Debug)]
pub struct CatalogContext<'a> {
    pub schema: &'a Schema,
    pub dialect: Dialect,
    pub database: &'a str,
    pub database_oid: u32,
    pub user: &'a str,
    pub databases: Vec<DatabaseRow>,
    /// Name and value of every setting of the session.
    pub settings: Vec<(String, String)>,
    /// Name and value of the engine's counters.
    pub counters: Vec<(&'static str, u64)>,
    /// Name and value of the counters of automatic transactions.
    pub automatic: Vec<(&'static str, u64)>,
    pub locks: Vec<LockRow>,
    pub prepared: Vec<PreparedRow>,
    /// What goes on at this moment.
    pub live: &'a dyn Live,
}

/// A database of the server.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseRow {
    pub oid: u32,
    pub name: String,
    pub dialect: Dialect,
}

/// All tables, in no particular order.
pub fn tables() -> impl Iterator<Item = &'static CatalogTable> {
    const PRESENT: &[&CatalogTable] = &[
        &archive::ARCHIVE,
        &archive::PG_STAT_ARCHIVER,
        &holdfast_stat::AUTOMATIC,
        &holdfast_stat::TRAIL,
        &holdfast_stat::TRANSACTIONS,
        &pg_am::TABLE,
        &pg_attrdef::TABLE,
        &pg_attribute::TABLE,
        &pg_class::TABLE,
        &pg_collation::TABLE,
        &pg_constraint::TABLE,
        &pg_database::TABLE,
        &pg_extension::TABLE,
        &pg_index::TABLE,
        &pg_index::DEFINITIONS,
        &pg_indexes::TABLE,
        &pg_language::TABLE,
        &pg_locks::TABLE,
        &pg_namespace::TABLE,
        &pg_prepared_xacts::TABLE,
        &pg_roles::TABLE,
        &pg_roles::USERS,
        &pg_settings::TABLE,
        &pg_stat_activity::TABLE,
        &pg_stat_activity::BLOCKING,
        &replication::PG_STAT_REPLICATION,
        &replication::STANDBY,
        &replication::STANDBYS,
        &replication::STANDING,
        &pg_tables::TABLE,
        &pg_tablespace::TABLE,
        &pg_trigger::TABLE,
        &pg_type::TABLE,
        &pg_views::TABLE,
        &pg_views::DEFINITIONS,
    ];
    PRESENT.iter().copied().chain(empty::TABLES).chain(information_schema::TABLES)
}

/// The table an unqualified or qualified name means: without a schema it is looked for in `pg_catalog` only.
pub fn find(schema: Option<&str>, name: &str) -> Option<&'static CatalogTable> {
    let schema = schema.unwrap_or("pg_catalog");
    if schema != "pg_catalog" && schema != "information_schema" {
        return None;
    }
    tables().find(|t| t.schema == schema && t.name == name)
}

/// The OID of a relation by name: a table, view or index of the user, or a table of the catalogue.
pub fn relation_oid(schema: &Schema, namespace: Option<&str>, name: &str) -> Option<u32> {
    let user = |temp: bool| {
        let table = schema.table_among(temp, name).map(|t| t.oid);
        let among = || schema.tables.iter().filter(|t| t.temp == temp);
        let index = || among().flat_map(|t| shapes::indexes(t)).find(|i| i.name == name).map(|i| i.oid);
        table.or_else(index)
    };
    match namespace {
        Some("public") => user(false),
        Some(schema) if crate::bind::is_temp_schema(schema) => user(true),
        Some(other) => oids::of_catalogue_table(other, name),
        None => oids::of_catalogue_table("pg_catalog", name).or_else(|| user(true)).or_else(|| user(false)),
    }
}

/// The OID of a schema.
pub fn namespace_oid(name: &str) -> Option<u32> {
    let temporary = crate::bind::is_temp_schema(name).then_some(oids::TEMP_OID);
    temporary.or_else(|| oids::NAMESPACES.iter().find(|(_, n)| *n == name).map(|(o, _)| *o))
}

/// A text cell.
fn text(value: impl Into<String>) -> Value {
    Value::Text(value.into())
}

/// A number cell.
fn int(value: impl Into<i64>) -> Value {
    Value::Int(value.into())
}

fn boolean(value: bool) -> Value {
    Value::Int(i64::from(value))
}

/// Numbers between blanks, as int2vector and oidvector print.
fn vector(numbers: impl IntoIterator<Item = i64>) -> Value {
    text(numbers.into_iter().map(|n| n.to_string()).collect::<Vec<_>>().join(" "))
}

/// An array of numbers.
fn array(numbers: impl IntoIterator<Item = i64>) -> Value {
    text(format!("{{{}}}", numbers.into_iter().map(|n| n.to_string()).collect::<Vec<_>>().join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// A server with one of everything.
    #[derive(Debug)]
    struct Busy;

    impl Live for Busy {
        fn sessions(&self) -> Vec<SessionRow> {
            vec![SessionRow {
                pid: 1,
                database_oid: 5,
                database: "d".into(),
                user: "u".into(),
                application_name: "psql".into(),
                client: Some(("127.0.0.1".into(), 4711)),
                backend_start_us: 0,
                transaction_start_us: Some(1),
                query_start_us: None,
                state_change_us: i64::MAX,
                doing: Doing::Active,
                wait_event: Some(("Lock", "relation")),
                transaction: Some(u64::MAX),
                query: "SELECT 1".into(),
            }]
        }

        fn blocked(&self) -> Vec<(i32, Vec<i32>)> {
            vec![(1, vec![2, 3])]
        }

        fn transactions(&self) -> TransactionsRow {
            let client = Some("127.0.0.1:4711".into());
            let oldest = OldestSnapshot { database: "d".into(), number: 9, age_ms: 10, pid: 1, client };
            TransactionsRow { oldest_snapshot: Some(oldest), ..TransactionsRow::default() }
        }

        fn standing(&self) -> Standing {
            let standbys = vec![StandbyRow { name: "s".into(), connected: true, ..StandbyRow::default() }];
            let archive = Some(ArchiveRow::default());
            Standing { standbys, link: Some(LinkRow::default()), archive, ..Standing::default() }
        }
    }

    #[test]
    fn names_are_unique_and_rows_fit_their_columns() {
        let schema = Schema::default();
        let context = CatalogContext {
            schema: &schema,
            dialect: Dialect::Postgres,
            database: "d",
            database_oid: 5,
            user: "u",
            databases: Vec::new(),
            settings: Vec::new(),
            counters: vec![("syncs", 7)],
            prepared: Vec::new(),
            automatic: vec![("begun", 3)],
            locks: vec![LockRow {
                kind: "relation",
                database: 5,
                relation: Some(16385),
                advisory: None,
                pid: 1,
                mode: "RowExclusiveLock",
                granted: true,
            }],
            live: &Busy,
        };
        let mut seen = HashSet::new();
        for table in tables() {
            assert!(seen.insert((table.schema, table.name)), "{} twice", table.name);
            let rows = (table.rows)(&context);
            assert!(!table.always_empty || rows.is_empty());
            for row in rows {
                assert_eq!(row.len(), table.columns.len(), "{}", table.name);
            }
        }
    }
}
