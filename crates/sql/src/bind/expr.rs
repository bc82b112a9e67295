//! Expressions: one match arm for each expression of the parser.

use super::Binder;
use super::scope::Scope;
use super::typed::{Shape, Typed};
use crate::bind::coerce::When;
use crate::names::{fold, quote_text};
use crate::types::{self, Type};
use holdfast_types::desc::oid;
use holdfast_types::{SqlError, SqlResult, SqlState, Value};
use sqlparser::ast::{self, BinaryOperator, CaseWhen, Expr, Ident, Query, ValueWithSpan};

impl<'a> Binder<'a> {
    /// Binds an expression. Its type may stay open until the surrounding expression decides it.
    pub fn expr(&mut self, e: &Expr, scope: &Scope<'_>) -> SqlResult<Typed> {
        match e {
            Expr::Nested(inner) => {
                let typed = self.expr(inner, scope)?;
                let bare = typed.is_open() || !matches!(typed.shape, Shape::Expr);
                Ok(if bare { typed } else { Typed { sql: format!("({})", typed.sql), ..typed } })
            }
            Expr::BinaryOp { left, op, right } => self.binary(left, op, right, scope),
            Expr::UnaryOp { op, expr } => self.unary(*op, expr, scope),
            Expr::Value(value) => self.value(value),
            Expr::Identifier(ident) => self.column(std::slice::from_ref(ident), scope),
            Expr::CompoundIdentifier(parts) => self.column(parts, scope),
            other => self.fixed(|b| b.expr_fixed(other, scope)),
        }
    }

    /// Binds the forms of expression in which no literal becomes a parameter.
    fn expr_fixed(&mut self, e: &Expr, scope: &Scope<'_>) -> SqlResult<Typed> {
        match e {
            Expr::IsNull(x) => self.test(x, "IS NULL", scope),
            Expr::IsNotNull(x) => self.test(x, "IS NOT NULL", scope),
            Expr::IsTrue(x) => self.boolean_test(x, "IS TRUE", scope),
            Expr::IsNotTrue(x) => self.boolean_test(x, "IS NOT TRUE", scope),
            Expr::IsFalse(x) => self.boolean_test(x, "IS FALSE", scope),
            Expr::IsNotFalse(x) => self.boolean_test(x, "IS NOT FALSE", scope),
            Expr::IsUnknown(x) => self.boolean_test(x, "IS NULL", scope),
            Expr::IsNotUnknown(x) => self.boolean_test(x, "IS NOT NULL", scope),
            Expr::IsDistinctFrom(l, r) => self.distinct(l, r, true, scope),
            Expr::IsNotDistinctFrom(l, r) => self.distinct(l, r, false, scope),
            Expr::InList { expr, list, negated } => self.in_list(expr, list, *negated, scope),
            Expr::InSubquery { expr, subquery, negated } => self.in_subquery(expr, subquery, *negated, scope),
            Expr::Between { expr, negated, low, high } => self.between(expr, *negated, low, high, scope),
            Expr::Like { negated, any: false, expr, pattern, escape_char } => {
                self.like(expr, pattern, escape_char.as_deref(), *negated, false, scope)
            }
            Expr::ILike { negated, any: false, expr, pattern, escape_char } => {
                self.like(expr, pattern, escape_char.as_deref(), *negated, true, scope)
            }
            Expr::AnyOp { left, compare_op, right, .. } => self.any(left, compare_op, right, false, scope),
            Expr::AllOp { left, compare_op, right } => self.any(left, compare_op, right, true, scope),
            Expr::Cast { kind: ast::CastKind::Cast | ast::CastKind::DoubleColon, expr, data_type, .. } => {
                let to = types::from_ast(data_type);
                let to = self.at_expr(to, e)?;
                let result = self.cast_to(expr, to, scope);
                self.at_expr(result, e)
            }
            Expr::TypedString(typed) => {
                let to = types::from_ast(&typed.data_type)?;
                let text = typed.value.value.clone().into_string().unwrap_or_default();
                let open = Typed { shape: Shape::Text { value: text, literal: None }, ..Typed::new("", Type::UNKNOWN) };
                let result = self.coerce(open, to, When::Explicit);
                self.at_expr(result, e)
            }
            Expr::Case { operand, conditions, else_result, .. } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), scope)
            }
            Expr::Exists { subquery, negated } => {
                let sub = self.subquery(subquery, scope)?;
                let not = if *negated { "NOT " } else { "" };
                Ok(Typed::sure(format!("({not}EXISTS ({}))", sub.sql), Type::BOOL))
            }
            Expr::Subquery(query) => {
                let sub = self.subquery(query, scope)?;
                let column = sub.only_column()?;
                Ok(Typed::new(format!("({})", sub.sql), column.ty))
            }
            Expr::Tuple(items) if items.len() == 1 => self.expr(&items[0], scope),
            Expr::Function(function) => {
                let result = self.function(function, scope);
                self.at_expr(result, e)
            }
            Expr::Collate { expr, collation } => {
                let name = collation.0.last().and_then(|p| p.as_ident()).map(fold).unwrap_or_default();
                match name.as_str() {
                    "default" | "C" | "POSIX" | "ucs_basic" => self.expr(expr, scope),
                    _ => Err(SqlError::unsupported(format!("the collation {collation}"))),
                }
            }
            other => {
                let result = self.special(other, scope);
                self.at_expr(result, e)
            }
        }
    }

    /// Binds an expression that must have a type of its own.
    pub fn value_expr(&mut self, e: &Expr, scope: &Scope<'_>) -> SqlResult<Typed> {
        let typed = self.expr(e, scope)?;
        self.finish(typed)
    }

    /// Binds an expression and converts it to a type, as an argument of a function.
    pub fn expr_as(&mut self, e: &Expr, ty: Type, scope: &Scope<'_>) -> SqlResult<Typed> {
        let typed = self.expr(e, scope)?;
        self.coerce(typed, ty, When::Implicit)
    }

    /// Binds a condition. 42804 where it is not boolean.
    pub fn condition(&mut self, e: &Expr, clause: &str, scope: &Scope<'_>) -> SqlResult<Typed> {
        let typed = self.expr(e, scope)?;
        if typed.is_open() || typed.ty.oid == oid::BOOL {
            return self.coerce(typed, Type::BOOL, When::Implicit);
        }
        let message = format!("argument of {clause} must be type boolean, not type {}", typed.ty.name());
        self.at_expr(Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message)), e)
    }

    fn value(&mut self, value: &ValueWithSpan) -> SqlResult<Typed> {
        let open =
            |value: String, literal| Typed { shape: Shape::Text { value, literal }, ..Typed::new("", Type::UNKNOWN) };
        match &value.value {
            ast::Value::Number(text, false) => {
                let (ty, read) = match text.parse::<i64>() {
                    Ok(n) if i32::try_from(n).is_ok() => (Type::INT4, Value::Int(n)),
                    Ok(n) => (Type::INT8, Value::Int(n)),
                    Err(_) => (Type::NUMERIC, Value::Text(text.clone())),
                };
                let literal = self.literal(value.span.start, &read);
                let sql = match &read {
                    Value::Int(n) => n.to_string(),
                    _ => quote_text(&types::decimal::Decimal::parse(text)?.to_string()),
                };
                let shape = Shape::Number { text: text.clone(), literal };
                Ok(Typed { shape, ..Typed::sure(sql, ty) })
            }
            ast::Value::SingleQuotedString(text) => {
                let literal = self.literal(value.span.start, &Value::Text(text.clone()));
                Ok(open(text.clone(), literal))
            }
            ast::Value::EscapedStringLiteral(text) | ast::Value::UnicodeStringLiteral(text) => {
                Ok(open(text.clone(), None))
            }
            ast::Value::NationalStringLiteral(text) => Ok(open(text.clone(), None)),
            ast::Value::DollarQuotedString(text) => Ok(open(text.value.clone(), None)),
            ast::Value::Boolean(b) => Ok(Typed::sure(if *b { "1" } else { "0" }, Type::BOOL)),
            ast::Value::Null => Ok(Typed::null()),
            ast::Value::Placeholder(name) => match name.strip_prefix('$').and_then(|n| n.parse().ok()) {
                Some(n) => {
                    let result = self.client_param(n);
                    self.at(result, value.span.start)
                }
                None => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{name}\""))),
            },
            other => Err(SqlError::unsupported(format!("the literal {other}"))),
        }
    }

    fn column(&mut self, parts: &[Ident], scope: &Scope<'_>) -> SqlResult<Typed> {
        let result = self.column_of(parts, scope);
        self.at(result, parts[0].span.start)
    }

    fn column_of(&mut self, parts: &[Ident], scope: &Scope<'_>) -> SqlResult<Typed> {
        match parts {
            [only] => {
                let name = fold(only);
                if let Some(found) = scope.find(&name)? {
                    return Ok(found);
                }
                if only.quote_style.is_none()
                    && let Some(keyword) = self.keyword_value(&name)?
                {
                    return Ok(keyword);
                }
                if let Some(value) = scalar_relation(scope, &name) {
                    return Ok(value);
                }
                Err(SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist")))
            }
            [relation, column] | [_, relation, column] => {
                let (relation, column) = (fold(relation), fold(column));
                match scope.find_in(&relation, &column)? {
                    Some(found) => Ok(found),
                    None => Err(SqlError::new(
                        SqlState::UNDEFINED_TABLE,
                        format!("missing FROM-clause entry for table \"{relation}\""),
                    )),
                }
            }
            _ => Err(SqlError::unsupported("a name of more than three parts")),
        }
    }

    fn test(&mut self, e: &Expr, test: &str, scope: &Scope<'_>) -> SqlResult<Typed> {
        let typed = self.value_expr(e, scope)?;
        Ok(Typed::sure(format!("({} {test})", typed.sql), Type::BOOL))
    }

    fn boolean_test(&mut self, e: &Expr, test: &str, scope: &Scope<'_>) -> SqlResult<Typed> {
        let typed = self.condition(e, test, scope)?;
        Ok(Typed::sure(format!("({} {test})", typed.sql), Type::BOOL))
    }

    fn distinct(&mut self, l: &Expr, r: &Expr, distinct: bool, scope: &Scope<'_>) -> SqlResult<Typed> {
        let (left, right) = (self.expr(l, scope)?, self.expr(r, scope)?);
        let op = if distinct { BinaryOperator::NotEq } else { BinaryOperator::Eq };
        let (left, right) = self.comparable(left, &op, right)?;
        let (a, b) = match left.ty.oid {
            oid::NUMERIC | oid::INTERVAL | oid::JSONB => (self.sort_form(&left)?, self.sort_form(&right)?),
            _ => (left.sql, right.sql),
        };
        let op = if distinct { "IS NOT" } else { "IS" };
        Ok(Typed::sure(format!("({a} {op} {b})"), Type::BOOL))
    }

    fn in_list(&mut self, e: &Expr, list: &[Expr], negated: bool, scope: &Scope<'_>) -> SqlResult<Typed> {
        if let Expr::Tuple(parts) = e {
            return self.row_in_list(parts, list, negated, scope);
        }
        let mut items = vec![self.expr(e, scope)?];
        for item in list {
            items.push(self.expr(item, scope)?);
        }
        let numeric = items.iter().any(|i| i.ty.oid == oid::NUMERIC) && !items.iter().any(|i| i.ty.is_float());
        let (mut items, ty) = self.unify("IN", items).map_err(|e| no_operator(&e))?;
        let keyed = matches!(ty.oid, oid::INTERVAL | oid::JSONB);
        for item in items.iter_mut().filter(|_| numeric || keyed) {
            item.sql = if numeric { self.helper("hf_num_key", &[&item.sql])? } else { self.sort_form(item)? };
        }
        let listed: Vec<&str> = items[1..].iter().map(|i| i.sql.as_str()).collect();
        let not = if negated { "NOT " } else { "" };
        Ok(Typed::new(format!("({} {not}IN ({}))", items[0].sql, listed.join(", ")), Type::BOOL))
    }

    fn row_in_list(&mut self, parts: &[Expr], list: &[Expr], negated: bool, scope: &Scope<'_>) -> SqlResult<Typed> {
        let mut rows = Vec::new();
        for item in list {
            let Expr::Tuple(values) = item else {
                return Err(SqlError::unsupported("the comparison of a row with something that is not a row"));
            };
            rows.push(self.row_compare(parts, &BinaryOperator::Eq, values, scope)?.sql);
        }
        let not = if negated { "NOT " } else { "" };
        Ok(Typed::new(format!("({not}({}))", rows.join(" OR ")), Type::BOOL))
    }

    fn in_subquery(&mut self, e: &Expr, query: &Query, negated: bool, scope: &Scope<'_>) -> SqlResult<Typed> {
        let sub = self.subquery(query, scope)?;
        let not = if negated { "NOT " } else { "" };
        if let Expr::Tuple(parts) = e {
            if parts.len() != sub.columns.len() {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "subquery has a wrong number of columns"));
            }
            let mut items = Vec::new();
            for (part, column) in parts.iter().zip(&sub.columns) {
                let typed = self.expr(part, scope)?;
                items.push(self.same_form(typed, column.ty)?.sql);
            }
            return Ok(Typed::new(format!("(({}) {not}IN ({}))", items.join(", "), sub.sql), Type::BOOL));
        }
        let column = sub.only_column()?.clone();
        let typed = self.expr(e, scope)?;
        let typed = self.same_form(typed, column.ty)?;
        Ok(Typed::new(format!("({} {not}IN ({}))", typed.sql, sub.sql), Type::BOOL))
    }

    /// Converts the left side of an IN over rows to the stored form of the right side.
    fn same_form(&mut self, typed: Typed, to: Type) -> SqlResult<Typed> {
        let typed = self.settle(typed, to)?;
        let alike = typed.ty.oid == to.oid
            || (typed.ty.is_integer() && to.is_integer())
            || (typed.ty.is_oid() && (to.is_oid() || to.is_integer()))
            || (typed.ty.is_integer() && to.is_oid())
            || (typed.ty.is_string() && to.is_string());
        if !alike || matches!(to.oid, oid::NUMERIC | oid::INTERVAL | oid::JSONB) {
            if typed.ty.category() != to.category() {
                return Err(undefined_operator(typed.ty, "=", to));
            }
            return Err(SqlError::unsupported(format!(
                "IN with rows of type {} on the left and {} on the right",
                typed.ty.name(),
                to.name()
            ))
            .with_hint("Cast both sides to one type other than numeric."));
        }
        Ok(typed)
    }

    fn between(&mut self, e: &Expr, negated: bool, low: &Expr, high: &Expr, scope: &Scope<'_>) -> SqlResult<Typed> {
        let typed = self.expr(e, scope)?;
        let (low, high) = (self.expr(low, scope)?, self.expr(high, scope)?);
        if typed.is_column() && typed.ty.is_integer() && low.ty.is_integer() && high.ty.is_integer() {
            // The left side is evaluated once, and an index can be used.
            let not = if negated { "NOT " } else { "" };
            return Ok(Typed::new(format!("({} {not}BETWEEN {} AND {})", typed.sql, low.sql, high.sql), Type::BOOL));
        }
        let above = self.compare(typed.clone(), &BinaryOperator::GtEq, low)?;
        let below = self.compare(typed, &BinaryOperator::LtEq, high)?;
        let not = if negated { "NOT " } else { "" };
        Ok(Typed::new(format!("({not}({} AND {}))", above.sql, below.sql), Type::BOOL))
    }

    fn cast_to(&mut self, e: &Expr, to: Type, scope: &Scope<'_>) -> SqlResult<Typed> {
        let typed = self.expr(e, scope)?;
        self.coerce(typed, to, When::Explicit)
    }

    fn case(
        &mut self,
        operand: Option<&Expr>,
        conditions: &[CaseWhen],
        otherwise: Option<&Expr>,
        scope: &Scope<'_>,
    ) -> SqlResult<Typed> {
        let mut tests = Vec::new();
        let mut results = Vec::new();
        for when in conditions {
            tests.push(match operand {
                None => self.condition(&when.condition, "CASE/WHEN", scope)?.sql,
                Some(operand) => {
                    let (l, r) = (self.expr(operand, scope)?, self.expr(&when.condition, scope)?);
                    self.compare(l, &BinaryOperator::Eq, r)?.sql
                }
            });
            results.push(self.expr(&when.result, scope)?);
        }
        results.push(match otherwise {
            Some(e) => self.expr(e, scope)?,
            None => Typed::null(),
        });
        let not_null = results.iter().all(|r| r.not_null);
        let (results, ty) = self.unify("CASE", results)?;
        let mut sql = String::from("CASE");
        for (test, result) in tests.iter().zip(&results) {
            sql.push_str(&format!(" WHEN {test} THEN {}", result.sql));
        }
        if let Some(last) = results.last().filter(|_| otherwise.is_some()) {
            sql.push_str(&format!(" ELSE {}", last.sql));
        }
        Ok(Typed { not_null, ..Typed::new(format!("({sql} END)"), ty) })
    }
}

/// The alias of a set-returning function, used as its value.
fn scalar_relation(scope: &Scope<'_>, name: &str) -> Option<Typed> {
    match scope.relation(name) {
        Some(r) if scope.relations[r].scalar => {
            let ty = scope.relations[r].columns[0].ty;
            Some(Typed::new(scope.column_sql(r, 0), ty))
        }
        Some(_) => None,
        None => scope.parent.and_then(|p| scalar_relation(p, name)),
    }
}

/// 42883 for an operator that does not exist.
pub fn undefined_operator(left: Type, op: &str, right: Type) -> SqlError {
    let message = format!("operator does not exist: {} {op} {}", left.name(), right.name());
    SqlError::new(SqlState::UNDEFINED_FUNCTION, message)
        .with_hint("No operator matches the given name and argument types. You might need to add explicit type casts.")
}

/// PostgreSQL reports an IN list that does not match as a missing operator.
fn no_operator(e: &SqlError) -> SqlError {
    if e.state() != SqlState::DATATYPE_MISMATCH {
        return e.clone();
    }
    SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("operator does not exist: {}", e.message()))
        .with_hint("No operator matches the given name and argument types. You might need to add explicit type casts.")
}
