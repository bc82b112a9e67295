//! `pg_constraint`: primary and unique keys, foreign keys, checks. The column `condef`, which PostgreSQL does not have,
//! holds what `pg_get_constraintdef` returns.

use super::table::{CatalogContext, CatalogTable, array, boolean, int, text};
use super::{oids, shapes};
use crate::types::more;
use holdfast_types::Value;
use holdfast_types::desc::oid;
use holdfast_types::schema::Table;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_constraint",
    columns: &[
        ("oid", oid::OID),
        ("conname", oid::NAME),
        ("connamespace", oid::OID),
        ("contype", oid::CHAR),
        ("condeferrable", oid::BOOL),
        ("condeferred", oid::BOOL),
        ("convalidated", oid::BOOL),
        ("conrelid", oid::OID),
        ("contypid", oid::OID),
        ("conindid", oid::OID),
        ("conparentid", oid::OID),
        ("confrelid", oid::OID),
        ("confupdtype", oid::CHAR),
        ("confdeltype", oid::CHAR),
        ("confmatchtype", oid::CHAR),
        ("conislocal", oid::BOOL),
        ("coninhcount", oid::INT4),
        ("connoinherit", oid::BOOL),
        ("conkey", more::INT2_ARRAY),
        ("confkey", more::INT2_ARRAY),
        ("conbin", more::PG_NODE_TREE),
        ("condef", oid::TEXT),
    ],
    always_empty: false,
    rows,
};

/// One constraint.
pub struct Constraint {
    pub oid: u32,
    pub name: String,
    /// p, u, f or c.
    pub kind: &'static str,
    pub index: u32,
    pub parent: u32,
    pub actions: (&'static str, &'static str),
    pub columns: Vec<i64>,
    pub parent_columns: Vec<i64>,
    pub definition: String,
    /// DEFERRABLE, and INITIALLY DEFERRED.
    pub deferral: (bool, bool),
    pub valid: bool,
}

fn action(text: &str) -> &'static str {
    match text.to_ascii_lowercase().as_str() {
        "cascade" => "c",
        "restrict" => "r",
        "set null" => "n",
        "set default" => "d",
        _ => "a",
    }
}

/// The constraints of a table.
pub fn constraints(context: &CatalogContext<'_>, table: &Table) -> Vec<Constraint> {
    let mut out = Vec::new();
    for index in shapes::indexes(table).into_iter().filter(|i| i.constraint) {
        let word = if index.primary { "PRIMARY KEY" } else { "UNIQUE" };
        out.push(Constraint {
            oid: oids::index_constraint(index.oid),
            name: index.name.clone(),
            kind: if index.primary { "p" } else { "u" },
            index: index.oid,
            parent: 0,
            actions: (" ", " "),
            columns: index.attnums.clone(),
            parent_columns: Vec::new(),
            definition: format!("{word} ({})", index.keys.join(", ")),
            deferral: (false, false),
            valid: true,
        });
    }
    for (i, key) in table.foreign_keys.iter().enumerate() {
        let definition = shapes::foreign_key(key);
        let same_kind = |t: &&std::sync::Arc<Table>| t.temp == table.temp && t.name.eq_ignore_ascii_case(&key.parent);
        let parent = context.schema.tables.iter().find(same_kind);
        let parent_columns = parent.map(|p| match key.parent_columns.iter().any(Option::is_none) {
            // Columns that are not named are those of the primary key.
            true => primary_key(p).map(|index| index.attnums).unwrap_or_default(),
            false => key.parent_columns.iter().flatten().map(|c| shapes::attnum(p, c)).collect(),
        });
        out.push(Constraint {
            oid: oids::foreign_key(table, i),
            name: key.name.clone(),
            deferral: (key.deferrable, key.deferred),
            valid: key.valid,
            kind: "f",
            index: parent.and_then(|p| primary_key(p)).map_or(0, |index| index.oid),
            parent: parent.map_or(0, |p| p.oid),
            actions: (action(&key.on_update), action(&key.on_delete)),
            columns: key.columns.iter().map(|c| shapes::attnum(table, c)).collect(),
            parent_columns: parent_columns.unwrap_or_default(),
            definition,
        });
    }
    let definition = holdfast_types::definition::Definition::parse(&table.sql);
    let unchecked = |name: &str| {
        definition.iter().flat_map(|d| d.checks()).any(|(_, c)| c.name.as_deref() == Some(name) && !c.is_valid())
    };
    for (i, (name, condition)) in shapes::checks(table).into_iter().enumerate() {
        let valid = !unchecked(&name);
        out.push(Constraint {
            oid: oids::check(table, i),
            name,
            kind: "c",
            index: 0,
            parent: 0,
            actions: (" ", " "),
            columns: check_columns(table, &condition),
            parent_columns: Vec::new(),
            definition: format!("CHECK {condition}{}", if valid { "" } else { " NOT VALID" }),
            deferral: (false, false),
            valid,
        });
    }
    out
}

/// The attribute numbers of the columns that a check names.
fn check_columns(table: &Table, condition: &str) -> Vec<i64> {
    let tokens = holdfast_types::definition::token::tokens(condition);
    let names: Vec<String> =
        tokens.iter().filter(|t| !t.text(condition).starts_with('\'')).filter_map(|t| t.name(condition)).collect();
    let is_named = |name: &str| names.iter().any(|n| n.eq_ignore_ascii_case(name));
    table.columns.iter().filter(|c| is_named(&c.name)).map(|c| shapes::attnum(table, &c.name)).collect()
}

fn rows(context: &CatalogContext<'_>) -> Vec<Vec<Value>> {
    let mut rows = Vec::new();
    for table in context.schema.tables.iter().filter(|t| shapes::visible(t)) {
        for c in constraints(context, table) {
            let foreign = c.kind == "f";
            rows.push(vec![
                int(c.oid),
                text(c.name),
                int(oids::namespace(table).0),
                text(c.kind),
                boolean(c.deferral.0),
                boolean(c.deferral.1),
                boolean(c.valid),
                int(table.oid),
                int(0),
                int(c.index),
                int(0),
                int(c.parent),
                text(c.actions.0),
                text(c.actions.1),
                text(if foreign { "s" } else { " " }),
                boolean(true),
                int(0),
                boolean(c.kind != "c"),
                array(c.columns),
                if foreign { array(c.parent_columns) } else { Value::Null },
                if c.kind == "c" { text(c.definition.trim_start_matches("CHECK ")) } else { Value::Null },
                text(c.definition),
            ]);
        }
    }
    rows
}

/// The index of a table's primary key.
fn primary_key(table: &Table) -> Option<shapes::IndexShape<'_>> {
    shapes::indexes(table).into_iter().find(|index| index.primary)
}
