//! A stored condition as `pg_get_expr` prints one: every operation in parentheses, texts with their types.
//!
//! Failure: an expression that the printer does not know is shown as it is stored.

use super::shapes;
use crate::names::fold;
use crate::parse;
use crate::types::Type;
use holdfast_types::desc::oid;
use holdfast_types::quoting::quote_ident;
use holdfast_types::schema::{Dialect, Table};
use sqlparser::ast::{BinaryOperator as Op, Expr, SelectItem, SetExpr, Statement, UnaryOperator, Value};

/// The condition as PostgreSQL would print it.
pub fn shown(filter: &str, table: &Table, dialect: Dialect) -> String {
    let printer = Printer { table, dialect };
    let printed = parsed(filter).and_then(|e| printer.expr(&e, None));
    printed.unwrap_or_else(|| shapes::readable(filter))
}

fn parsed(filter: &str) -> Option<Expr> {
    let Statement::Query(query) = parse::parse(&format!("SELECT {filter}")).ok()? else { return None };
    let SetExpr::Select(select) = *query.body else { return None };
    match select.projection.into_iter().next()? {
        SelectItem::UnnamedExpr(e) => Some(e),
        _ => None,
    }
}

struct Printer<'t> {
    table: &'t Table,
    dialect: Dialect,
}

impl Printer<'_> {
    /// `other`: the type of what it is compared with.
    fn expr(&self, e: &Expr, other: Option<Type>) -> Option<String> {
        Some(match e {
            Expr::Nested(inner) => self.expr(inner, other)?,
            Expr::Identifier(ident) => {
                self.type_of(e)?;
                quote_ident(&fold(ident))
            }
            Expr::Value(value) => match &value.value {
                Value::Number(number, _) if self.is_boolean(other) => {
                    if number == "0" {
                        "false".into()
                    } else {
                        "true".into()
                    }
                }
                Value::Number(number, _) => number.clone(),
                Value::Null => "NULL".into(),
                Value::SingleQuotedString(text) => {
                    let ty = other.map_or("text".to_owned(), |ty| Type::new(ty.oid).name());
                    format!("'{}'::{ty}", text.replace('\'', "''"))
                }
                _ => return None,
            },
            Expr::BinaryOp { op: op @ (Op::And | Op::Or), .. } => {
                let mut parts = Vec::new();
                self.chain(e, op, &mut parts)?;
                format!("({})", parts.join(&format!(" {} ", sign(op)?)))
            }
            Expr::BinaryOp { left, op, right } => {
                let sign = sign(op)?;
                let (of_left, of_right) = (self.type_of(left), self.type_of(right));
                format!("({} {sign} {})", self.operand(left, of_right)?, self.operand(right, of_left)?)
            }
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => format!("(NOT {})", self.expr(expr, None)?),
            Expr::IsNull(inner) => format!("({} IS NULL)", self.expr(inner, None)?),
            Expr::IsNotNull(inner) => format!("({} IS NOT NULL)", self.expr(inner, None)?),
            Expr::InList { expr, list, negated } => {
                let ty = self.type_of(expr);
                let items = list.iter().map(|item| self.expr(item, ty)).collect::<Option<Vec<_>>>()?;
                let (sign, word) = if *negated { ("<>", "ALL") } else { ("=", "ANY") };
                format!("({} {sign} {word} (ARRAY[{}]))", self.expr(expr, None)?, items.join(", "))
            }
            Expr::Between { expr, negated: false, low, high } => {
                let (ty, value) = (self.type_of(expr), self.expr(expr, None)?);
                format!("(({value} >= {}) AND ({value} <= {}))", self.expr(low, ty)?, self.expr(high, ty)?)
            }
            _ => return None,
        })
    }

    /// The parts of `a AND b AND c`, which PostgreSQL takes as one operation.
    fn chain(&self, e: &Expr, of: &Op, parts: &mut Vec<String>) -> Option<()> {
        match e {
            Expr::Nested(inner) => self.chain(inner, of, parts),
            Expr::BinaryOp { left, op, right } if op == of => {
                self.chain(left, of, parts)?;
                parts.push(self.expr(right, None)?);
                Some(())
            }
            other => {
                parts.push(self.expr(other, None)?);
                Some(())
            }
        }
    }

    /// An operand, whose type PostgreSQL has an operator for: a varchar is compared as text.
    fn operand(&self, e: &Expr, other: Option<Type>) -> Option<String> {
        let is_varchar = |ty: Option<Type>| ty.is_some_and(|ty| ty.oid == oid::VARCHAR);
        let text = self.expr(e, if is_varchar(other) { Some(Type::TEXT) } else { other })?;
        Some(if is_varchar(self.type_of(e)) { format!("({text})::text") } else { text })
    }

    fn is_boolean(&self, ty: Option<Type>) -> bool {
        ty.is_some_and(|ty| ty.oid == Type::BOOL.oid)
    }

    /// The type of a column.
    fn type_of(&self, e: &Expr) -> Option<Type> {
        match e {
            Expr::Nested(inner) => self.type_of(inner),
            Expr::Identifier(ident) => {
                let name = fold(ident);
                let at = self.table.columns.iter().position(|c| c.name == name)?;
                Some(shapes::column_type(self.table, at, self.dialect))
            }
            _ => None,
        }
    }
}

fn sign(op: &Op) -> Option<&'static str> {
    Some(match op {
        Op::And => "AND",
        Op::Or => "OR",
        Op::Eq => "=",
        Op::NotEq => "<>",
        Op::Lt => "<",
        Op::LtEq => "<=",
        Op::Gt => ">",
        Op::GtEq => ">=",
        Op::Plus => "+",
        Op::Minus => "-",
        Op::Multiply => "*",
        _ => return None,
    })
}
