//! `holdfast_stat_trail`, the engine's counters, and `holdfast_stat_automatic`, those of automatic transactions, both
//! since the start of the server. Holdfast's own; they stand where PostgreSQL's statistics views stand, so that they
//! are found without a schema.

use super::{CatalogTable, int, text};
use holdfast_types::Value;
use holdfast_types::desc::oid;

pub const TRAIL: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "holdfast_stat_trail",
    columns: &[("name", oid::TEXT), ("value", oid::INT8)],
    always_empty: false,
    rows: |context| rows(&context.counters),
};

pub const AUTOMATIC: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "holdfast_stat_automatic",
    columns: &[("name", oid::TEXT), ("value", oid::INT8)],
    always_empty: false,
    rows: |context| rows(&context.automatic),
};

fn rows(counters: &[(&'static str, u64)]) -> Vec<Vec<Value>> {
    let value = |v: u64| int(i64::try_from(v).unwrap_or(i64::MAX));
    counters.iter().map(|(name, v)| vec![text(*name), value(*v)]).collect()
}
