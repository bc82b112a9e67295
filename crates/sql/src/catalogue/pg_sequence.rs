//! `pg_sequence`, `pg_sequences` and `pg_depend`: the sequences that serial columns imply, and the columns that own them.
//!
//! The table itself keeps its last id, so a sequence has no rows to read, starts at 1, and its last value is shown as NULL.

use super::table::{CatalogContext, CatalogTable, boolean, int, text};
use super::{of_catalogue_table, oids, shapes};
use crate::types::{RowidKind, more};
use holdfast_types::Value;
use holdfast_types::desc::oid;
use holdfast_types::schema::Table;

const I8: u32 = oid::INT8;

/// Each sequence with its table and its name.
pub(super) fn sequences<'c>(context: &'c CatalogContext<'_>) -> impl Iterator<Item = (&'c Table, String)> {
    let of = |table: &'c std::sync::Arc<Table>| Some((&**table, shapes::sequence(table, context.dialect)?));
    context.schema.tables.iter().filter_map(of)
}

/// The type of its values, and the largest.
pub(super) fn values(table: &Table) -> (u32, i64) {
    let type_oid = RowidKind::of(table).ty().oid;
    let max = match type_oid {
        oid::INT2 => i64::from(i16::MAX),
        oid::INT4 => i64::from(i32::MAX),
        _ => i64::MAX,
    };
    (type_oid, max)
}

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_sequence",
    columns: &[
        ("seqrelid", oid::OID),
        ("seqtypid", oid::OID),
        ("seqstart", I8),
        ("seqincrement", I8),
        ("seqmax", I8),
        ("seqmin", I8),
        ("seqcache", I8),
        ("seqcycle", oid::BOOL),
    ],
    always_empty: false,
    rows: |context| {
        let row = |(table, _): (&Table, String)| {
            let (type_oid, max) = values(table);
            let numbers = [1, 1, max, 1, 1].map(Value::Int);
            let ids = [int(oids::sequence(table)), int(type_oid)];
            ids.into_iter().chain(numbers).chain([boolean(false)]).collect()
        };
        sequences(context).map(row).collect()
    },
};

pub const LIST: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_sequences",
    columns: &[
        ("schemaname", oid::NAME),
        ("sequencename", oid::NAME),
        ("sequenceowner", oid::NAME),
        ("data_type", more::REGTYPE),
        ("start_value", I8),
        ("min_value", I8),
        ("max_value", I8),
        ("increment_by", I8),
        ("cycle", oid::BOOL),
        ("cache_size", I8),
        ("last_value", I8),
    ],
    always_empty: false,
    rows: |context| {
        let row = |(table, name): (&Table, String)| {
            let (type_oid, max) = values(table);
            let owner = context.roles.name_of(context.schema.grants.owner(table.oid));
            let mut row = vec![text(oids::namespace(table).1), text(name), text(owner), int(type_oid)];
            row.extend([1, 1, max, 1].map(Value::Int));
            row.extend([boolean(false), int(1), Value::Null]);
            row
        };
        sequences(context).map(row).collect()
    },
};

/// A serial column owns its sequence.
pub const DEPENDS: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_depend",
    columns: &[
        ("classid", oid::OID),
        ("objid", oid::OID),
        ("objsubid", oid::INT4),
        ("refclassid", oid::OID),
        ("refobjid", oid::OID),
        ("refobjsubid", oid::INT4),
        ("deptype", oid::CHAR),
    ],
    always_empty: false,
    rows: |context| {
        let class = of_catalogue_table("pg_catalog", "pg_class").unwrap_or_default();
        let row = |(table, _): (&Table, String)| {
            let column = table.columns.iter().position(|c| c.rowid_alias).map_or(0, |at| at as i64 + 1);
            vec![int(class), int(oids::sequence(table)), int(0), int(class), int(table.oid), int(column), text("a")]
        };
        sequences(context).map(row).collect()
    },
};
