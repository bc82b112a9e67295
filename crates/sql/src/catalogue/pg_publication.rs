//! `pg_publication`, `pg_publication_rel`, the view `pg_publication_tables`, and what `pg_get_publication_tables()` returns.

use super::table::{CatalogContext, CatalogTable, boolean, int, text, vector};
use super::{filter_text, oids, shapes};
use crate::types::more;
use holdfast_types::Value;
use holdfast_types::array::Array;
use holdfast_types::desc::oid;
use holdfast_types::publication::{Publication, PublishedTable};
use holdfast_types::schema::{Table, TableKind};

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_publication",
    columns: &[
        ("oid", oid::OID),
        ("pubname", oid::NAME),
        ("pubowner", oid::OID),
        ("puballtables", oid::BOOL),
        ("pubinsert", oid::BOOL),
        ("pubupdate", oid::BOOL),
        ("pubdelete", oid::BOOL),
        ("pubtruncate", oid::BOOL),
        ("pubviaroot", oid::BOOL),
    ],
    always_empty: false,
    rows: |context| context.schema.publications.list.iter().map(row).collect(),
};

fn row(publication: &Publication) -> Vec<Value> {
    let options = &publication.options;
    vec![
        int(oids::publication(publication.number)),
        text(publication.name.as_str()),
        int(publication.owner),
        boolean(publication.all_tables),
        boolean(options.insert),
        boolean(options.update),
        boolean(options.delete),
        boolean(options.truncate),
        boolean(options.via_root),
    ]
}

pub const RELATIONS: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_publication_rel",
    columns: &[
        ("oid", oid::OID),
        ("prpubid", oid::OID),
        ("prrelid", oid::OID),
        ("prqual", more::PG_NODE_TREE),
        ("prattrs", more::INT2VECTOR),
    ],
    always_empty: false,
    rows: |context| {
        let listed = context.schema.publications.list.iter().flat_map(|p| p.tables.iter().map(move |t| (p, t)));
        let found = listed.filter_map(|(p, t)| Some((p, t, context.schema.by_oid(t.table)?)));
        found
            .enumerate()
            .map(|(place, (publication, entry, table))| {
                vec![
                    int(oids::published_table(place)),
                    int(oids::publication(publication.number)),
                    int(entry.table),
                    condition(context, table, Some(entry)),
                    entry.columns.as_ref().map_or(Value::Null, |names| vector(attnums(table, names))),
                ]
            })
            .collect()
    },
};

pub const TABLES: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_publication_tables",
    columns: &[
        ("pubname", oid::NAME),
        ("schemaname", oid::NAME),
        ("tablename", oid::NAME),
        ("attnames", more::NAME_ARRAY),
        ("rowfilter", oid::TEXT),
    ],
    always_empty: false,
    rows: |context| {
        published(context)
            .map(|(publication, entry, table)| {
                let names = match entry.and_then(|e| e.columns.as_ref()) {
                    Some(names) => names.clone(),
                    None => table.columns.iter().map(|c| c.name.clone()).collect(),
                };
                vec![
                    text(publication.name.as_str()),
                    text("public"),
                    text(table.name.as_str()),
                    text(Array::flat(names.into_iter().map(Some).collect()).to_text()),
                    condition(context, table, entry),
                ]
            })
            .collect()
    },
};

/// The rows of `pg_get_publication_tables()` of every publication.
pub const FUNCTION: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "hf_publication_tables",
    columns: &[("relid", oid::OID), ("attrs", more::INT2VECTOR), ("qual", more::PG_NODE_TREE), ("pubname", oid::NAME)],
    always_empty: false,
    rows: |context| {
        published(context)
            .map(|(publication, entry, table)| {
                let columns = entry.and_then(|e| e.columns.as_ref());
                vec![
                    int(table.oid),
                    columns.map_or(Value::Null, |names| vector(attnums(table, names))),
                    condition(context, table, entry),
                    text(publication.name.as_str()),
                ]
            })
            .collect()
    },
};

/// Every publication with each of its tables; without an entry where it is FOR ALL TABLES.
fn published<'c>(
    context: &'c CatalogContext<'_>,
) -> impl Iterator<Item = (&'c Publication, Option<&'c PublishedTable>, &'c Table)> {
    context.schema.publications.list.iter().flat_map(|publication| {
        let is_published = |t: &&std::sync::Arc<Table>| {
            is_publishable(t) && (publication.all_tables || publication.table(t.oid).is_some())
        };
        let tables = context.schema.tables.iter().filter(is_published);
        tables.map(move |table| (publication, publication.table(table.oid), &**table))
    })
}

/// Whether a publication can have the table.
pub fn is_publishable(table: &Table) -> bool {
    table.kind == TableKind::Table && !table.temp && shapes::visible(table)
}

fn attnums(table: &Table, names: &[String]) -> Vec<i64> {
    names.iter().map(|name| shapes::attnum(table, name)).collect()
}

fn condition(context: &CatalogContext<'_>, table: &Table, entry: Option<&PublishedTable>) -> Value {
    let filter = entry.and_then(|e| e.filter.as_deref());
    filter.map_or(Value::Null, |filter| text(filter_text::shown(filter, table, context.dialect)))
}
