//! `pg_views`, and the texts that `pg_get_viewdef` returns.

use super::shapes;
use super::table::{CatalogTable, int, text};
use holdfast_types::desc::oid;
use holdfast_types::schema::Table;

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_views",
    columns: &[("schemaname", oid::NAME), ("viewname", oid::NAME), ("viewowner", oid::NAME), ("definition", oid::TEXT)],
    always_empty: false,
    rows: |context| {
        let views = context.schema.tables.iter().filter(|t| shapes::relkind(t) == "v");
        let owner = |v: &Table| text(context.roles.name_of(context.schema.grants.owner(v.oid)));
        views.map(|v| vec![text("public"), text(v.name.as_str()), owner(v), text(definition(v))]).collect()
    },
};

pub const DEFINITIONS: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "hf_viewdef",
    columns: &[("oid", oid::OID), ("definition", oid::TEXT)],
    always_empty: false,
    rows: |context| {
        let views = context.schema.tables.iter().filter(|t| shapes::relkind(t) == "v");
        views.map(|v| vec![int(v.oid), text(definition(v))]).collect()
    },
};

/// The query of a view, as it is stored.
pub fn definition(view: &Table) -> String {
    let lower = view.sql.to_ascii_lowercase();
    let query = lower.find(" as ").map_or(view.sql.as_str(), |at| &view.sql[at + 4..]);
    format!(" {};", shapes::readable(query.trim()))
}
