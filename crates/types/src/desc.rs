//! Descriptions of statements: their parameters and result columns with PostgreSQL type OIDs.

/// Type OIDs of PostgreSQL's built-in types (catalogue `pg_type`, stable across versions).
pub mod oid {
    pub const BOOL: u32 = 16;
    pub const BYTEA: u32 = 17;
    pub const CHAR: u32 = 18;
    pub const NAME: u32 = 19;
    pub const INT8: u32 = 20;
    pub const INT2: u32 = 21;
    pub const INT4: u32 = 23;
    pub const REGPROC: u32 = 24;
    pub const TEXT: u32 = 25;
    pub const OID: u32 = 26;
    pub const JSON: u32 = 114;
    pub const FLOAT4: u32 = 700;
    pub const FLOAT8: u32 = 701;
    pub const UNKNOWN: u32 = 705;
    pub const INET: u32 = 869;
    pub const BPCHAR: u32 = 1042;
    pub const VARCHAR: u32 = 1043;
    pub const DATE: u32 = 1082;
    pub const TIME: u32 = 1083;
    pub const TIMESTAMP: u32 = 1114;
    pub const TIMESTAMPTZ: u32 = 1184;
    pub const INTERVAL: u32 = 1186;
    pub const TIMETZ: u32 = 1266;
    pub const NUMERIC: u32 = 1700;
    pub const VOID: u32 = 2278;
    pub const REGCLASS: u32 = 2205;
    pub const UUID: u32 = 2950;
    pub const PG_LSN: u32 = 3220;
    pub const JSONB: u32 = 3802;
}

/// The array types: (array type, element type). int2vector and oidvector are not among them: they print differently.
pub const ARRAY_OF: &[(u32, u32)] = &[
    (1000, oid::BOOL),
    (1001, oid::BYTEA),
    (1002, oid::CHAR),
    (1003, oid::NAME),
    (1005, oid::INT2),
    (1007, oid::INT4),
    (1008, oid::REGPROC),
    (1009, oid::TEXT),
    (1011, 28),
    (1014, oid::BPCHAR),
    (1015, oid::VARCHAR),
    (1016, oid::INT8),
    (1021, oid::FLOAT4),
    (1022, oid::FLOAT8),
    (1028, oid::OID),
    (1034, 1033),
    (1041, oid::INET),
    (1115, oid::TIMESTAMP),
    (1182, oid::DATE),
    (1183, oid::TIME),
    (1185, oid::TIMESTAMPTZ),
    (1187, oid::INTERVAL),
    (1231, oid::NUMERIC),
    (1270, oid::TIMETZ),
    (199, oid::JSON),
    (2207, 2202),
    (2210, oid::REGCLASS),
    (2211, 2206),
    (2951, oid::UUID),
    (3221, oid::PG_LSN),
    (3807, oid::JSONB),
    (4090, 4089),
    (4097, 4096),
];

/// int2vector and oidvector, with their element types: arrays whose subscripts begin at 0, written as numbers between blanks.
pub const VECTOR_OF: &[(u32, u32)] = &[(22, oid::INT2), (30, oid::OID)];

/// The type of an array's elements; `None` for a type that is not an array.
pub fn element_of(array: u32) -> Option<u32> {
    ARRAY_OF.iter().chain(VECTOR_OF).find(|(a, _)| *a == array).map(|(_, e)| *e)
}

/// The type of arrays of this element; `None` where there is none.
pub fn array_of(element: u32) -> Option<u32> {
    ARRAY_OF.iter().find(|(_, e)| *e == element).map(|(a, _)| *a)
}

/// True for int2vector and oidvector.
pub fn is_vector(array: u32) -> bool {
    VECTOR_OF.iter().any(|(a, _)| *a == array)
}

/// One result column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnDesc {
    pub name: String,
    /// PostgreSQL type OID, see [`oid`].
    pub type_oid: u32,
    /// PostgreSQL type modifier: -1 for none; n + 4 for varchar(n) and char(n).
    pub typmod: i32,
    /// OID of the table the column comes from; 0 for an expression.
    pub table_oid: u32,
    /// Attribute number in that table, from 1; 0 for an expression.
    pub attnum: i16,
}

impl ColumnDesc {
    /// Describes the column of an expression.
    pub fn new(name: impl Into<String>, type_oid: u32) -> ColumnDesc {
        ColumnDesc { name: name.into(), type_oid, typmod: -1, table_oid: 0, attnum: 0 }
    }
}

/// The description of a prepared statement for its clients.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatementDesc {
    /// Type OIDs of `$1`, `$2` ...
    pub params: Vec<u32>,
    /// Result columns; empty for a statement that returns no rows.
    pub columns: Vec<ColumnDesc>,
    /// It returns rows although they have no columns, such as `SELECT FROM t`.
    pub empty_rows: bool,
}

impl StatementDesc {
    /// Whether the statement returns rows, even rows without columns.
    pub fn returns_rows(&self) -> bool {
        self.empty_rows || !self.columns.is_empty()
    }
}
