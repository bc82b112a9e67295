//! Type names in both directions: SQL text to OID, OID to the name PostgreSQL prints.

use super::sql_type::{Type, more, numeric_modifier};
use holdfast_types::desc::{array_of, element_of, is_vector, oid};
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, ObjectName, TimezoneInfo};

/// One row of `pg_type`, with the columns that clients read.
#[derive(Clone, Copy, Debug)]
pub struct PgType {
    pub oid: u32,
    /// `typname`: `int4`.
    pub name: &'static str,
    /// What `format_type` prints: `integer`.
    pub display: &'static str,
    pub len: i16,
    pub by_value: bool,
    pub category: char,
    /// OID of its array type, or 0.
    pub array: u32,
}

const fn t(
    oid: u32,
    name: &'static str,
    display: &'static str,
    len: i16,
    by_value: bool,
    category: char,
    array: u32,
) -> PgType {
    PgType { oid, name, display, len, by_value, category, array }
}

/// The types that Holdfast knows, by OID (PostgreSQL 15, `pg_type.dat`).
pub const PG_TYPES: &[PgType] = &[
    t(oid::BOOL, "bool", "boolean", 1, true, 'B', 1000),
    t(oid::BYTEA, "bytea", "bytea", -1, false, 'U', 1001),
    t(oid::CHAR, "char", "\"char\"", 1, true, 'Z', 1002),
    t(oid::NAME, "name", "name", 64, false, 'S', 1003),
    t(oid::INT8, "int8", "bigint", 8, true, 'N', 1016),
    t(oid::INT2, "int2", "smallint", 2, true, 'N', 1005),
    t(more::INT2VECTOR, "int2vector", "int2vector", -1, false, 'A', 1006),
    t(oid::INT4, "int4", "integer", 4, true, 'N', 1007),
    t(oid::REGPROC, "regproc", "regproc", 4, true, 'N', 1008),
    t(oid::TEXT, "text", "text", -1, false, 'S', 1009),
    t(oid::OID, "oid", "oid", 4, true, 'N', 1028),
    t(more::XID, "xid", "xid", 4, true, 'U', 1011),
    t(more::OIDVECTOR, "oidvector", "oidvector", -1, false, 'A', 1013),
    t(oid::JSON, "json", "json", -1, false, 'U', 199),
    t(more::PG_NODE_TREE, "pg_node_tree", "pg_node_tree", -1, false, 'Z', 0),
    t(oid::FLOAT4, "float4", "real", 4, true, 'N', 1021),
    t(oid::FLOAT8, "float8", "double precision", 8, true, 'N', 1022),
    t(oid::UNKNOWN, "unknown", "unknown", -2, false, 'X', 0),
    t(more::ACLITEM, "aclitem", "aclitem", 12, false, 'U', more::ACLITEM_ARRAY),
    t(oid::BPCHAR, "bpchar", "character", -1, false, 'S', 1014),
    t(oid::VARCHAR, "varchar", "character varying", -1, false, 'S', 1015),
    t(oid::DATE, "date", "date", 4, true, 'D', 1182),
    t(oid::TIME, "time", "time without time zone", 8, true, 'D', 1183),
    t(oid::TIMESTAMP, "timestamp", "timestamp without time zone", 8, true, 'D', 1115),
    t(oid::TIMESTAMPTZ, "timestamptz", "timestamp with time zone", 8, true, 'D', 1185),
    t(oid::INTERVAL, "interval", "interval", 16, false, 'T', 1187),
    t(oid::TIMETZ, "timetz", "time with time zone", 12, false, 'D', 1270),
    t(oid::NUMERIC, "numeric", "numeric", -1, false, 'N', 1231),
    t(oid::REGCLASS, "regclass", "regclass", 4, true, 'N', 2210),
    t(more::REGPROCEDURE, "regprocedure", "regprocedure", 4, true, 'N', 2207),
    t(more::REGTYPE, "regtype", "regtype", 4, true, 'N', 2211),
    t(more::REGNAMESPACE, "regnamespace", "regnamespace", 4, true, 'N', 4090),
    t(more::REGROLE, "regrole", "regrole", 4, true, 'N', 4097),
    t(oid::INET, "inet", "inet", -1, false, 'I', 1041),
    t(oid::VOID, "void", "void", 4, true, 'P', 0),
    t(oid::UUID, "uuid", "uuid", 16, false, 'U', 2951),
    t(oid::PG_LSN, "pg_lsn", "pg_lsn", 8, true, 'U', 3221),
    t(oid::JSONB, "jsonb", "jsonb", -1, false, 'U', 3807),
];

pub fn by_oid(type_oid: u32) -> Option<&'static PgType> {
    PG_TYPES.iter().find(|t| t.oid == type_oid)
}

/// Finds a type by a name that SQL text uses: `int4`, `integer`, `character varying`, `int4[]`, `_int4`.
pub fn by_name(name: &str) -> Option<u32> {
    let name = name.trim().to_ascii_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    if let Some(element) = name.strip_suffix("[]").or_else(|| name.strip_prefix('_')) {
        let element = by_name(element)?;
        // More pairs of brackets mean the same type.
        return if element_of(element).is_some() { Some(element) } else { array_of(element) };
    }
    let unquoted = name.trim_matches('"');
    Some(match unquoted {
        "char" if !name.starts_with('"') => oid::BPCHAR,
        "int" | "integer" | "serial" | "serial4" => oid::INT4,
        "bigint" | "bigserial" | "serial8" => oid::INT8,
        "smallint" | "smallserial" | "serial2" => oid::INT2,
        "decimal" | "dec" => oid::NUMERIC,
        "float" | "double" => oid::FLOAT8,
        other => PG_TYPES.iter().find(|t| t.name == other || t.display == other)?.oid,
    })
}

/// PostgreSQL's `format_type(oid, NULL)`: the name without a modifier, such as `character`.
pub fn type_name(type_oid: u32) -> String {
    by_oid(type_oid).map_or_else(|| format_type(type_oid, -1), |t| t.display.to_owned())
}

/// PostgreSQL's `format_type(oid, typmod)`.
pub fn format_type(type_oid: u32, typmod: i32) -> String {
    if let Some(element) = element_of(type_oid).filter(|_| !is_vector(type_oid)) {
        return format!("{}[]", if typmod == -1 { type_name(element) } else { format_type(element, typmod) });
    }
    let Some(t) = by_oid(type_oid) else {
        return if type_oid == 0 { "-".into() } else { "???".into() };
    };
    match type_oid {
        oid::BPCHAR if typmod < 4 => "bpchar".into(),
        oid::BPCHAR | oid::VARCHAR if typmod >= 4 => format!("{}({})", t.display, typmod - 4),
        oid::NUMERIC => match numeric_modifier(typmod) {
            Some((p, s)) => format!("numeric({p},{s})"),
            None => "numeric".into(),
        },
        oid::TIME | oid::TIMESTAMP | oid::TIMESTAMPTZ if typmod >= 0 => {
            let (word, rest) = t.display.split_once(' ').unwrap_or((t.display, ""));
            format!("{word}({typmod}) {rest}")
        }
        _ => t.display.into(),
    }
}

fn with_length(type_oid: u32, length: &Option<CharacterLength>, default: i32) -> SqlResult<Type> {
    let typmod = match length {
        None => default,
        Some(CharacterLength::IntegerLength { length, .. }) => match i32::try_from(*length) {
            Ok(n) if (1..=10_485_760).contains(&n) => n + 4,
            _ => {
                return Err(SqlError::new(
                    SqlState::INVALID_PARAMETER_VALUE,
                    format!("length for type {} must be between 1 and 10485760", format_type(type_oid, -1)),
                ));
            }
        },
        Some(CharacterLength::Max) => return Err(SqlError::unsupported("a length of MAX")),
    };
    Ok(Type { oid: type_oid, typmod })
}

fn numeric(info: &ExactNumberInfo) -> SqlResult<Type> {
    let (p, s) = match *info {
        ExactNumberInfo::None => return Ok(Type::NUMERIC),
        ExactNumberInfo::Precision(p) => (p, 0),
        ExactNumberInfo::PrecisionAndScale(p, s) => (p, s),
    };
    if !(1..=1000).contains(&p) {
        let message = format!("NUMERIC precision {p} must be between 1 and 1000");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
    }
    if s < 0 || s as u64 > p {
        return Err(SqlError::unsupported(format!("numeric({p},{s}), whose scale is below 0 or above the precision,")));
    }
    Ok(Type { oid: oid::NUMERIC, typmod: (((p as i32) << 16) | s as i32) + 4 })
}

fn fraction(type_oid: u32, precision: Option<u64>) -> SqlResult<Type> {
    match precision {
        None => Ok(Type::new(type_oid)),
        Some(p) => Ok(Type { oid: type_oid, typmod: p.min(6) as i32 }),
    }
}

/// The type that a parsed data type means in PostgreSQL.
pub fn from_ast(data_type: &DataType) -> SqlResult<Type> {
    use DataType as D;
    Ok(match data_type {
        D::Bool | D::Boolean => Type::BOOL,
        D::SmallInt(None) | D::Int2(None) => Type::new(oid::INT2),
        D::Int(None) | D::Integer(None) | D::Int4(None) => Type::INT4,
        D::BigInt(None) | D::Int8(None) => Type::INT8,
        D::Real | D::Float4 => Type::new(oid::FLOAT4),
        D::Float(ExactNumberInfo::Precision(p)) if *p <= 24 => Type::new(oid::FLOAT4),
        D::Float(_) | D::Float8 | D::DoublePrecision | D::Double(ExactNumberInfo::None) => Type::FLOAT8,
        D::Numeric(i) | D::Decimal(i) | D::Dec(i) => numeric(i)?,
        D::Text => Type::TEXT,
        D::Varchar(l) | D::CharacterVarying(l) | D::CharVarying(l) => with_length(oid::VARCHAR, l, -1)?,
        D::Char(l) | D::Character(l) => with_length(oid::BPCHAR, l, 5)?,
        D::Bytea => Type::new(oid::BYTEA),
        D::Date => Type::new(oid::DATE),
        D::Time(p, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => fraction(oid::TIME, *p)?,
        D::Timestamp(p, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => fraction(oid::TIMESTAMP, *p)?,
        D::Timestamp(p, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => fraction(oid::TIMESTAMPTZ, *p)?,
        D::Time(..) => Type::new(oid::TIMETZ),
        D::Interval { fields: None, precision: None } => Type::new(oid::INTERVAL),
        D::Interval { .. } => return Err(SqlError::unsupported("the type interval with fields or a precision")),
        D::JSON => Type::new(oid::JSON),
        D::JSONB => Type::new(oid::JSONB),
        D::Uuid => Type::new(oid::UUID),
        D::Regclass => Type::new(oid::REGCLASS),
        D::Array(ArrayElemTypeDef::SquareBracket(element, _)) => {
            let element = from_ast(element)?;
            // More pairs of brackets mean the same type.
            let array = if element_of(element.oid).is_some() { Some(element.oid) } else { array_of(element.oid) };
            match array {
                Some(array) => Type { oid: array, typmod: element.typmod },
                None => return Err(SqlError::unsupported(format!("the type {data_type}"))),
            }
        }
        D::Custom(name, modifiers) => return custom(name, modifiers, data_type),
        other => match by_name(&other.to_string()) {
            Some(type_oid) => Type::new(type_oid),
            None => return Err(unknown_type(other)),
        },
    })
}

fn custom(name: &ObjectName, modifiers: &[String], whole: &DataType) -> SqlResult<Type> {
    let last = name.0.last().and_then(|p| p.as_ident());
    let Some(last) = last else { return Err(unknown_type(whole)) };
    let text = if last.quote_style.is_some() { format!("\"{}\"", last.value) } else { last.value.clone() };
    let Some(type_oid) = by_name(&text) else { return Err(unknown_type(whole)) };
    let lengths: Vec<u64> = modifiers.iter().filter_map(|m| m.trim().parse().ok()).collect();
    match (type_oid, lengths.as_slice()) {
        (_, []) => Ok(Type::new(type_oid)),
        (oid::BPCHAR | oid::VARCHAR, [n]) => {
            with_length(type_oid, &Some(CharacterLength::IntegerLength { length: *n, unit: None }), -1)
        }
        (oid::NUMERIC, [p]) => numeric(&ExactNumberInfo::Precision(*p)),
        (oid::NUMERIC, [p, s]) => numeric(&ExactNumberInfo::PrecisionAndScale(*p, *s as i64)),
        (oid::TIME | oid::TIMESTAMP | oid::TIMESTAMPTZ, [p]) => fraction(type_oid, Some(*p)),
        _ => Err(unknown_type(whole)),
    }
}

fn unknown_type(name: &DataType) -> SqlError {
    let name = name.to_string().to_ascii_lowercase();
    const KNOWN_ELSEWHERE: &[&str] = &["money", "cidr", "macaddr", "xml", "bit", "point", "hstore", "tsvector"];
    if KNOWN_ELSEWHERE.iter().any(|k| name.starts_with(k)) {
        return SqlError::unsupported(format!("the type {name}"));
    }
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type \"{name}\" does not exist"))
}
