//! `pg_attribute`: columns of tables, views, indexes and of the catalogue itself.

use super::pg_attrdef::default_of;
use super::pg_database::grants;
use super::shapes;
use super::table::{CatalogContext, CatalogTable, boolean, int, text};
use crate::keys::primary_key;
use crate::types::{self, Category, Type, more};
use holdfast_types::Value;
use holdfast_types::desc::oid;
use holdfast_types::schema::Column;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_attribute",
    columns: &[
        ("attrelid", oid::OID),
        ("attname", oid::NAME),
        ("atttypid", oid::OID),
        ("attstattarget", oid::INT4),
        ("attlen", oid::INT2),
        ("attnum", oid::INT2),
        ("attndims", oid::INT4),
        ("attcacheoff", oid::INT4),
        ("atttypmod", oid::INT4),
        ("attbyval", oid::BOOL),
        ("attalign", oid::CHAR),
        ("attstorage", oid::CHAR),
        ("attcompression", oid::CHAR),
        ("attnotnull", oid::BOOL),
        ("atthasdef", oid::BOOL),
        ("atthasmissing", oid::BOOL),
        ("attidentity", oid::CHAR),
        ("attgenerated", oid::CHAR),
        ("attisdropped", oid::BOOL),
        ("attislocal", oid::BOOL),
        ("attinhcount", oid::INT4),
        ("attcollation", oid::OID),
        ("attacl", more::ACLITEM_ARRAY),
        ("attoptions", more::TEXT_ARRAY),
        ("attfdwoptions", more::TEXT_ARRAY),
    ],
    always_empty: false,
    rows,
};

struct Attribute<'a> {
    relation: u32,
    name: &'a str,
    ty: Type,
    number: usize,
    not_null: bool,
    has_default: bool,
    /// As `attgenerated` shows it: "v" is PostgreSQL 18's, psql before that shows the expression as a default.
    generated: &'static str,
    acl: Value,
}

fn row(a: Attribute<'_>) -> Vec<Value> {
    let known = types::by_oid(a.ty.oid);
    let collation = if a.ty.category() == Category::String { super::pg_collation::DEFAULT_OID } else { 0 };
    vec![
        int(a.relation),
        text(a.name),
        int(a.ty.oid),
        int(-1),
        int(known.map_or(-1, |t| t.len)),
        int(a.number as i64),
        int(0),
        int(-1),
        int(a.ty.typmod),
        boolean(known.is_some_and(|t| t.by_value)),
        text("i"),
        text(if known.is_some_and(|t| t.len > 0) { "p" } else { "x" }),
        text(""),
        boolean(a.not_null),
        boolean(a.has_default),
        boolean(false),
        text(""),
        text(a.generated),
        boolean(false),
        boolean(true),
        int(0),
        int(collation),
        a.acl,
        Value::Null,
        Value::Null,
    ]
}

fn generated(column: &Column) -> &'static str {
    match (column.generated, column.generated_virtual) {
        (false, _) => "",
        (true, false) => "s",
        (true, true) => "v",
    }
}

fn rows(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for table in context.schema.tables.iter().filter(|t| shapes::visible(t)) {
        let key = primary_key(table);
        let own = context.schema.grants.of(table.oid).filter(|_| !table.temp);
        for (i, column) in table.columns.iter().enumerate() {
            rows.push(row(Attribute {
                relation: table.oid,
                name: &column.name,
                ty: shapes::column_type(table, i, context.dialect),
                number: i + 1,
                not_null: column.not_null || column.rowid_alias || key.contains(&column.name),
                has_default: default_of(table, i, column, context.dialect).is_some(),
                generated: generated(column),
                acl: match own.and_then(|own| own.columns.get(&column.name)) {
                    Some(acl) => grants(context.roles, Some(acl.clone())),
                    None => Value::Null,
                },
            }));
        }
        for index in shapes::indexes(table) {
            for (i, (key, attnum)) in index.keys.iter().zip(&index.attnums).enumerate() {
                let column = usize::try_from(*attnum).ok().and_then(|n| n.checked_sub(1));
                let name = column.and_then(|c| table.columns.get(c)).map_or(key.as_str(), |c| c.name.as_str());
                let ty = column.map_or(Type::TEXT, |c| shapes::column_type(table, c, context.dialect));
                let (not_null, has_default, generated) = (false, false, "");
                rows.push(row(Attribute {
                    relation: index.oid,
                    name,
                    ty,
                    number: i + 1,
                    not_null,
                    has_default,
                    generated,
                    acl: Value::Null,
                }));
            }
        }
    }
    for table in super::tables() {
        let Some(relation) = super::of_catalogue_table(table.schema, table.name) else { continue };
        for (i, (name, type_oid)) in table.columns.iter().enumerate() {
            let ty = Type::new(*type_oid);
            let (not_null, has_default, generated) = (*name == "oid", false, "");
            rows.push(row(Attribute {
                relation,
                name,
                ty,
                number: i + 1,
                not_null,
                has_default,
                generated,
                acl: Value::Null,
            }));
        }
    }
    rows
}
