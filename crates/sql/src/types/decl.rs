//! A column's type in the stored CREATE TABLE, in both directions.
//!
//! The declaration must have the SQLite affinity that leaves the value unchanged, and stock sqlite3 must be able to
//! read it. SQLite derives the affinity from the name: INT means INTEGER; CHAR, CLOB or TEXT mean TEXT; REAL, FLOA or
//! DOUB mean REAL.
//!
//! | PostgreSQL | declared as | affinity |
//! |---|---|---|
//! | smallint, integer, bigint | `smallint`, `integer`, `bigint` | INTEGER |
//! | a rowid alias | `INTEGER /*integer*/ PRIMARY KEY`, the comment naming the type, or serial, bigserial | INTEGER |
//! | real, double precision | `real`, `double precision` | REAL |
//! | numeric(p,s), json, jsonb, uuid, interval | `numeric_text(p,s)`, `json_text` ... | TEXT |
//! | text, varchar(n), char(n) | `text`, `varchar(n)`, `char(n)` | TEXT |
//! | arrays | `integer[]`, `varchar[](20)`, `numeric[](p,s)` | any, which does not change them |
//! | boolean, bytea, date, time, timestamp, timestamptz | the same names | NUMERIC, which does not change them |

use super::names::{by_name, by_oid};
use super::sql_type::{Type, numeric_modifier};
use holdfast_types::desc::{element_of, is_vector, oid};
use holdfast_types::schema::{Column, Dialect, Table, TableKind};
use holdfast_types::{SqlError, SqlResult};

/// The declaration of a column of type `ty`, or 0A000 where there is none.
pub fn declare(ty: Type) -> SqlResult<String> {
    let length = |name: &str| match ty.typmod {
        n if n >= 4 => format!("{name}({})", n - 4),
        _ => name.to_owned(),
    };
    let fraction = |name: &str| match ty.typmod {
        p if p >= 0 => format!("{name}({p})"),
        _ => name.to_owned(),
    };
    Ok(match ty.oid {
        oid::BOOL => "boolean".into(),
        oid::INT2 => "smallint".into(),
        oid::INT4 => "integer".into(),
        oid::INT8 => "bigint".into(),
        oid::FLOAT4 => "real".into(),
        oid::FLOAT8 => "double precision".into(),
        oid::NUMERIC => match numeric_modifier(ty.typmod) {
            Some((p, s)) => format!("numeric_text({p},{s})"),
            None => "numeric_text".into(),
        },
        oid::TEXT => "text".into(),
        oid::VARCHAR => length("varchar"),
        oid::BPCHAR => length("char"),
        oid::BYTEA => "bytea".into(),
        oid::DATE => "date".into(),
        oid::TIME => fraction("time"),
        oid::TIMESTAMP => fraction("timestamp"),
        oid::TIMESTAMPTZ => fraction("timestamptz"),
        oid::INTERVAL => "interval_text".into(),
        oid::JSON => "json_text".into(),
        oid::JSONB => "jsonb_text".into(),
        oid::UUID => "uuid_text".into(),
        _ => match element_of(ty.oid).filter(|e| !is_vector(ty.oid) && !matches!(*e, oid::CHAR | oid::UNKNOWN)) {
            Some(element) => array(ty, element)?,
            None => return Err(SqlError::unsupported(format!("a column of type {}", ty.name()))),
        },
    })
}

/// The declaration of an array column: `integer[]`, `varchar[](20)`. Brackets are a name in SQLite's SQL. An array's text begins
/// with a brace or a bracket, so no affinity changes it.
fn array(ty: Type, element: u32) -> SqlResult<String> {
    declare(Type { oid: element, typmod: ty.typmod })
        .map_err(|_| SqlError::unsupported(format!("a column of type {}", ty.name())))?;
    let name = match by_oid(element) {
        Some(t) if t.display.contains([' ', '"']) || matches!(element, oid::VARCHAR | oid::BPCHAR) => t.name,
        Some(t) => t.display,
        None => return Err(SqlError::unsupported(format!("a column of type {}", ty.name()))),
    };
    let modifier = match element {
        _ if ty.typmod == -1 => String::new(),
        oid::VARCHAR | oid::BPCHAR => format!("({})", ty.typmod - 4),
        oid::NUMERIC => numeric_modifier(ty.typmod).map(|(p, s)| format!("({p},{s})")).unwrap_or_default(),
        _ => format!("({})", ty.typmod),
    };
    Ok(format!("{name}[]{modifier}"))
}

/// The type that a declaration means. In a database of SQLite's dialect a declaration guarantees nothing about the
/// values, so only names are trusted for which the values print the same in either case.
pub fn of_decl(decl: &str, dialect: Dialect) -> Type {
    let lower = decl.trim().to_ascii_lowercase();
    let (name, args) = match lower.split_once('(') {
        Some((name, rest)) => (name.trim_end(), rest.trim_end_matches(')')),
        None => (lower.as_str(), ""),
    };
    let args: Vec<i32> = args.split(',').filter_map(|a| a.trim().parse().ok()).collect();
    match dialect {
        Dialect::Postgres => of_postgres(name, &args).unwrap_or_else(|| of_affinity(name)),
        Dialect::Sqlite => of_affinity(name),
    }
}

fn of_postgres(name: &str, args: &[i32]) -> Option<Type> {
    let type_oid = by_name(name.strip_suffix("_text").unwrap_or(name))?;
    let typmod = match (element_of(type_oid).unwrap_or(type_oid), args) {
        (oid::VARCHAR | oid::BPCHAR, [n]) => n + 4,
        (oid::NUMERIC, [p, s]) => ((p << 16) | s) + 4,
        (oid::TIME | oid::TIMESTAMP | oid::TIMESTAMPTZ, [p]) => *p,
        _ => -1,
    };
    Some(Type { oid: type_oid, typmod })
}

/// SQLite's rules of affinity (datatype3.html, section 3.1), and the two names that mean a more specific type.
fn of_affinity(name: &str) -> Type {
    let has = |s: &str| name.contains(s);
    if name == "bool" || name == "boolean" {
        Type::BOOL
    } else if has("int") {
        Type::INT8
    } else if has("char") || has("clob") || has("text") {
        Type::TEXT
    } else if has("blob") {
        Type::new(oid::BYTEA)
    } else if has("real") || has("floa") || has("doub") {
        Type::FLOAT8
    } else if has("numeric") || has("decimal") {
        Type::NUMERIC
    } else {
        Type::TEXT
    }
}

/// The type of a column of a table. For the rowid and for views it is read from a comment.
pub fn of_column(table: &Table, column: &Column, dialect: Dialect) -> Type {
    if dialect == Dialect::Postgres && column.rowid_alias {
        return RowidKind::of(table).ty();
    }
    if table.kind == TableKind::View
        && let Some(types) = view_column_types(table)
        && let Some(i) = table.columns.iter().position(|c| c.name == column.name)
    {
        return types[i];
    }
    of_decl(&column.decl_type, dialect)
}

/// The column types in the comment of a view's definition.
pub fn view_column_types(view: &Table) -> Option<Vec<Type>> {
    let (_, rest) = view.sql.split_once("/*")?;
    let (noted, _) = rest.split_once("*/")?;
    let types: Vec<Type> = noted.split(';').map(|t| of_decl(t.trim(), Dialect::Postgres)).collect();
    (types.len() == view.columns.len()).then_some(types)
}

/// The type that an INTEGER PRIMARY KEY was declared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowidKind {
    Smallint,
    Integer,
    Bigint,
    Smallserial,
    Serial,
    Bigserial,
}

impl RowidKind {
    const ALL: [(RowidKind, &'static str); 6] = [
        (RowidKind::Smallint, "smallint"),
        (RowidKind::Integer, "integer"),
        (RowidKind::Bigint, "bigint"),
        (RowidKind::Smallserial, "smallserial"),
        (RowidKind::Serial, "serial"),
        (RowidKind::Bigserial, "bigserial"),
    ];

    pub fn new(ty: Type, serial: bool) -> RowidKind {
        match (ty.oid, serial) {
            (oid::INT2, false) => RowidKind::Smallint,
            (oid::INT4, false) => RowidKind::Integer,
            (_, false) => RowidKind::Bigint,
            (oid::INT2, true) => RowidKind::Smallserial,
            (oid::INT4, true) => RowidKind::Serial,
            (_, true) => RowidKind::Bigserial,
        }
    }

    fn marker(name: &str) -> String {
        format!("INTEGER /*{name}*/")
    }

    /// The type in the column definition.
    pub fn type_text(self) -> String {
        let name = RowidKind::ALL.iter().find(|(k, _)| *k == self).map_or("bigint", |(_, n)| n);
        RowidKind::marker(name)
    }

    /// The type and key clause of the column definition.
    pub fn declare(self) -> String {
        format!("{} PRIMARY KEY", self.type_text())
    }

    /// Reads it from a table's definition. SQLite's plain INTEGER PRIMARY KEY, in a table that another program created,
    /// is a bigserial.
    pub fn of(table: &Table) -> RowidKind {
        RowidKind::ALL
            .iter()
            .find(|(_, name)| table.sql.contains(&RowidKind::marker(name)))
            .map_or(RowidKind::Bigserial, |(kind, _)| *kind)
    }

    /// Whether a table's definition has a serial column.
    pub fn is_serial_in(definition: &str) -> bool {
        let mut kinds = RowidKind::ALL.iter().filter(|(kind, _)| kind.serial());
        kinds.any(|(_, name)| definition.contains(&RowidKind::marker(name)))
    }

    pub fn serial(self) -> bool {
        matches!(self, RowidKind::Smallserial | RowidKind::Serial | RowidKind::Bigserial)
    }

    pub fn ty(self) -> Type {
        match self {
            RowidKind::Smallint | RowidKind::Smallserial => Type::new(oid::INT2),
            RowidKind::Integer | RowidKind::Serial => Type::INT4,
            RowidKind::Bigint | RowidKind::Bigserial => Type::INT8,
        }
    }
}
