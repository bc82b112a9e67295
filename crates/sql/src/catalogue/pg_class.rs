//! `pg_class`: tables, views and indexes, and the catalogue itself.

use super::oids::{BTREE_OID, HEAP_OID, INFORMATION_SCHEMA_OID, OWNER_OID, PG_CATALOG_OID, PUBLIC_OID, TEMP_OID};
use super::pg_database::grants;
use super::table::{CatalogContext, CatalogTable, boolean, int, text};
use super::{oids, shapes};
use crate::types::more;
use holdfast_types::Value;
use holdfast_types::desc::oid;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_class",
    columns: &[
        ("oid", oid::OID),
        ("relname", oid::NAME),
        ("relnamespace", oid::OID),
        ("reltype", oid::OID),
        ("reloftype", oid::OID),
        ("relowner", oid::OID),
        ("relam", oid::OID),
        ("relfilenode", oid::OID),
        ("reltablespace", oid::OID),
        ("relpages", oid::INT4),
        ("reltuples", oid::FLOAT4),
        ("relallvisible", oid::INT4),
        ("reltoastrelid", oid::OID),
        ("relhasindex", oid::BOOL),
        ("relisshared", oid::BOOL),
        ("relpersistence", oid::CHAR),
        ("relkind", oid::CHAR),
        ("relnatts", oid::INT2),
        ("relchecks", oid::INT2),
        ("relhasrules", oid::BOOL),
        ("relhastriggers", oid::BOOL),
        ("relhassubclass", oid::BOOL),
        ("relrowsecurity", oid::BOOL),
        ("relforcerowsecurity", oid::BOOL),
        ("relispopulated", oid::BOOL),
        ("relreplident", oid::CHAR),
        ("relispartition", oid::BOOL),
        ("relrewrite", oid::OID),
        ("relfrozenxid", more::XID),
        ("relminmxid", more::XID),
        ("relacl", more::ACLITEM_ARRAY),
        ("reloptions", more::TEXT_ARRAY),
        ("relpartbound", more::PG_NODE_TREE),
    ],
    always_empty: false,
    rows,
};

struct Relation<'a> {
    oid: u32,
    name: &'a str,
    namespace: u32,
    row_type: u32,
    method: u32,
    kind: &'a str,
    columns: usize,
    checks: usize,
    has_index: bool,
    has_triggers: bool,
    temp: bool,
    owner: u32,
    acl: Value,
}

fn row(r: Relation<'_>) -> Vec<Value> {
    vec![
        int(r.oid),
        text(r.name),
        int(r.namespace),
        int(r.row_type),
        int(0),
        int(r.owner),
        int(r.method),
        int(r.oid),
        int(0),
        int(0),
        Value::Real(-1.0),
        int(0),
        int(0),
        boolean(r.has_index),
        boolean(false),
        text(if r.temp { "t" } else { "p" }),
        text(r.kind),
        int(r.columns as i64),
        int(r.checks as i64),
        boolean(r.kind == "v"),
        boolean(r.has_triggers),
        boolean(false),
        boolean(false),
        boolean(false),
        boolean(true),
        text(if matches!(r.namespace, PUBLIC_OID | TEMP_OID) && r.kind == "r" { "d" } else { "n" }),
        boolean(false),
        int(0),
        int(0),
        int(0),
        r.acl,
        Value::Null,
        Value::Null,
    ]
}

fn rows(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    // A name means a temporary table before a permanent one; temporary tables come last in the schema.
    for table in context.schema.tables.iter().rev().filter(|t| shapes::visible(t)) {
        let indexes = shapes::indexes(table);
        let (namespace, _) = oids::namespace(table);
        let kind = shapes::relkind(table);
        let own = context.schema.grants.of(table.oid).filter(|_| !table.temp);
        let (owner, acl) = own.map_or((OWNER_OID, None), |own| (own.owner, own.acl.clone()));
        let mut others = context.schema.tables.iter().filter(|t| t.temp == table.temp);
        let referenced = others.any(|t| t.foreign_keys.iter().any(|k| k.parent == table.name));
        rows.push(row(Relation {
            oid: table.oid,
            name: &table.name,
            namespace,
            row_type: oids::row_type(table),
            method: if kind == "r" { HEAP_OID } else { 0 },
            kind,
            columns: table.columns.len(),
            checks: shapes::checks(table).len(),
            has_index: !indexes.is_empty(),
            has_triggers: !table.triggers.is_empty() || !table.foreign_keys.is_empty() || referenced,
            temp: table.temp,
            owner,
            acl: grants(context.roles, acl),
        }));
        if let Some(name) = shapes::sequence(table, context.dialect) {
            rows.push(row(Relation {
                oid: oids::sequence(table),
                name: &name,
                namespace,
                row_type: 0,
                method: 0,
                kind: "S",
                columns: 3,
                checks: 0,
                has_index: false,
                has_triggers: false,
                temp: table.temp,
                owner,
                acl: grants(context.roles, own.and_then(|own| own.sequence.clone())),
            }));
        }
        for index in &indexes {
            rows.push(row(Relation {
                oid: index.oid,
                name: &index.name,
                namespace,
                row_type: 0,
                method: BTREE_OID,
                kind: "i",
                columns: index.keys.len(),
                checks: 0,
                has_index: false,
                has_triggers: false,
                temp: table.temp,
                owner,
                acl: Value::Null,
            }));
        }
    }
    for table in super::tables() {
        let Some(id) = super::of_catalogue_table(table.schema, table.name) else { continue };
        let own = table.schema == "pg_catalog";
        rows.push(row(Relation {
            oid: id,
            name: table.name,
            namespace: if own { PG_CATALOG_OID } else { INFORMATION_SCHEMA_OID },
            row_type: 0,
            method: if own { HEAP_OID } else { 0 },
            kind: if own { "r" } else { "v" },
            columns: table.columns.len(),
            checks: 0,
            has_index: false,
            has_triggers: false,
            temp: false,
            owner: OWNER_OID,
            acl: Value::Null,
        }));
    }
    rows
}
