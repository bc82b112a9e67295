//! `pg_description` and `pg_shdescription`: the comments that PostgreSQL's own objects have in a new cluster. COMMENT ON is not
//! supported.

use super::of_catalogue_table;
use super::oids::{PG_CATALOG_OID, PUBLIC_OID};
use super::pg_extension::PLPGSQL_OID;
use super::table::{CatalogTable, int, text};
use holdfast_types::Value;
use holdfast_types::desc::oid;

/// A description of an object of this table of the catalogue.
fn row(class: &str, object: u32, described: &str) -> Vec<Value> {
    let class = of_catalogue_table("pg_catalog", class).unwrap_or_default();
    vec![int(object), int(class), text(described)]
}

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_description",
    columns: &[("objoid", oid::OID), ("classoid", oid::OID), ("objsubid", oid::INT4), ("description", oid::TEXT)],
    always_empty: false,
    rows: |_| {
        let mut rows = [
            row("pg_namespace", PG_CATALOG_OID, "system catalog schema"),
            row("pg_namespace", PUBLIC_OID, "standard public schema"),
            row("pg_extension", PLPGSQL_OID, "PL/pgSQL procedural language"),
        ];
        rows.iter_mut().for_each(|row| row.insert(2, int(0)));
        rows.to_vec()
    },
};

pub const SHARED: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_shdescription",
    columns: &[("objoid", oid::OID), ("classoid", oid::OID), ("description", oid::TEXT)],
    always_empty: false,
    rows: |context| {
        let default = context.databases.iter().filter(|d| d.name == "postgres");
        default.map(|d| row("pg_database", d.oid, "default administrative connection database")).collect()
    },
};
