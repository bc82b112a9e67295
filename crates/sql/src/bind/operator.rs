//! Operators: which types they take, what they return, and where SQLite needs help.
//!
//! | operation | why Holdfast has its own |
//! |---|---|
//! | integer + - * | SQLite turns an overflow into a real; PostgreSQL raises 22003, int4 earlier than int8 |
//! | / and % | SQLite gives NULL for a zero divisor, PostgreSQL 22012 |
//! | numeric | exact |
//! | double precision | infinity is 22003 |

use super::Binder;
use super::coerce::When;
use super::expr::undefined_operator;
use super::scope::Scope;
use super::typed::{Shape, Typed};
use crate::types::{Category, Type, more, numeric_modifier};
use holdfast_types::desc::oid;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{BinaryOperator as Op, Expr, UnaryOperator};

/// True for a number of at most 15 digits, which SQLite's own numbers order exactly.
fn is_short(typed: &Typed) -> bool {
    match (&typed.shape, typed.ty.oid) {
        (Shape::Number { text, .. }, _) => {
            text.bytes().filter(u8::is_ascii_digit).count() <= 15 && !text.contains(['e', 'E'])
        }
        (_, oid::INT2 | oid::INT4) => true,
        (_, oid::NUMERIC) => numeric_modifier(typed.ty.typmod).is_some_and(|(precision, _)| precision <= 15),
        _ => false,
    }
}

impl Binder<'_> {
    pub(super) fn binary(&mut self, l: &Expr, op: &Op, r: &Expr, scope: &Scope<'_>) -> SqlResult<Typed> {
        let result = self.binary_at(l, op, r, scope);
        self.at_expr(result, l)
    }

    fn binary_at(&mut self, l: &Expr, op: &Op, r: &Expr, scope: &Scope<'_>) -> SqlResult<Typed> {
        match op {
            Op::And | Op::Or => self.junction(l, op, r, scope),
            Op::Eq | Op::NotEq | Op::Lt | Op::LtEq | Op::Gt | Op::GtEq => {
                if let (Expr::Tuple(a), Expr::Tuple(b)) = (l, r) {
                    return self.row_compare(a, op, b, scope);
                }
                let (left, right) = self.fixed(|b| Ok((b.expr(l, scope)?, b.expr(r, scope)?)))?;
                self.compare(left, op, right)
            }
            Op::Plus | Op::Minus | Op::Multiply | Op::Divide | Op::Modulo | Op::PGExp => {
                let (left, right) = (self.expr(l, scope)?, self.expr(r, scope)?);
                self.arithmetic(left, op, right)
            }
            Op::StringConcat => {
                let (left, right) = (self.expr(l, scope)?, self.expr(r, scope)?);
                self.concat(left, right)
            }
            Op::BitwiseAnd | Op::BitwiseOr | Op::PGBitwiseXor | Op::PGBitwiseShiftLeft | Op::PGBitwiseShiftRight => {
                let (left, right) = self.fixed(|b| Ok((b.expr(l, scope)?, b.expr(r, scope)?)))?;
                self.bits(left, op, right)
            }
            Op::PGLikeMatch => self.like(l, r, None, false, false, scope),
            Op::PGNotLikeMatch => self.like(l, r, None, true, false, scope),
            Op::PGILikeMatch => self.like(l, r, None, false, true, scope),
            Op::PGNotILikeMatch => self.like(l, r, None, true, true, scope),
            Op::PGRegexMatch | Op::PGRegexIMatch | Op::PGRegexNotMatch | Op::PGRegexNotIMatch => {
                let (negated, fold) = match op {
                    Op::PGRegexMatch => (false, false),
                    Op::PGRegexIMatch => (false, true),
                    Op::PGRegexNotMatch => (true, false),
                    _ => (true, true),
                };
                self.regex(l, r, negated, fold, scope)
            }
            Op::PGCustomBinaryOperator(parts) => match parts.last().map(String::as_str) {
                Some("~") => self.regex(l, r, false, false, scope),
                Some("!~") => self.regex(l, r, true, false, scope),
                Some("~*") => self.regex(l, r, false, true, scope),
                Some("=") => self.binary_at(l, &Op::Eq, r, scope),
                Some("~~") => self.like(l, r, None, false, false, scope),
                _ => Err(SqlError::unsupported(format!("the operator {op}"))),
            },
            other => Err(SqlError::unsupported(format!("the operator {other}"))),
        }
    }

    /// Binds a chain of AND or of OR of any length as a balanced tree: SQLite limits the depth of expressions.
    fn junction(&mut self, l: &Expr, op: &Op, r: &Expr, scope: &Scope<'_>) -> SqlResult<Typed> {
        let word = if *op == Op::And { "AND" } else { "OR" };
        let (mut operands, mut left) = (vec![r], l);
        while let Expr::BinaryOp { left: l, op: o, right: r } = left
            && o == op
        {
            operands.push(r);
            left = l;
        }
        operands.push(left);
        let mut parts = Vec::with_capacity(operands.len());
        for e in operands.into_iter().rev() {
            parts.push(self.condition(e, word, scope)?);
        }
        let not_null = parts.iter().all(|p| p.not_null);
        let mut texts: Vec<String> = parts.into_iter().map(|p| p.sql).collect();
        while texts.len() > 1 {
            texts = texts
                .chunks(2)
                .map(|pair| match pair {
                    [a, b] => format!("({a} {word} {b})"),
                    rest => rest.concat(),
                })
                .collect();
        }
        Ok(Typed { not_null, ..Typed::new(texts.concat(), Type::BOOL) })
    }

    /// Binds a comparison of rows, such as (a, b) = (c, d). Equality only; rows are ordered by a rule of their own.
    pub(super) fn row_compare(&mut self, a: &[Expr], op: &Op, b: &[Expr], scope: &Scope<'_>) -> SqlResult<Typed> {
        if a.len() != b.len() {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "unequal number of entries in row expressions"));
        }
        let mut parts = Vec::new();
        let mut sides = (Vec::new(), Vec::new());
        for (l, r) in a.iter().zip(b) {
            let (left, right) = self.fixed(|b| Ok((b.expr(l, scope)?, b.expr(r, scope)?)))?;
            let (x, y) = self.comparable(left.clone(), op, right.clone())?;
            sides.0.push(self.sort_form(&x)?);
            sides.1.push(self.sort_form(&y)?);
            parts.push(self.compare(left, &Op::Eq, right)?.sql);
        }
        let sql = match op {
            Op::Eq => format!("({})", parts.join(" AND ")),
            Op::NotEq => format!("(NOT ({}))", parts.join(" AND ")),
            _ => format!("(({}) {op} ({}))", sides.0.join(", "), sides.1.join(", ")),
        };
        Ok(Typed::new(sql, Type::BOOL))
    }

    /// Converts the two sides of a comparison to types that SQLite compares as PostgreSQL does. Numeric sides are
    /// returned unchanged; the caller compares them with `hf_num_cmp`.
    pub(super) fn comparable(&mut self, left: Typed, op: &Op, right: Typed) -> SqlResult<(Typed, Typed)> {
        let (l, r) = (left.ty, right.ty);
        if left.is_open() && right.is_open() {
            return Ok((
                self.coerce(left, Type::TEXT, When::Implicit)?,
                self.coerce(right, Type::TEXT, When::Implicit)?,
            ));
        }
        if left.is_open() {
            let left = self.coerce(left, Type::new(r.oid), When::Implicit)?;
            return Ok((left, self.finish(right)?));
        }
        if right.is_open() {
            let right = self.coerce(right, Type::new(l.oid), When::Implicit)?;
            return Ok((self.finish(left)?, right));
        }
        let undefined = || undefined_operator(Type::new(l.oid), &op.to_string(), Type::new(r.oid));
        match (l.category(), r.category()) {
            (Category::Number, Category::Number) => {
                let float = l.is_float() || r.is_float();
                let numeric = l.oid == oid::NUMERIC || r.oid == oid::NUMERIC;
                if float && (l.oid != r.oid) {
                    let (left, right) = (self.coerce(left, Type::FLOAT8, When::Implicit)?, right);
                    return Ok((left, self.coerce(right, Type::FLOAT8, When::Implicit)?));
                }
                if numeric && !float {
                    let left = Typed { ty: Type::NUMERIC, ..self.finish(left)? };
                    return Ok((left, Typed { ty: Type::NUMERIC, ..self.finish(right)? }));
                }
                Ok((self.finish(left)?, self.finish(right)?))
            }
            (Category::String, Category::String) => Ok((left, right)),
            (Category::DateTime, Category::DateTime) => {
                let (mut both, _) = self.unify("comparison", vec![left, right]).map_err(|_| undefined())?;
                let right = both.pop().ok_or_else(undefined)?;
                Ok((both.pop().ok_or_else(undefined)?, right))
            }
            _ if l.oid == r.oid && l.oid != oid::JSON => Ok((left, right)),
            _ => Err(undefined()),
        }
    }

    /// Binds a comparison. A plain literal compared with a plain column becomes a parameter, unless an index depends on
    /// it.
    pub(super) fn compare(&mut self, left: Typed, op: &Op, right: Typed) -> SqlResult<Typed> {
        let lifting = |column: &Typed, other: &Typed| {
            matches!(column.shape, Shape::Column { lifts: true, .. })
                && matches!(other.shape, Shape::Text { literal: Some(_), .. } | Shape::Number { literal: Some(_), .. })
        };
        let lifts = lifting(&left, &right) || lifting(&right, &left);
        let not_null = left.not_null && right.not_null;
        let short = is_short(&left) && is_short(&right);
        let (left, right) = if lifts {
            self.lifting(|b| b.comparable(left, op, right))?
        } else {
            self.fixed(|b| b.comparable(left, op, right))?
        };
        let symbol = match op {
            Op::NotEq => "<>".to_owned(),
            other => other.to_string(),
        };
        let sql = if left.ty.oid == oid::NUMERIC && self.stored && short {
            format!("(CAST({} AS NUMERIC) {symbol} CAST({} AS NUMERIC))", left.sql, right.sql)
        } else if left.ty.oid == oid::NUMERIC {
            format!("({} {symbol} 0)", self.helper("hf_num_cmp", &[&left.sql, &right.sql])?)
        } else if let Some(element) = crate::types::element_of(left.ty.oid) {
            format!("({} {symbol} 0)", self.helper("hf_array_cmp", &[&left.sql, &right.sql, &element.to_string()])?)
        } else if matches!(left.ty.oid, oid::INTERVAL | oid::JSONB)
            || (matches!(left.ty.oid, oid::INET | oid::PG_LSN) && !matches!(op, Op::Eq | Op::NotEq))
        {
            let (left, right) = (self.sort_form(&left)?, self.sort_form(&right)?);
            format!("({left} {symbol} {right})")
        } else {
            format!("({} {symbol} {})", left.sql, right.sql)
        };
        Ok(Typed { not_null, ..Typed::new(sql, Type::BOOL) })
    }

    /// What SQLite sorts in PostgreSQL's order.
    pub(super) fn sort_form(&mut self, of: &Typed) -> SqlResult<String> {
        match of.ty.oid {
            oid::NUMERIC => self.helper("hf_num_key", &[&of.sql]),
            oid::INTERVAL => self.helper("hf_interval_key", &[&of.sql]),
            oid::JSONB => self.helper("hf_jsonb_key", &[&of.sql]),
            oid::INET => self.helper("hf_inet_key", &[&of.sql]),
            oid::PG_LSN => self.helper("hf_lsn", &[&of.sql]),
            array if crate::types::element_of(array).is_some() => {
                let element = crate::types::element_of(array).unwrap_or_default().to_string();
                self.helper("hf_array_key", &[&of.sql, &element])
            }
            _ => Ok(of.sql.clone()),
        }
    }

    fn arithmetic(&mut self, left: Typed, op: &Op, right: Typed) -> SqlResult<Typed> {
        let date = |t: &Typed| t.ty.oid == oid::DATE;
        if *op == Op::Plus && ((date(&left) && right.is_open()) || (date(&right) && left.is_open())) {
            let message = format!("operator is not unique: {} {op} {}", left.ty.name(), right.ty.name());
            return Err(
                SqlError::new(SqlState("42725"), message).with_hint("You might need to add explicit type casts.")
            );
        }
        let (left, right) = match (left.is_open(), right.is_open()) {
            (true, true) => return Err(undefined_operator(Type::UNKNOWN, &op.to_string(), Type::UNKNOWN)),
            (true, false) => {
                let ty = self.partner(right.ty, op);
                (self.coerce(left, ty, When::Implicit)?, right)
            }
            (false, true) => {
                let ty = self.partner(left.ty, op);
                (left, self.coerce(right, ty, When::Implicit)?)
            }
            _ => (left, right),
        };
        let (l, r) = (left.ty, right.ty);
        let undefined = || undefined_operator(Type::new(l.oid), &op.to_string(), Type::new(r.oid));
        if l.category() == Category::DateTime || r.category() == Category::DateTime {
            return self.moment_arithmetic(left, op, right)?.ok_or_else(undefined);
        }
        if l.oid == oid::INTERVAL || r.oid == oid::INTERVAL {
            return self.interval_arithmetic(left, op, right)?.ok_or_else(undefined);
        }
        if *op == Op::Minus && l.oid == oid::PG_LSN && r.oid == oid::PG_LSN {
            let (left, right) = (self.sort_form(&left)?, self.sort_form(&right)?);
            return Ok(Typed::new(format!("CAST(({left} - {right}) AS TEXT)"), Type::NUMERIC));
        }
        let number = |t: Type| t.is_integer() || t.is_float() || t.oid == oid::NUMERIC;
        if !number(l) || !number(r) {
            return Err(undefined());
        }
        let not_null = left.not_null && right.not_null;
        let typed = if l.is_float() || r.is_float() || *op == Op::PGExp {
            self.float_arithmetic(left, op, right)?
        } else if l.oid == oid::NUMERIC || r.oid == oid::NUMERIC {
            self.numeric_arithmetic(left, op, right)?
        } else {
            self.integer_arithmetic(left, op, right)?
        };
        Ok(Typed { not_null, ..typed })
    }

    /// The type that an untyped side takes: that of the other side, but an interval where it is added to a timestamp.
    fn partner(&self, known: Type, op: &Op) -> Type {
        match (known.oid, op) {
            (oid::TIMESTAMP | oid::TIMESTAMPTZ | oid::TIME, Op::Plus) => Type::new(oid::INTERVAL),
            (oid::INTERVAL, Op::Multiply | Op::Divide) => Type::FLOAT8,
            _ => Type::new(known.oid),
        }
    }

    fn integer_arithmetic(&mut self, left: Typed, op: &Op, right: Typed) -> SqlResult<Typed> {
        let ty = if left.ty.number_rank() >= right.ty.number_rank() { left.ty } else { right.ty };
        let ty = Type::new(ty.oid);
        let positive = matches!(&right.shape, Shape::Number { text, .. } if text.parse::<i64>().is_ok_and(|n| n > 0));
        if matches!(op, Op::Divide | Op::Modulo) && positive {
            // A constant divisor above zero needs no check and stays in the text.
            let right = self.fixed(|b| b.finish(right))?;
            return Ok(Typed::new(format!("({} {op} {})", left.sql, right.sql), ty));
        }
        let (left, right) = (self.finish(left)?, self.finish(right)?);
        let sql = match (op, ty.oid) {
            (Op::Divide, oid::INT4 | oid::INT2) => {
                let quotient = self.helper("hf_div", &[&left.sql, &right.sql])?;
                self.helper(if ty.oid == oid::INT4 { "hf_int4" } else { "hf_int2" }, &[&quotient])?
            }
            (Op::Divide, _) => self.helper("hf_div", &[&left.sql, &right.sql])?,
            (Op::Modulo, _) => self.helper("hf_mod", &[&left.sql, &right.sql])?,
            (_, _) if self.stored => format!("({} {op} {})", left.sql, right.sql),
            (_, oid::INT4) => format!("hf_int4({} {op} {})", left.sql, right.sql),
            (_, oid::INT2) => format!("hf_int2({} {op} {})", left.sql, right.sql),
            (Op::Plus, _) => format!("hf_add({}, {})", left.sql, right.sql),
            (Op::Minus, _) => format!("hf_sub({}, {})", left.sql, right.sql),
            _ => format!("hf_mul({}, {})", left.sql, right.sql),
        };
        Ok(Typed::new(sql, ty))
    }

    fn float_arithmetic(&mut self, left: Typed, op: &Op, right: Typed) -> SqlResult<Typed> {
        let single = left.ty.oid == oid::FLOAT4 && right.ty.oid == oid::FLOAT4;
        if *op == Op::Modulo {
            return Err(undefined_operator(left.ty, "%", right.ty));
        }
        if *op == Op::PGExp && left.ty.oid == oid::NUMERIC {
            return Err(
                SqlError::unsupported("the operator ^ with a numeric operand").with_hint("Cast to double precision.")
            );
        }
        let left = self.coerce(left, Type::FLOAT8, When::Implicit);
        let (left, right) = (left?, self.coerce(right, Type::FLOAT8, When::Implicit)?);
        let sql = match op {
            Op::Divide => self.helper("hf_fdiv", &[&left.sql, &right.sql])?,
            Op::PGExp => self.helper("hf_power", &[&left.sql, &right.sql])?,
            _ if self.stored => format!("({} {op} {})", left.sql, right.sql),
            Op::Multiply => format!("hf_fmul({}, {})", left.sql, right.sql),
            _ => format!("hf_float({} {op} {})", left.sql, right.sql),
        };
        let ty = if single { Type::new(oid::FLOAT4) } else { Type::FLOAT8 };
        let sql = if single { self.helper("hf_float4", &[&sql])? } else { sql };
        Ok(Typed::new(sql, ty))
    }

    fn numeric_arithmetic(&mut self, left: Typed, op: &Op, right: Typed) -> SqlResult<Typed> {
        let (left, right) = (self.finish(left)?, self.finish(right)?);
        let name = match op {
            Op::Plus => "hf_num_add",
            Op::Minus => "hf_num_sub",
            Op::Multiply => "hf_num_mul",
            Op::Divide => "hf_num_div",
            _ => "hf_num_mod",
        };
        Ok(Typed::new(self.helper(name, &[&left.sql, &right.sql])?, Type::NUMERIC))
    }

    /// Binds interval + interval, interval * number. `None` where there is no such operator.
    fn interval_arithmetic(&mut self, left: Typed, op: &Op, right: Typed) -> SqlResult<Option<Typed>> {
        let is = |t: &Typed| t.ty.oid == oid::INTERVAL;
        let (name, left, right) = match (is(&left), op, is(&right)) {
            (true, Op::Plus, true) => ("hf_interval_add", left, right),
            (true, Op::Minus, true) => ("hf_interval_sub", left, right),
            (true, Op::Multiply, false) if right.ty.category() == Category::Number => ("hf_interval_mul", left, right),
            (false, Op::Multiply, true) if left.ty.category() == Category::Number => ("hf_interval_mul", right, left),
            (true, Op::Divide, false) if right.ty.category() == Category::Number => ("hf_interval_div", left, right),
            _ => return Ok(None),
        };
        let right = if is(&right) { right } else { self.coerce(right, Type::FLOAT8, When::Implicit)? };
        Ok(Some(Typed::new(self.helper(name, &[&left.sql, &right.sql])?, Type::new(oid::INTERVAL))))
    }

    /// Binds date + integer, date - date, timestamp + interval. `None` where there is no such operator.
    fn moment_arithmetic(&mut self, left: Typed, op: &Op, right: Typed) -> SqlResult<Option<Typed>> {
        let (l, r) = (left.ty.oid, right.ty.oid);
        let date = Type::new(oid::DATE);
        Ok(match (l, op, r) {
            (oid::DATE, Op::Plus | Op::Minus, oid::INT4 | oid::INT2) => {
                let sign = if *op == Op::Plus { "" } else { "-" };
                let days = format!("{sign}{}", right.sql);
                Some(Typed::new(self.helper("hf_date_add", &[&left.sql, &days])?, date))
            }
            (oid::INT4 | oid::INT2, Op::Plus, oid::DATE) => {
                Some(Typed::new(self.helper("hf_date_add", &[&right.sql, &left.sql])?, date))
            }
            (oid::DATE, Op::Minus, oid::DATE) => {
                Some(Typed::new(self.helper("hf_date_sub", &[&left.sql, &right.sql])?, Type::INT4))
            }
            (oid::DATE | oid::TIMESTAMP | oid::TIMESTAMPTZ, Op::Plus | Op::Minus, oid::INTERVAL) => {
                let ty = if l == oid::DATE { Type::new(oid::TIMESTAMP) } else { Type::new(l) };
                let left = self.coerce(left, ty, When::Implicit)?;
                let sign = if *op == Op::Plus { "1" } else { "-1" };
                let zone = if l == oid::TIMESTAMPTZ { "'+00'" } else { "''" };
                Some(Typed::new(self.helper("hf_moment_add", &[&left.sql, &right.sql, sign, zone])?, ty))
            }
            (
                oid::TIMESTAMP | oid::TIMESTAMPTZ | oid::DATE,
                Op::Minus,
                oid::TIMESTAMP | oid::TIMESTAMPTZ | oid::DATE,
            ) => {
                let zoned = l == oid::TIMESTAMPTZ || r == oid::TIMESTAMPTZ;
                let ty = Type::new(if zoned { oid::TIMESTAMPTZ } else { oid::TIMESTAMP });
                let left = self.coerce(left, ty, When::Implicit)?;
                let right = self.coerce(right, ty, When::Implicit)?;
                Some(Typed::new(self.helper("hf_moment_sub", &[&left.sql, &right.sql])?, Type::new(oid::INTERVAL)))
            }
            (oid::TIME, Op::Minus, oid::TIME) => {
                Some(Typed::new(self.helper("hf_time_sub", &[&left.sql, &right.sql])?, Type::new(oid::INTERVAL)))
            }
            (oid::TIME, Op::Plus | Op::Minus, oid::INTERVAL) => {
                let sign = if *op == Op::Plus { "1" } else { "-1" };
                Some(Typed::new(self.helper("hf_time_add", &[&left.sql, &right.sql, sign])?, Type::new(oid::TIME)))
            }
            (oid::INTERVAL, Op::Plus, oid::DATE | oid::TIME | oid::TIMESTAMP | oid::TIMESTAMPTZ) => {
                return self.moment_arithmetic(right, op, left);
            }
            _ => None,
        })
    }

    fn concat(&mut self, left: Typed, right: Typed) -> SqlResult<Typed> {
        let text = |t: &Typed| t.is_open() || t.ty.is_string();
        let bytes = |t: &Typed| t.ty.oid == oid::BYTEA && !t.is_open();
        let (left, right) = match (bytes(&left), bytes(&right)) {
            (true, _) if right.is_open() => (left, self.coerce(right, Type::new(oid::BYTEA), When::Implicit)?),
            (_, true) if left.is_open() => (self.coerce(left, Type::new(oid::BYTEA), When::Implicit)?, right),
            _ => (left, right),
        };
        if left.ty.oid == oid::BYTEA && right.ty.oid == oid::BYTEA {
            return Ok(Typed::new(format!("CAST({} || {} AS BLOB)", left.sql, right.sql), left.ty));
        }
        let array = |t: &Typed| t.ty.category() == Category::Array;
        if array(&left) && array(&right) && left.ty.oid == right.ty.oid {
            let sql = self.helper("hf_array_cat", &[&left.sql, &right.sql])?;
            return Ok(Typed::new(sql, left.ty));
        }
        if !(text(&left) || text(&right)) || array(&left) || array(&right) {
            let undefined = undefined_operator(Type::new(left.ty.oid), "||", Type::new(right.ty.oid));
            return Err(if array(&left) || array(&right) {
                SqlError::unsupported("the operator || for arrays")
            } else {
                undefined
            });
        }
        let not_null = left.not_null && right.not_null;
        let left = self.coerce(left, Type::TEXT, When::Assignment)?;
        let right = self.coerce(right, Type::TEXT, When::Assignment)?;
        Ok(Typed { not_null, ..Typed::new(format!("({} || {})", left.sql, right.sql), Type::TEXT) })
    }

    fn bits(&mut self, left: Typed, op: &Op, right: Typed) -> SqlResult<Typed> {
        let left = self.settle(left, right.ty)?;
        let right = self.settle(right, left.ty)?;
        if !left.ty.is_integer() || !right.ty.is_integer() {
            return Err(undefined_operator(left.ty, &op.to_string(), right.ty));
        }
        let wider = if left.ty.number_rank() >= right.ty.number_rank() { left.ty } else { right.ty };
        let (a, b) = (&left.sql, &right.sql);
        Ok(match op {
            Op::BitwiseAnd => Typed::new(format!("({a} & {b})"), wider),
            Op::BitwiseOr => Typed::new(format!("({a} | {b})"), wider),
            Op::PGBitwiseXor => Typed::new(format!("(({a} | {b}) - ({a} & {b}))"), wider),
            Op::PGBitwiseShiftRight => Typed::new(format!("({a} >> {b})"), left.ty),
            _ => Typed::new(self.helper("hf_shift_left", &[a, b, &left.ty.oid.to_string()])?, left.ty),
        })
    }

    pub(super) fn unary(&mut self, op: UnaryOperator, e: &Expr, scope: &Scope<'_>) -> SqlResult<Typed> {
        if op == UnaryOperator::Not {
            let typed = self.condition(e, "NOT", scope)?;
            return Ok(Typed { not_null: typed.not_null, ..Typed::new(format!("(NOT {})", typed.sql), Type::BOOL) });
        }
        if op == UnaryOperator::Minus
            && let Some(constant) = self.negative_constant(e, scope)?
        {
            return Ok(constant);
        }
        let typed = self.expr(e, scope)?;
        if typed.is_open() {
            return Err(SqlError::new(SqlState("42725"), format!("operator is not unique: {op} unknown"))
                .with_hint("Could not choose a best candidate operator. You might need to add explicit type casts."));
        }
        let typed = self.finish(typed)?;
        let (ty, not_null) = (typed.ty, typed.not_null);
        let undefined = || {
            let message = format!("operator does not exist: {op} {}", ty.name());
            SqlError::new(SqlState::UNDEFINED_FUNCTION, message)
        };
        if ty.oid == oid::INTERVAL && op == UnaryOperator::Minus {
            let sql = self.helper("hf_interval_neg", &[&typed.sql])?;
            return Ok(Typed { not_null, ..Typed::new(sql, ty) });
        }
        if ty.category() != Category::Number || ty.is_oid() {
            return Err(undefined());
        }
        let sql = match op {
            UnaryOperator::Plus => typed.sql,
            UnaryOperator::Minus if ty.oid == oid::NUMERIC => self.helper("hf_num_neg", &[&typed.sql])?,
            UnaryOperator::Minus if ty.is_float() || self.stored => format!("(-{})", typed.sql),
            UnaryOperator::Minus if ty.oid == oid::INT4 => format!("hf_int4(-{})", typed.sql),
            UnaryOperator::Minus if ty.oid == oid::INT2 => format!("hf_int2(-{})", typed.sql),
            UnaryOperator::Minus => format!("hf_sub(0, {})", typed.sql),
            UnaryOperator::BitwiseNot if ty.is_integer() => format!("(~{})", typed.sql),
            UnaryOperator::PGAbs => self.helper("hf_abs", &[&typed.sql, &ty.oid.to_string()])?,
            UnaryOperator::PGSquareRoot => {
                let float = self.coerce(typed, Type::FLOAT8, When::Implicit)?;
                let sql = self.helper("hf_sqrt", &[&float.sql])?;
                return Ok(Typed { not_null, ..Typed::new(sql, Type::FLOAT8) });
            }
            _ => return Err(undefined()),
        };
        Ok(Typed { not_null, ..Typed::new(sql, ty) })
    }

    /// Binds `-5` as one number, unless its digits become a parameter.
    fn negative_constant(&mut self, e: &Expr, scope: &Scope<'_>) -> SqlResult<Option<Typed>> {
        if !matches!(e, Expr::Value(v) if matches!(v.value, sqlparser::ast::Value::Number(..))) {
            return Ok(None);
        }
        let typed = self.expr(e, scope)?;
        let Shape::Number { text, literal } = &typed.shape else { return Ok(None) };
        if typed.ty.is_integer() && self.lifts() && literal.is_some() {
            let positive = self.finish(typed)?;
            // The positive number is in the range of its type, so the negative one is, too.
            return Ok(Some(Typed { sql: format!("(-{})", positive.sql), shape: Shape::Expr, ..positive }));
        }
        let text = format!("-{text}");
        let ty = match text.parse::<i64>() {
            Ok(n) if i32::try_from(n).is_ok() => Type::INT4,
            Ok(_) => Type::INT8,
            Err(_) => Type::NUMERIC,
        };
        let sql = match text.parse::<i64>() {
            Ok(n) => super::coerce::constant(&holdfast_types::Value::Int(n)),
            Err(_) => crate::names::quote_text(&crate::types::decimal::Decimal::parse(&text)?.to_string()),
        };
        Ok(Some(Typed { shape: Shape::Number { text, literal: None }, ..Typed::sure(sql, ty) }))
    }

    /// Binds `x = ANY (array)`. The array's text is parsed at run time.
    pub(super) fn any(&mut self, l: &Expr, op: &Op, r: &Expr, all: bool, scope: &Scope<'_>) -> SqlResult<Typed> {
        let inner = match r {
            Expr::Nested(inner) => inner,
            other => other,
        };
        if let Expr::Subquery(query) = inner {
            let what = Expr::InSubquery { expr: Box::new(l.clone()), subquery: query.clone(), negated: all };
            return match (op, all) {
                (Op::Eq, false) | (Op::NotEq, true) => self.expr(&what, scope),
                _ => Err(SqlError::unsupported(format!("{op} ANY or ALL of a subquery"))),
            };
        }
        if let Expr::Array(array) = inner {
            let list = Expr::InList { expr: Box::new(l.clone()), list: array.elem.clone(), negated: all };
            return match (op, all) {
                (Op::Eq, false) | (Op::NotEq, true) if !array.elem.is_empty() => self.expr(&list, scope),
                _ => Err(SqlError::unsupported(format!("{op} ANY or ALL of an array"))),
            };
        }
        if !matches!((op, all), (Op::Eq, false) | (Op::NotEq, true)) {
            return Err(SqlError::unsupported(format!("{op} ANY or ALL of an array")));
        }
        let left = self.value_expr(l, scope)?;
        if left.ty.has_unequal_forms() && left.ty.oid != oid::NUMERIC {
            return Err(SqlError::unsupported(format!("ANY or ALL over an array of {}", left.ty.name())));
        }
        let array_of = crate::types::array_of(left.ty.oid).unwrap_or(more::TEXT_ARRAY);
        let array = self.expr(inner, scope)?;
        let array = self.settle(array, Type::new(array_of))?;
        if array.ty.category() != Category::Array {
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, "op ANY/ALL (array) requires array on right side"));
        }
        let element = Type::new(crate::types::element_of(array.ty.oid).unwrap_or(oid::TEXT));
        let (_, right) = self.fixed(|b| b.comparable(left.clone(), op, Typed::new("", element)))?;
        if !right.sql.is_empty() || left.ty.is_float() != element.is_float() {
            return Err(SqlError::unsupported(format!("ANY or ALL of {} with {}", array.ty.name(), left.ty.name()))
                .with_hint("Cast both sides to one type."));
        }
        let number = element.oid.to_string();
        let both_numbers = left.ty.oid == oid::NUMERIC || element.oid == oid::NUMERIC;
        if both_numbers || !crate::functions::array::is_plain_in_json(element) {
            let number = if both_numbers { oid::NUMERIC.to_string() } else { number };
            let args =
                [&*left.sql, &*array.sql, if all { "'<>'" } else { "'='" }, &number, if all { "1" } else { "0" }];
            return Ok(Typed::new(self.helper("hf_array_any", &args)?, Type::BOOL));
        }
        let as_json = self.helper("hf_array_json", &[&array.sql, &number])?;
        let not = if all { "NOT " } else { "" };
        let sql = format!("({} {not}IN (SELECT value FROM json_each({as_json})))", left.sql);
        Ok(Typed::new(sql, Type::BOOL))
    }
}
