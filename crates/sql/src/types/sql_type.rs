//! [`Type`]: an OID with its modifier, and its properties in PostgreSQL's rules.

use super::names::format_type;
use holdfast_types::desc::{element_of, oid};

/// OIDs that are not in `holdfast_types::desc::oid` because only the catalogue shows them.
pub mod more {
    pub const INT2VECTOR: u32 = 22;
    pub const OIDVECTOR: u32 = 30;
    pub const XID: u32 = 28;
    pub const PG_NODE_TREE: u32 = 194;
    pub const CHAR_ARRAY: u32 = 1002;
    pub const NAME_ARRAY: u32 = 1003;
    pub const INT2_ARRAY: u32 = 1005;
    pub const INT4_ARRAY: u32 = 1007;
    pub const OID_ARRAY: u32 = 1028;
    pub const TEXT_ARRAY: u32 = 1009;
    pub const ACLITEM: u32 = 1033;
    pub const ACLITEM_ARRAY: u32 = 1034;
    pub const REGTYPE: u32 = 2206;
    pub const REGNAMESPACE: u32 = 4089;
    pub const REGROLE: u32 = 4096;
    pub const REGPROCEDURE: u32 = 2202;
}

/// A type with its modifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Type {
    pub oid: u32,
    /// PostgreSQL's: -1 none; varchar(n), char(n): n + 4; numeric(p,s): (p << 16 | s) + 4.
    pub typmod: i32,
}

impl Type {
    pub const fn new(oid: u32) -> Type {
        Type { oid, typmod: -1 }
    }
    pub const UNKNOWN: Type = Type::new(oid::UNKNOWN);
    pub const BOOL: Type = Type::new(oid::BOOL);
    pub const INT4: Type = Type::new(oid::INT4);
    pub const INT8: Type = Type::new(oid::INT8);
    pub const FLOAT8: Type = Type::new(oid::FLOAT8);
    pub const NUMERIC: Type = Type::new(oid::NUMERIC);
    pub const TEXT: Type = Type::new(oid::TEXT);
    pub const NAME: Type = Type::new(oid::NAME);
    pub const OID: Type = Type::new(oid::OID);

    /// The categories in which PostgreSQL looks for common types and operators (`pg_type.typcategory`).
    pub fn category(self) -> Category {
        use Category::*;
        match self.oid {
            oid::BOOL => Boolean,
            oid::INT2 | oid::INT4 | oid::INT8 | oid::FLOAT4 | oid::FLOAT8 | oid::NUMERIC | oid::OID => Number,
            oid::REGCLASS | oid::REGPROC | more::REGTYPE | more::REGNAMESPACE | more::REGROLE | more::REGPROCEDURE => {
                Number
            }
            oid::TEXT | oid::VARCHAR | oid::BPCHAR | oid::NAME | oid::CHAR | oid::UNKNOWN => String,
            oid::DATE | oid::TIME | oid::TIMETZ | oid::TIMESTAMP | oid::TIMESTAMPTZ => DateTime,
            oid::INTERVAL => Timespan,
            o if element_of(o).is_some() => Array,
            _ => Other,
        }
    }

    /// Preference among numbers: the higher rank wins in a mixed operation.
    pub fn number_rank(self) -> u8 {
        match self.oid {
            oid::INT2 => 1,
            oid::INT4 => 2,
            oid::INT8 | oid::OID => 3,
            oid::NUMERIC => 4,
            oid::FLOAT4 => 5,
            oid::FLOAT8 => 6,
            _ => 3,
        }
    }

    pub fn is_integer(self) -> bool {
        matches!(self.oid, oid::INT2 | oid::INT4 | oid::INT8)
    }

    pub fn is_float(self) -> bool {
        matches!(self.oid, oid::FLOAT4 | oid::FLOAT8)
    }

    /// `oid` itself and the aliases of it that print as names.
    pub fn is_oid(self) -> bool {
        matches!(
            self.oid,
            oid::OID
                | oid::REGCLASS
                | oid::REGPROC
                | more::REGTYPE
                | more::REGNAMESPACE
                | more::REGROLE
                | more::REGPROCEDURE
        )
    }

    pub fn is_string(self) -> bool {
        self.category() == Category::String
    }

    /// Whether SQLite would sort its stored form in another order than PostgreSQL.
    pub fn has_sort_form(self) -> bool {
        matches!(self.oid, oid::NUMERIC | oid::INET | oid::PG_LSN | oid::INTERVAL | oid::JSONB)
            || element_of(self.oid).is_some()
    }

    /// Whether equal values can have different stored forms, so that only keys of them may be compared.
    pub fn has_unequal_forms(self) -> bool {
        match self.oid {
            oid::INTERVAL | oid::JSONB => true,
            oid::NUMERIC => !self.equals_as_stored(),
            array => element_of(array).is_some() && !self.equals_as_stored(),
        }
    }

    /// Whether two values are equal exactly if their stored forms are. A numeric needs a scale for it.
    pub fn equals_as_stored(self) -> bool {
        match element_of(self.oid).unwrap_or(self.oid) {
            oid::NUMERIC => numeric_modifier(self.typmod).is_some(),
            oid::FLOAT4 | oid::FLOAT8 | oid::BPCHAR => element_of(self.oid).is_none(),
            oid::JSON | oid::JSONB | oid::INTERVAL | oid::TIMETZ => false,
            _ => true,
        }
    }

    /// The name that PostgreSQL prints in messages: `character varying(20)`.
    pub fn name(self) -> String {
        format_type(self.oid, self.typmod)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Category {
    Boolean,
    Number,
    String,
    DateTime,
    Timespan,
    Array,
    Other,
}

/// Total number of digits and digits after the point of a numeric modifier.
pub fn numeric_modifier(typmod: i32) -> Option<(u32, u32)> {
    (typmod >= 4).then(|| (((typmod - 4) >> 16) as u32, ((typmod - 4) & 0x7ff) as u32))
}
