//! `information_schema`: tables, columns, views, schemas and keys.

use super::pg_attrdef::default_of;
use super::pg_constraint::constraints;
use super::table::{CatalogContext, CatalogTable, int, text};
use super::{oids, shapes};
use crate::keys::primary_key;
use crate::types::{self, Category, Type, numeric_modifier};
use holdfast_types::Value;
use holdfast_types::desc::oid;
use holdfast_types::schema::Table;

pub(super) const N: u32 = oid::NAME;
pub(super) const T: u32 = oid::VARCHAR;
const I: u32 = oid::INT4;

/// A view of `information_schema`.
pub(super) const fn view(
    name: &'static str,
    columns: &'static [(&'static str, u32)],
    rows: fn(&CatalogContext<'_>) -> Vec<Vec<Value>>,
) -> CatalogTable {
    CatalogTable { schema: "information_schema", name, columns, always_empty: false, rows }
}

pub const TABLES: &[CatalogTable] = &[
    view(
        "schemata",
        &[("catalog_name", N), ("schema_name", N), ("schema_owner", N), ("default_character_set_name", N)],
        |c| {
            let owner = |oid: u32| if oid == oids::PUBLIC_OID { c.schema.grants.schema.owner } else { oids::OWNER_OID };
            let row = |(oid, name): &(u32, &str)| {
                vec![text(c.database), text(*name), text(c.roles.name_of(owner(*oid))), Value::Null]
            };
            oids::NAMESPACES.iter().map(row).collect()
        },
    ),
    view(
        "tables",
        &[("table_catalog", N), ("table_schema", N), ("table_name", N), ("table_type", T), ("is_insertable_into", T)],
        tables,
    ),
    view(
        "columns",
        &[
            ("table_catalog", N),
            ("table_schema", N),
            ("table_name", N),
            ("column_name", N),
            ("ordinal_position", I),
            ("column_default", T),
            ("is_nullable", T),
            ("data_type", T),
            ("character_maximum_length", I),
            ("numeric_precision", I),
            ("numeric_precision_radix", I),
            ("numeric_scale", I),
            ("datetime_precision", I),
            ("udt_catalog", N),
            ("udt_schema", N),
            ("udt_name", N),
            ("is_identity", T),
            ("is_generated", T),
            ("generation_expression", T),
            ("is_updatable", T),
        ],
        columns,
    ),
    view(
        "views",
        &[("table_catalog", N), ("table_schema", N), ("table_name", N), ("view_definition", T), ("is_updatable", T)],
        |c| {
            let views = c.schema.tables.iter().filter(|t| shapes::relkind(t) == "v");
            let row = |v: &Table| vec![text(super::pg_views::definition(v)), text("NO")];
            views.map(|v| [place(c, v, &v.name), row(v)].concat()).collect()
        },
    ),
    view(
        "sequences",
        &[
            ("sequence_catalog", N),
            ("sequence_schema", N),
            ("sequence_name", N),
            ("data_type", T),
            ("numeric_precision", I),
            ("numeric_precision_radix", I),
            ("numeric_scale", I),
            ("start_value", T),
            ("minimum_value", T),
            ("maximum_value", T),
            ("increment", T),
            ("cycle_option", T),
        ],
        |c| {
            let row = |(table, name): (&Table, String)| {
                let (type_oid, max) = super::pg_sequence::values(table);
                let [_, precision, radix, scale, _] = sizes(Type::new(type_oid));
                let mut row = place(c, table, &name);
                row.extend([text(types::type_name(type_oid)), precision, radix, scale]);
                row.extend([text("1"), text("1"), text(max.to_string()), text("1"), text("NO")]);
                row
            };
            super::pg_sequence::sequences(c).map(row).collect()
        },
    ),
    view(
        "table_constraints",
        &[
            ("constraint_catalog", N),
            ("constraint_schema", N),
            ("constraint_name", N),
            ("table_catalog", N),
            ("table_schema", N),
            ("table_name", N),
            ("constraint_type", T),
            ("is_deferrable", T),
            ("initially_deferred", T),
        ],
        table_constraints,
    ),
    view(
        "key_column_usage",
        &[
            ("constraint_catalog", N),
            ("constraint_schema", N),
            ("constraint_name", N),
            ("table_catalog", N),
            ("table_schema", N),
            ("table_name", N),
            ("column_name", N),
            ("ordinal_position", I),
            ("position_in_unique_constraint", I),
        ],
        key_column_usage,
    ),
];

/// Catalogue, schema and name of a table, or of an object that belongs to it.
fn place(context: &CatalogContext<'_>, table: &Table, name: &str) -> Vec<Value> {
    vec![text(context.database), text(super::oids::namespace(table).1), text(name)]
}

pub(super) fn yes_or_no(value: bool) -> Value {
    text(if value { "YES" } else { "NO" })
}

fn tables(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for table in context.schema.tables.iter().filter(|t| shapes::visible(t)) {
        let is_view = shapes::relkind(table) == "v";
        let mut row = place(context, table, &table.name);
        let kind = match (is_view, table.temp) {
            (true, _) => "VIEW",
            (false, true) => "LOCAL TEMPORARY",
            (false, false) => "BASE TABLE",
        };
        row.extend([text(kind), yes_or_no(!is_view)]);
        rows.push(row);
    }
    for table in super::tables() {
        let kind = if table.schema == "pg_catalog" { "BASE TABLE" } else { "VIEW" };
        rows.push(vec![text(context.database), text(table.schema), text(table.name), text(kind), text("NO")]);
    }
    rows
}

fn columns(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for table in context.schema.tables.iter().filter(|t| shapes::visible(t)) {
        let key = primary_key(table);
        for (i, column) in table.columns.iter().enumerate() {
            let ty = shapes::column_type(table, i, context.dialect);
            let not_null = column.not_null || column.rowid_alias || key.contains(&column.name);
            let mut row = place(context, table, &table.name);
            row.extend([text(column.name.as_str()), int(i as i64 + 1)]);
            let expression = default_of(table, i, column, context.dialect).map_or(Value::Null, text);
            let (default, generation) =
                if column.generated { (Value::Null, expression) } else { (expression, Value::Null) };
            row.push(default);
            row.extend([yes_or_no(!not_null), text(types::type_name(ty.oid))]);
            row.extend(sizes(ty));
            let udt = types::by_oid(ty.oid).map_or("text", |t| t.name);
            row.extend([text(context.database), text("pg_catalog"), text(udt), text("NO")]);
            row.extend([text(if column.generated { "ALWAYS" } else { "NEVER" }), generation]);
            row.push(yes_or_no(!column.generated));
            rows.push(row);
        }
    }
    rows
}

/// Length, precision, radix, scale and precision of a time.
fn sizes(ty: Type) -> [Value; 5] {
    let length = if ty.category() == Category::String && ty.typmod >= 4 { int(ty.typmod - 4) } else { Value::Null };
    let (precision, radix, scale) = match ty.oid {
        oid::INT2 => (int(16), int(2), int(0)),
        oid::INT4 => (int(32), int(2), int(0)),
        oid::INT8 => (int(64), int(2), int(0)),
        oid::FLOAT4 => (int(24), int(2), Value::Null),
        oid::FLOAT8 => (int(53), int(2), Value::Null),
        oid::NUMERIC => match numeric_modifier(ty.typmod) {
            Some((p, s)) => (int(p), int(10), int(s)),
            None => (Value::Null, int(10), Value::Null),
        },
        _ => (Value::Null, Value::Null, Value::Null),
    };
    let moment = match ty.oid {
        oid::DATE => int(0),
        oid::TIME | oid::TIMESTAMP | oid::TIMESTAMPTZ => int(if ty.typmod >= 0 { ty.typmod } else { 6 }),
        _ => Value::Null,
    };
    [length, precision, radix, scale, moment]
}

fn table_constraints(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for table in context.schema.tables.iter().filter(|t| shapes::visible(t)) {
        for constraint in constraints(context, table) {
            let kind = match constraint.kind {
                "p" => "PRIMARY KEY",
                "u" => "UNIQUE",
                "f" => "FOREIGN KEY",
                _ => "CHECK",
            };
            let mut row = place(context, table, &constraint.name);
            row.extend(place(context, table, &table.name));
            row.extend([text(kind), yes_or_no(constraint.deferral.0), yes_or_no(constraint.deferral.1)]);
            rows.push(row);
        }
    }
    rows
}

fn key_column_usage(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for table in context.schema.tables.iter().filter(|t| shapes::visible(t)) {
        for constraint in constraints(context, table).into_iter().filter(|c| c.kind != "c") {
            for (i, attnum) in constraint.columns.iter().enumerate() {
                let column = usize::try_from(attnum - 1).ok().and_then(|c| table.columns.get(c));
                let Some(column) = column else { continue };
                let mut row = place(context, table, &constraint.name);
                row.extend(place(context, table, &table.name));
                let parent = if constraint.kind == "f" { int(i as i64 + 1) } else { Value::Null };
                row.extend([text(column.name.as_str()), int(i as i64 + 1), parent]);
                rows.push(row);
            }
        }
    }
    rows
}
