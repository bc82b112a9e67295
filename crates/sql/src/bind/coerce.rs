//! Conversions from one type to another: implicit ones, those of an assignment, and explicit casts, as in PostgreSQL.

use super::Binder;
use super::typed::{Shape, Typed};
use crate::names::quote_text;
use crate::params::{Coerce, ParamSource};
use crate::types::{self, Category, Type};
use holdfast_types::desc::oid;
use holdfast_types::{SqlError, SqlResult, SqlState, Value};

/// When a cast happens (`pg_cast.castcontext`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub enum When {
    Implicit,
    Assignment,
    Explicit,
}

/// A constant in SQLite's SQL.
pub fn constant(value: &Value) -> String {
    match value {
        Value::Null => "NULL".into(),
        Value::Int(i64::MIN) => "(-9223372036854775807 - 1)".into(),
        Value::Int(i) if *i < 0 => format!("({i})"),
        Value::Int(i) => i.to_string(),
        Value::Real(r) => format!("({r:?})"),
        Value::Text(t) => quote_text(t),
        Value::Blob(b) => format!("x'{}'", b.iter().map(|b| format!("{b:02x}")).collect::<String>()),
    }
}

/// The weakest context in which PostgreSQL casts from one type to the other.
fn cast_context(from: Type, to: Type) -> Option<When> {
    use Category as C;
    use When::*;
    if from.oid == to.oid || from.oid == oid::UNKNOWN {
        return Some(Implicit);
    }
    Some(match (from.category(), to.category()) {
        (C::Number, C::Number) if from.is_oid() && to.is_oid() => Implicit,
        (C::Number, C::Number) if to.is_oid() => match from.is_integer() {
            true => Implicit,
            false => return None,
        },
        (C::Number, C::Number) if from.is_oid() => match to.oid {
            oid::INT4 | oid::INT8 => Assignment,
            _ => return None,
        },
        (C::Number, C::Number) if from.number_rank() < to.number_rank() => Implicit,
        (C::Number, C::Number) => Assignment,
        (C::String, C::String) if to.oid == oid::NAME || to.oid == oid::CHAR => Assignment,
        (C::String, C::String) => Implicit,
        (C::DateTime, C::DateTime) => match (from.oid, to.oid) {
            (oid::DATE, oid::TIMESTAMP | oid::TIMESTAMPTZ) | (oid::TIMESTAMP, oid::TIMESTAMPTZ) => Implicit,
            (oid::TIME, _) | (oid::DATE, oid::TIME) => return None,
            _ => Assignment,
        },
        (_, C::String) => Assignment,
        (C::String, _) => Explicit,
        (C::Boolean, _) if to.oid == oid::INT4 => Explicit,
        (_, C::Boolean) if from.oid == oid::INT4 => Explicit,
        (C::Other, C::Other) => match (from.oid, to.oid) {
            (oid::JSON, oid::JSONB) | (oid::JSONB, oid::JSON) => Assignment,
            _ => return None,
        },
        (C::DateTime, C::Timespan) if from.oid == oid::TIME => Implicit,
        (C::Timespan, C::DateTime) if to.oid == oid::TIME => Assignment,
        (C::Array, C::Array) => Explicit,
        _ => return None,
    })
}

impl Binder<'_> {
    /// Gives an open expression a type; returns any other expression unchanged.
    pub fn settle(&mut self, typed: Typed, ty: Type) -> SqlResult<Typed> {
        if typed.is_open() { self.coerce(typed, Type::new(ty.oid), When::Implicit) } else { self.finish(typed) }
    }

    /// Gives an open expression the type text, PostgreSQL's default, and lifts a number.
    pub fn finish(&mut self, typed: Typed) -> SqlResult<Typed> {
        if typed.is_open() {
            return self.coerce(typed, Type::TEXT, When::Implicit);
        }
        match typed.shape {
            Shape::Number { literal: Some(_), .. } if self.lifts() => {
                let ty = typed.ty;
                self.coerce(typed, ty, When::Implicit)
            }
            _ => Ok(typed),
        }
    }

    /// Converts an expression to a type if PostgreSQL converts it in this context; otherwise 42804.
    pub fn coerce(&mut self, typed: Typed, to: Type, when: When) -> SqlResult<Typed> {
        match typed.shape.clone() {
            Shape::Null => Ok(Typed { ty: to, ..typed }),
            Shape::Text { value, literal } if typed.ty == Type::UNKNOWN => self.coerce_text(&value, literal, to, when),
            Shape::Param(n) if typed.ty == Type::UNKNOWN => self.coerce_param(n, to),
            Shape::Number { literal, .. } if cast_context(typed.ty, to).is_some_and(|c| c <= when) => {
                self.coerce_number(typed, literal, to, when)
            }
            _ => self.coerce_expr(typed, to, when),
        }
    }

    fn coerce_text(&mut self, value: &str, literal: Option<usize>, to: Type, when: When) -> SqlResult<Typed> {
        let to = if to == Type::UNKNOWN { Type::TEXT } else { to };
        if to.is_oid() && !value.trim().bytes().all(|b| b.is_ascii_digit()) && to.oid != types::more::REGTYPE {
            return self.object_id(value, to);
        }
        let read = types::cast(Value::Text(value.to_owned()).as_ref(), Type::UNKNOWN, to, when == When::Explicit)?;
        let sql = match literal {
            Some(n) if self.lifts() && when != When::Explicit => {
                self.param(ParamSource::Literal(n), Some(Coerce { from: Type::UNKNOWN, to }))?
            }
            _ => constant(&read),
        };
        Ok(Typed::sure(sql, to))
    }

    fn coerce_param(&mut self, n: usize, to: Type) -> SqlResult<Typed> {
        let to = if to == Type::UNKNOWN { Type::TEXT } else { to };
        if self.client_types[n] == 0 {
            self.client_types[n] = to.oid;
        }
        let from = Type::new(self.client_types[n]);
        if from.oid != to.oid {
            // Another place in the statement has given this parameter another type.
            let known = Typed::new(self.param(ParamSource::Client(n), None)?, from);
            return self.coerce_expr(known, to, When::Assignment);
        }
        let modified = to.typmod != -1;
        let sql = self.param(ParamSource::Client(n), modified.then_some(Coerce { from, to }))?;
        Ok(Typed::new(sql, to))
    }

    fn coerce_number(&mut self, typed: Typed, literal: Option<usize>, to: Type, when: When) -> SqlResult<Typed> {
        let Shape::Number { text, .. } = &typed.shape else { return self.coerce_expr(typed, to, when) };
        let value = match text.parse() {
            Ok(i) if typed.ty.is_integer() => Value::Int(i),
            _ => Value::Text(text.clone()),
        };
        let read = types::cast(value.as_ref(), typed.ty, to, when == When::Explicit)?;
        let sql = match literal {
            Some(n) if self.lifts() => self.param(ParamSource::Literal(n), Some(Coerce { from: typed.ty, to }))?,
            _ => constant(&read),
        };
        // A lifted or converted number is an expression from here on; an unchanged one may still be converted.
        let shape = if sql.starts_with('?') || typed.ty != to { Shape::Expr } else { typed.shape };
        Ok(Typed { sql, ty: to, shape, not_null: true })
    }

    fn coerce_expr(&mut self, typed: Typed, to: Type, when: When) -> SqlResult<Typed> {
        let from = typed.ty;
        let same_modifier = to.typmod == -1 || to.typmod == from.typmod;
        if from.oid == to.oid && same_modifier {
            return Ok(typed);
        }
        if !cast_context(from, to).is_some_and(|c| c <= when) {
            let (state, message) = match when {
                When::Explicit => (SqlState("42846"), format!("cannot cast type {} to {}", from.name(), to.name())),
                _ => (
                    SqlState::DATATYPE_MISMATCH,
                    format!("expression is of type {} but {} is required", from.name(), to.name()),
                ),
            };
            return Err(SqlError::new(state, message).with_hint("You will need to rewrite or cast the expression."));
        }
        let sql = self.cast_sql(&typed.sql, from, to, when)?;
        Ok(Typed { sql, ty: to, shape: Shape::Expr, not_null: typed.not_null })
    }

    /// The text of a cast: nothing where the stored form is the same, SQLite's CAST where its result is PostgreSQL's,
    /// otherwise a function of Holdfast.
    fn cast_sql(&mut self, sql: &str, from: Type, to: Type, when: When) -> SqlResult<String> {
        let whole = to.typmod == -1;
        let wider = from.is_integer() && to.is_integer() && from.number_rank() <= to.number_rank();
        let same_form = match to.oid {
            oid::TEXT | oid::UNKNOWN => from.is_string(),
            oid::VARCHAR | oid::NAME => whole && from.is_string() && to.oid != oid::NAME,
            oid::NUMERIC => whole && from.is_integer(),
            oid::INT4 | oid::INT8 => wider || (from.is_oid() && to.oid == oid::INT8),
            oid::INT2 => wider,
            oid::JSON => from.oid == oid::JSONB,
            _ => to.is_oid() && from.is_oid(),
        };
        if same_form {
            return Ok(sql.to_owned());
        }
        match (from.oid, to.oid) {
            (_, oid::TEXT) if from.is_integer() || from.oid == oid::OID => return Ok(format!("CAST({sql} AS TEXT)")),
            (_, oid::FLOAT8) if from.is_integer() => return Ok(format!("CAST({sql} AS REAL)")),
            (_, oid::TEXT) if from.is_oid() => return self.oid_name(sql, from),
            (_, _) if from.is_string() && to.is_oid() && to.oid != types::more::REGTYPE => {
                return self.object_id_of(sql, to);
            }
            _ => {}
        }
        let numbers = [from.oid as i64, i64::from(from.typmod), to.oid as i64, i64::from(to.typmod)];
        let mut args = vec![sql.to_owned()];
        args.extend(numbers.iter().map(i64::to_string));
        args.push(i64::from(when == When::Explicit).to_string());
        self.helper("hf_cast", &args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// PostgreSQL's rule for UNION, CASE, COALESCE, VALUES and the like (manual, section 10.5).
    pub fn common_type(&self, what: &str, items: &[Typed]) -> SqlResult<Type> {
        let mut found: Option<Type> = None;
        for item in items.iter().filter(|i| !i.is_open()) {
            let ty = item.ty;
            found = Some(match found {
                None => ty,
                Some(so_far) => merge(so_far, ty).ok_or_else(|| {
                    let (a, b) = (Type::new(so_far.oid).name(), Type::new(ty.oid).name());
                    SqlError::new(SqlState::DATATYPE_MISMATCH, format!("{what} types {a} and {b} cannot be matched"))
                })?,
            });
        }
        Ok(found.unwrap_or(Type::TEXT))
    }

    /// Converts all items to their common type.
    pub fn unify(&mut self, what: &str, items: Vec<Typed>) -> SqlResult<(Vec<Typed>, Type)> {
        let ty = self.common_type(what, &items)?;
        let same = Type::new(ty.oid);
        let unified = items.into_iter().map(|i| self.coerce(i, same, When::Implicit)).collect::<SqlResult<_>>()?;
        Ok((unified, ty))
    }
}

fn merge(a: Type, b: Type) -> Option<Type> {
    if a.oid == b.oid {
        return Some(if a.typmod == b.typmod { a } else { Type::new(a.oid) });
    }
    if a.category() != b.category() {
        return None;
    }
    let prefer = |keep: Type| Some(Type::new(keep.oid));
    match a.category() {
        Category::Number if a.number_rank() >= b.number_rank() => prefer(a),
        Category::Number => prefer(b),
        // Both casts are implicit, so the first type is the result.
        Category::String if a.oid != oid::NAME && b.oid != oid::NAME => prefer(a),
        Category::String => Some(Type::TEXT),
        Category::Timespan => Some(Type::new(a.oid)),
        Category::DateTime if cast_context(a, b) == Some(When::Implicit) => prefer(b),
        Category::DateTime if cast_context(b, a) == Some(When::Implicit) => prefer(a),
        _ => None,
    }
}
