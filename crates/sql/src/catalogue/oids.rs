//! OIDs of objects that SQLite does not number.
//!
//! | thing | OID |
//! |---|---|
//! | user table, view, index | given with the schema, from 16384; temporary ones have high numbers among tables |
//! | primary key index of a rowid alias | 1,000,000,000 + table - 16384 |
//! | sequence of a serial column | 1,100,000,000 + table - 16384 |
//! | constraint of an index | 1,200,000,000 + index |
//! | column default | 2,600,000,000 + 2048 * (table - 16384) + attribute number |
//! | foreign key | 3,000,000,000 + 64 * (table - 16384) + number |
//! | subscription | 3,448,000,000 + its number |
//! | publication | 3,450,000,000 + its number |
//! | table in a publication | 3,460,000,000 + its place among all of them |
//! | check | 3,500,000,000 + 64 * (table - 16384) + number |
//! | row type of a table | 4,000,000,000 + table - 16384 |
//! | catalogue table | PostgreSQL's where clients know it, else 12000 + its place in the list |

use crate::names::TEMP_NAMESPACE;
use holdfast_types::schema::Table;

pub const PG_CATALOG_OID: u32 = 11;
pub const PUBLIC_OID: u32 = 2200;
/// The schema of the session's temporary tables.
pub const TEMP_OID: u32 = 13_001;
pub const INFORMATION_SCHEMA_OID: u32 = 13_000;
/// The role that owns every object.
pub const OWNER_OID: u32 = 10;
/// Access methods heap and btree.
pub const HEAP_OID: u32 = 2;
pub const BTREE_OID: u32 = 403;

pub const NAMESPACES: [(u32, &str); 3] =
    [(PG_CATALOG_OID, "pg_catalog"), (PUBLIC_OID, "public"), (INFORMATION_SCHEMA_OID, "information_schema")];

/// The schema of a table.
pub fn namespace(table: &Table) -> (u32, &'static str) {
    if table.temp { (TEMP_OID, TEMP_NAMESPACE) } else { (PUBLIC_OID, "public") }
}

/// The stable id of a table by its OID.
pub fn stable_id(oid: u32) -> u32 {
    oid.saturating_sub(16_384)
}

fn number(table: &Table) -> u32 {
    table.oid.saturating_sub(16_384) & 0x00ff_ffff
}

pub fn rowid_key(table: &Table) -> u32 {
    1_000_000_000 + number(table)
}

pub fn sequence(table: &Table) -> u32 {
    1_100_000_000 + number(table)
}

pub fn index_constraint(index_oid: u32) -> u32 {
    1_200_000_000u32.wrapping_add(index_oid & 0x3fff_ffff)
}

pub fn default(table: &Table, attnum: usize) -> u32 {
    2_600_000_000u32.wrapping_add((number(table) % 190_000) * 2048 + attnum as u32)
}

pub fn foreign_key(table: &Table, i: usize) -> u32 {
    3_000_000_000u32.wrapping_add((number(table) % 7_000_000) * 64 + i as u32)
}

pub fn subscription(number: u32) -> u32 {
    3_448_000_000 + number % 2_000_000
}

pub fn publication(number: u32) -> u32 {
    3_450_000_000 + number % 10_000_000
}

pub fn published_table(place: usize) -> u32 {
    3_460_000_000 + (place % 40_000_000) as u32
}

pub fn check(table: &Table, i: usize) -> u32 {
    3_500_000_000u32.wrapping_add((number(table) % 7_000_000) * 64 + i as u32)
}

pub fn row_type(table: &Table) -> u32 {
    4_000_000_000u32.wrapping_add(number(table))
}
