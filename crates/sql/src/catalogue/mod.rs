//! `pg_catalog` and `information_schema`: one file for each table, computed from the schema when it is read.
//!
//! OIDs are computed from those of the tables, so that they are the same in every session: see [`oids`]. PostgreSQL's
//! tables that are always empty in Holdfast are in `empty`.

mod archive;
mod descriptions;
mod dump;
mod empty;
mod empty_stat;
mod filter_text;
mod generated;
mod granted;
mod holdfast_stat;
mod information_schema;
mod keywords;
mod live;
mod oids;
mod pg_am;
mod pg_attrdef;
mod pg_attribute;
mod pg_class;
mod pg_collation;
mod pg_constraint;
mod pg_database;
mod pg_default_acl;
mod pg_extension;
mod pg_hba;
mod pg_index;
mod pg_indexes;
mod pg_language;
mod pg_locks;
mod pg_namespace;
mod pg_prepared_xacts;
mod pg_publication;
mod pg_roles;
mod pg_sequence;
mod pg_settings;
mod pg_stat_activity;
mod pg_stat_database;
mod pg_stat_server;
mod pg_stat_ssl;
mod pg_stat_statements;
mod pg_stat_tables;
mod pg_subscription;
mod pg_tables;
mod pg_tablespace;
mod pg_trigger;
mod pg_type;
mod pg_views;
mod processes;
mod replication;
mod shapes;
mod sites;
mod sizes;
mod standing;
mod table;

pub use crate::keys::index_name;
pub use crate::names::TEMP_NAMESPACE;
pub use crate::types::{lsn_text, parse_lsn};
pub(crate) use filter_text::shown as filter_shown;
pub use live::{
    Doing, EncryptionRow, Live, LockRow, OldestSnapshot, PreparedRow, SessionRow, SlotRow, SubscriberRow,
    SubscriptionRow, TableActivityRow, TransactionsRow, WalStatus,
};
pub use oids::{OWNER_OID, PG_CATALOG_OID, PUBLIC_OID, sequence as sequence_oid};
pub use pg_database::{acl_item_text, grants as acl_value};
pub use pg_hba::{HbaRow, HbaRule, IdentRow};
pub(crate) use pg_publication::is_publishable;
pub use pg_stat_database::DatabaseActivityRow;
pub use pg_stat_statements::StatementRow;
pub use shapes::{check_names, has_sequence};
pub use standing::{DumpRow, Standing};
pub use table::{CatalogContext, CatalogTable, DatabaseRow, Viewer};

use crate::names::is_temp_schema;
use holdfast_types::access::check::sequence_name;
use holdfast_types::schema::{Schema, Table};
use std::sync::Arc;

/// What only superusers may read, because verifiers of passwords or the rules of access are in it: its kind and name.
pub const SECRETS: [(&str, &str); 4] =
    [("table", "pg_authid"), ("view", "pg_shadow"), ("view", "pg_hba_file_rules"), ("view", "pg_ident_file_mappings")];

/// All tables, in no particular order.
pub fn tables() -> impl Iterator<Item = &'static CatalogTable> {
    const PRESENT: &[&CatalogTable] = &[
        &archive::ARCHIVE,
        &archive::PG_STAT_ARCHIVER,
        &descriptions::TABLE,
        &descriptions::SHARED,
        &dump::TABLE,
        &holdfast_stat::AUTOMATIC,
        &holdfast_stat::TRAIL,
        &holdfast_stat::TRANSACTIONS,
        &keywords::TABLE,
        &pg_am::TABLE,
        &pg_attrdef::TABLE,
        &pg_attribute::TABLE,
        &pg_class::TABLE,
        &pg_collation::TABLE,
        &pg_constraint::TABLE,
        &pg_database::TABLE,
        &pg_default_acl::TABLE,
        &pg_extension::TABLE,
        &pg_hba::RULES,
        &pg_hba::MAPPINGS,
        &pg_index::TABLE,
        &pg_index::DEFINITIONS,
        &pg_indexes::TABLE,
        &pg_language::TABLE,
        &pg_locks::TABLE,
        &pg_namespace::TABLE,
        &pg_prepared_xacts::TABLE,
        &pg_publication::TABLE,
        &pg_publication::RELATIONS,
        &pg_publication::TABLES,
        &pg_publication::FUNCTION,
        &pg_roles::TABLE,
        &pg_roles::GROUPS,
        &pg_roles::MEMBERS,
        &pg_roles::REACH,
        &pg_roles::SETTINGS,
        &pg_roles::SHADOW,
        &pg_roles::USERS,
        &pg_roles::WITH_PASSWORDS,
        &pg_settings::TABLE,
        &pg_stat_activity::TABLE,
        &pg_stat_activity::BLOCKING,
        &pg_sequence::DEPENDS,
        &pg_sequence::LIST,
        &pg_sequence::TABLE,
        &pg_subscription::TABLE,
        &pg_subscription::RELATIONS,
        &pg_subscription::TABLES,
        &pg_stat_database::TABLE,
        &sites::PG_STAT_SUBSCRIPTION,
        &sites::PG_STAT_SUBSCRIPTION_STATS,
        &sites::SITES,
        &pg_stat_server::BGWRITER,
        &pg_stat_server::CONFLICTS,
        &pg_stat_server::WAL,
        &pg_stat_server::WAL_RECEIVER,
        &sizes::DATABASES,
        &sizes::RELATIONS,
        &pg_stat_ssl::TABLE,
        &pg_stat_ssl::GSSAPI,
        &pg_stat_statements::INFO,
        &pg_stat_statements::TABLE,
        &replication::PG_STAT_REPLICATION,
        &replication::PG_REPLICATION_SLOTS,
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
    let named = PRESENT.iter().copied().chain(pg_stat_tables::TABLES).chain(empty::TABLES).chain(empty_stat::TABLES);
    named.chain(information_schema::TABLES).chain(granted::TABLES)
}

/// The catalogue table of this name. A name without a schema is looked up in `pg_catalog` only.
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
        let has = |t: &&Arc<Table>| sequence_name(t).as_deref() == Some(name) && shapes::has_sequence(t);
        let sequence = || among().find(has).map(|t| oids::sequence(t));
        table.or_else(index).or_else(sequence)
    };
    match namespace {
        Some("public") => user(false),
        Some(schema) if is_temp_schema(schema) => user(true),
        Some(other) => of_catalogue_table(other, name),
        None => of_catalogue_table("pg_catalog", name).or_else(|| user(true)).or_else(|| user(false)),
    }
}

const WELL_KNOWN: &[(&str, u32)] = &[
    ("pg_type", 1247),
    ("pg_attribute", 1249),
    ("pg_proc", 1255),
    ("pg_class", 1259),
    ("pg_database", 1262),
    ("pg_namespace", 2615),
    ("pg_constraint", 2606),
    ("pg_index", 2610),
    ("pg_attrdef", 2604),
    ("pg_description", 2609),
    ("pg_trigger", 2620),
    ("pg_rewrite", 2618),
    ("pg_subscription", 6100),
    ("pg_subscription_rel", 6102),
    ("pg_publication", 6104),
    ("pg_publication_rel", 6106),
    ("pg_publication_namespace", 6237),
];

/// The OID of a catalogue table itself.
pub fn of_catalogue_table(schema: &str, name: &str) -> Option<u32> {
    let place = tables().position(|t| t.schema == schema && t.name == name)?;
    let known = WELL_KNOWN.iter().find(|(n, _)| *n == name).map(|(_, o)| *o);
    Some(known.unwrap_or(12_000 + place as u32))
}

/// The OID of a schema.
pub fn namespace_oid(name: &str) -> Option<u32> {
    let temporary = is_temp_schema(name).then_some(oids::TEMP_OID);
    temporary.or_else(|| oids::NAMESPACES.iter().find(|(_, n)| *n == name).map(|(o, _)| *o))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_types::schema::Dialect;
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
                role: 10,
                application_name: "psql".into(),
                client: Some("127.0.0.1".into()),
                client_port: Some(4711),
                encryption: Some(EncryptionRow::default()),
                backend_start_us: 0,
                transaction_start_us: Some(1),
                query_start_us: None,
                state_change_us: i64::MAX,
                doing: Doing::Active,
                wait_event: Some(("Lock", "relation")),
                transaction: Some(u64::MAX),
                query: "SELECT 1".into(),
                query_id: Some(-1),
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
            let standbys = vec![holdfast_types::StandbyRow { name: "s".into(), connected: true, ..Default::default() }];
            let archive = Some(Default::default());
            let dump = Some(DumpRow::default());
            Standing { standbys, link: Some(Default::default()), archive, dump, ..Standing::default() }
        }

        fn hba_file(&self) -> Vec<HbaRow> {
            let wrong = HbaRow { line: 2, rule: None, error: Some("end-of-line".into()) };
            vec![HbaRow { line: 1, rule: Some(HbaRule::default()), error: None }, wrong]
        }

        fn ident_file(&self) -> Vec<IdentRow> {
            vec![IdentRow { line: 1, mapping: Some(("m".into(), "ann".into(), "bob".into())), error: None }]
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
            viewer: Viewer { role: Some(10), ..Viewer::default() },
            databases: Vec::new(),
            parameters_of_all: Vec::new(),
            roles: &holdfast_types::access::Roles::default(),
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
