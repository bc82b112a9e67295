//! The result of binding an expression: its SQLite text and its type.

use crate::types::Type;

/// An expression in SQLite's SQL.
#[derive(Clone, Debug)]
pub struct Typed {
    /// Complete in itself: it can be used as an operand without parentheses.
    pub sql: String,
    pub ty: Type,
    pub shape: Shape,
    /// The value is known never to be NULL.
    pub not_null: bool,
}

/// The kind of an expression, as far as binding depends on it.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Expr,
    /// A plain column: OID of its table and attribute number (0 where it comes from a subquery), and whether a
    /// literal compared with it may become a parameter.
    Column {
        table_oid: u32,
        attnum: i16,
        lifts: bool,
    },
    Null,
    /// An untyped string literal, and its number among the literals of the text.
    Text {
        value: String,
        literal: Option<usize>,
    },
    Number {
        text: String,
        literal: Option<usize>,
    },
    /// The client's `$n`, from 0.
    Param(usize),
}

impl Typed {
    pub fn new(sql: impl Into<String>, ty: Type) -> Typed {
        Typed { sql: sql.into(), ty, shape: Shape::Expr, not_null: false }
    }

    /// An expression that is never NULL.
    pub fn sure(sql: impl Into<String>, ty: Type) -> Typed {
        Typed { not_null: true, ..Typed::new(sql, ty) }
    }

    pub(super) fn null() -> Typed {
        Typed { shape: Shape::Null, ..Typed::new("NULL", Type::UNKNOWN) }
    }

    /// True for an expression that takes its type from the surrounding expression.
    pub fn is_open(&self) -> bool {
        matches!(self.shape, Shape::Null | Shape::Text { .. } | Shape::Param(_)) && self.ty == Type::UNKNOWN
    }

    pub(super) fn is_column(&self) -> bool {
        matches!(self.shape, Shape::Column { .. })
    }
}
