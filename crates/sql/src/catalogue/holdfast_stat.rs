//! `holdfast_stat_trail`: the engine's counters since the start of the server. Holdfast's own; it stands where
//! PostgreSQL's statistics views stand, so that it is found without a schema.

use super::{CatalogTable, int, text};
use holdfast_types::desc::oid;

pub const TRAIL: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "holdfast_stat_trail",
    columns: &[("name", oid::TEXT), ("value", oid::INT8)],
    always_empty: false,
    rows: |context| {
        let value = |v: u64| int(i64::try_from(v).unwrap_or(i64::MAX));
        context.counters.iter().map(|(name, v)| vec![text(*name), value(*v)]).collect()
    },
};
