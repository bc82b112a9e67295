//! `pg_type`: the types that Holdfast knows, and their array types.

use super::oids::{OWNER_OID, PG_CATALOG_OID};
use super::table::{CatalogTable, boolean, int, text};
use crate::types::{Category, PG_TYPES, PgType, Type, more};
use holdfast_types::Value;
use holdfast_types::desc::{ARRAY_OF, VECTOR_OF, oid};

pub const TABLE: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_type",
    columns: &[
        ("oid", oid::OID),
        ("typname", oid::NAME),
        ("typnamespace", oid::OID),
        ("typowner", oid::OID),
        ("typlen", oid::INT2),
        ("typbyval", oid::BOOL),
        ("typtype", oid::CHAR),
        ("typcategory", oid::CHAR),
        ("typispreferred", oid::BOOL),
        ("typisdefined", oid::BOOL),
        ("typdelim", oid::CHAR),
        ("typrelid", oid::OID),
        ("typsubscript", oid::REGPROC),
        ("typelem", oid::OID),
        ("typarray", oid::OID),
        ("typinput", oid::REGPROC),
        ("typoutput", oid::REGPROC),
        ("typreceive", oid::REGPROC),
        ("typsend", oid::REGPROC),
        ("typmodin", oid::REGPROC),
        ("typmodout", oid::REGPROC),
        ("typanalyze", oid::REGPROC),
        ("typalign", oid::CHAR),
        ("typstorage", oid::CHAR),
        ("typnotnull", oid::BOOL),
        ("typbasetype", oid::OID),
        ("typtypmod", oid::INT4),
        ("typndims", oid::INT4),
        ("typcollation", oid::OID),
        ("typdefaultbin", more::PG_NODE_TREE),
        ("typdefault", oid::TEXT),
        ("typacl", more::ACLITEM_ARRAY),
    ],
    always_empty: false,
    rows: |_| {
        let mut rows: Vec<_> = PG_TYPES.iter().map(|t| row(t, t.name.to_owned(), element(t.oid))).collect();
        for (array, element) in ARRAY_OF {
            let known = PG_TYPES.iter().find(|t| t.oid == *element);
            if let Some(element) = known.filter(|_| !PG_TYPES.iter().any(|t| t.oid == *array)) {
                let name =
                    if *array == more::ACLITEM_ARRAY { "_aclitem".to_owned() } else { format!("_{}", element.name) };
                let shape = PgType { oid: *array, len: -1, by_value: false, category: 'A', array: 0, ..*element };
                rows.push(row(&shape, name, element.oid));
            }
        }
        rows
    },
};

/// `typelem` of a type that is not a plain array: name is a fixed array of "char".
fn element(type_oid: u32) -> u32 {
    let vector = VECTOR_OF.iter().find(|(array, _)| *array == type_oid);
    vector.map_or(if type_oid == oid::NAME { oid::CHAR } else { 0 }, |(_, element)| *element)
}

fn row(t: &PgType, name: String, element: u32) -> Vec<Value> {
    let kind = if t.oid == oid::VOID || t.oid == oid::UNKNOWN { "p" } else { "b" };
    let preferred = matches!(t.oid, oid::BOOL | oid::TEXT | oid::FLOAT8 | oid::TIMESTAMPTZ | oid::INTERVAL | oid::OID);
    let collation = if Type::new(t.oid).category() == Category::String { super::pg_collation::DEFAULT_OID } else { 0 };
    let mut row = vec![int(t.oid), text(name), int(PG_CATALOG_OID), int(OWNER_OID), int(t.len)];
    row.extend([boolean(t.by_value), text(kind), text(t.category.to_string()), boolean(preferred), boolean(true)]);
    row.extend([text(","), int(0), int(0), int(element), int(t.array)]);
    // Holdfast's procedures have no OIDs, so the input and output functions are 0 ("-").
    row.extend(std::iter::repeat_n(int(0), 7));
    row.extend([text("i"), text(if t.len > 0 { "p" } else { "x" }), boolean(false), int(0), int(-1), int(0)]);
    row.extend([int(collation), Value::Null, Value::Null, Value::Null]);
    row
}
