//! The SQL standard's functions with a syntax of their own: EXTRACT, SUBSTRING, POSITION, TRIM, OVERLAY, AT TIME
//! ZONE, INTERVAL, ARRAY, and the keywords that are values.

use super::Binder;
use super::scope::Scope;
use super::typed::{Shape, Typed};
use crate::bind::coerce::When;
use crate::names::quote_text;
use crate::params::SessionValue;
use crate::types::{Category, Type};
use holdfast_types::desc::oid;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{AccessExpr, CeilFloorKind, DateTimeField, Expr, Subscript, TrimWhereField};

impl Binder<'_> {
    pub(super) fn special(&mut self, e: &Expr, scope: &Scope<'_>) -> SqlResult<Typed> {
        match e {
            Expr::Extract { field, expr, .. } => self.extract(&field_name(field), expr, scope),
            Expr::Ceil { expr, field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
                self.call_named("ceil", &[expr.as_ref()], scope)
            }
            Expr::Floor { expr, field: CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) } => {
                self.call_named("floor", &[expr.as_ref()], scope)
            }
            Expr::Position { expr, r#in } => self.call_named("strpos", &[r#in.as_ref(), expr.as_ref()], scope),
            Expr::Substring { expr, substring_from, substring_for, .. } => {
                let one = Expr::Value(sqlparser::ast::Value::Number("1".into(), false).into());
                let from = substring_from.as_deref().unwrap_or(&one);
                match substring_for {
                    Some(length) => self.call_named("substr", &[expr.as_ref(), from, length], scope),
                    None => self.call_named("substr", &[expr.as_ref(), from], scope),
                }
            }
            Expr::Trim { trim_where, trim_what, expr, trim_characters } => {
                let name = match trim_where {
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                    _ => "btrim",
                };
                let characters = trim_what.as_deref().or(trim_characters.as_ref().and_then(|c| c.first()));
                match characters {
                    Some(what) => self.call_named(name, &[expr.as_ref(), what], scope),
                    None => self.call_named(name, &[expr.as_ref()], scope),
                }
            }
            Expr::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let mut args = vec![expr.as_ref(), overlay_what.as_ref(), overlay_from.as_ref()];
                args.extend(overlay_for.as_deref());
                self.call_named("overlay", &args, scope)
            }
            Expr::AtTimeZone { timestamp, time_zone } => self.at_time_zone(timestamp, time_zone, scope),
            Expr::Interval(interval) => {
                let Expr::Value(value) = interval.value.as_ref() else {
                    return Err(SqlError::unsupported("INTERVAL of an expression"));
                };
                let text = value.value.clone().into_string().unwrap_or_default();
                if interval.leading_precision.or(interval.fractional_seconds_precision).is_some() {
                    return Err(SqlError::unsupported("INTERVAL with a precision"));
                }
                let first = interval.leading_field.as_ref().map(field_name);
                let last = interval.last_field.as_ref().map(field_name).or(first.clone());
                let fields = first.as_deref().zip(last.as_deref());
                let read = holdfast_types::interval::parse(&text, fields)?;
                Ok(Typed::sure(quote_text(&read.to_string()), Type::new(oid::INTERVAL)))
            }
            Expr::SimilarTo { .. } => Err(SqlError::unsupported("SIMILAR TO")),
            Expr::Array(array) => self.array_value(&array.elem, scope),
            Expr::CompoundFieldAccess { root, access_chain } => match access_chain.as_slice() {
                [AccessExpr::Subscript(Subscript::Index { index })] => self.subscript(root, index, scope),
                _ => Err(SqlError::unsupported("a slice of an array or a field of a composite value")),
            },
            Expr::MemberOf(_) => Err(SqlError::unsupported("a subscript or a field of a composite value")),
            Expr::Tuple(_) => Err(SqlError::unsupported("a row value here")),
            Expr::JsonAccess { .. } => Err(SqlError::unsupported("a JSON operator")),
            other => Err(SqlError::unsupported(format!("the expression {other}"))),
        }
    }

    /// Binds `extract(field from x)`, whose result is numeric since PostgreSQL 14.
    pub(super) fn extract(&mut self, field: &str, e: &Expr, scope: &Scope<'_>) -> SqlResult<Typed> {
        let typed = self.value_expr(e, scope)?;
        if typed.ty.oid == oid::INTERVAL {
            crate::functions::datetime::check_field(field, typed.ty)?;
            let sql = self.helper("hf_interval_extract", &[&quote_text(field), &typed.sql])?;
            return Ok(Typed { not_null: typed.not_null, ..Typed::new(sql, Type::NUMERIC) });
        }
        if typed.ty.category() != Category::DateTime {
            return Err(SqlError::new(
                SqlState::UNDEFINED_FUNCTION,
                format!("function pg_catalog.extract(unknown, {}) does not exist", typed.ty.name()),
            ));
        }
        crate::functions::datetime::check_field(field, typed.ty)?;
        let sql = self.helper("hf_extract", &[&quote_text(field), &typed.sql])?;
        Ok(Typed { not_null: typed.not_null, ..Typed::new(sql, Type::NUMERIC) })
    }

    fn at_time_zone(&mut self, e: &Expr, zone: &Expr, scope: &Scope<'_>) -> SqlResult<Typed> {
        let zone = self.expr(zone, scope)?;
        let utc = matches!(&zone.shape, Shape::Text { value, .. }
            if ["utc", "gmt", "z", "zulu", "etc/utc"].contains(&value.to_lowercase().as_str()));
        if !utc {
            return Err(SqlError::unsupported("AT TIME ZONE with a zone other than UTC"));
        }
        let typed = self.value_expr(e, scope)?;
        let to = match typed.ty.oid {
            oid::TIMESTAMPTZ => oid::TIMESTAMP,
            oid::TIMESTAMP => oid::TIMESTAMPTZ,
            _ => return Err(SqlError::unsupported(format!("AT TIME ZONE of {}", typed.ty.name()))),
        };
        self.coerce(typed, Type::new(to), When::Explicit)
    }

    /// Binds `array[i]`.
    fn subscript(&mut self, root: &Expr, index: &Expr, scope: &Scope<'_>) -> SqlResult<Typed> {
        let array = self.value_expr(root, scope)?;
        let Some(element) = crate::types::element_of(array.ty.oid) else {
            let message = format!("cannot subscript type {} because it does not support subscripting", array.ty.name());
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
        };
        let index = self.expr_as(index, Type::INT4, scope)?;
        let sql = self.helper("hf_array_get", &[&array.sql, &element.to_string(), &index.sql])?;
        Ok(Typed::new(sql, Type::new(element)))
    }

    /// Binds a keyword that is a value, such as CURRENT_DATE.
    pub(super) fn keyword_value(&mut self, name: &str) -> SqlResult<Option<Typed>> {
        use SessionValue as S;
        let moment = |o| Type::new(o);
        let (which, ty) = match name {
            "current_timestamp" | "now" | "transaction_timestamp" => (S::TransactionTime, moment(oid::TIMESTAMPTZ)),
            "statement_timestamp" => (S::StatementTime, moment(oid::TIMESTAMPTZ)),
            "clock_timestamp" => (S::ClockTime, moment(oid::TIMESTAMPTZ)),
            "localtimestamp" => (S::TransactionTime, moment(oid::TIMESTAMP)),
            "current_date" => (S::TransactionTime, moment(oid::DATE)),
            "localtime" => (S::TransactionTime, moment(oid::TIME)),
            "current_user" | "current_role" | "user" => (S::User, Type::NAME),
            "session_user" => (S::SessionUser, Type::NAME),
            "current_catalog" | "current_database" => (S::Database, Type::NAME),
            "pg_backend_pid" => (S::BackendPid, Type::INT4),
            "lastval" => (S::LastInsertId, Type::INT8),
            "current_schema" => {
                let first = self.session(S::CurrentSchema, Type::NAME)?;
                return Ok(Some(Typed { not_null: false, ..first }));
            }
            "current_time" => return Err(SqlError::unsupported("CURRENT_TIME (time with time zone)")),
            _ => return Ok(None),
        };
        if self.stored
            && which == S::TransactionTime
            && let Some(text) = crate::default::stored_clock(ty)
        {
            return Ok(Some(Typed::sure(text, ty)));
        }
        self.session(which, ty).map(Some)
    }

    /// Binds `ARRAY[...]`.
    fn array_value(&mut self, items: &[Expr], scope: &Scope<'_>) -> SqlResult<Typed> {
        if items.is_empty() || items.len() > 99 {
            return Err(SqlError::unsupported("ARRAY[] without elements, or with more than 99")
                .with_hint("Write it as a text: '{...}'."));
        }
        let bound = items.iter().map(|e| self.expr(e, scope)).collect::<SqlResult<Vec<_>>>()?;
        let (bound, ty) = self.unify("ARRAY", bound)?;
        let mut args: Vec<String> = bound.iter().map(|b| b.sql.clone()).collect();
        let nested = crate::types::element_of(ty.oid).is_some();
        let array = if nested { Some(ty.oid) } else { crate::types::array_of(ty.oid) };
        let array = array.ok_or_else(|| SqlError::unsupported(format!("an array of {}", ty.name())))?;
        if !nested {
            args.insert(0, ty.oid.to_string());
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let sql = self.helper(if nested { "hf_array_nest" } else { "hf_array" }, &args)?;
        Ok(Typed::sure(sql, Type::new(array)))
    }

    /// Binds `ARRAY(SELECT ...)`, as text.
    pub(super) fn array_of(&mut self, query: &sqlparser::ast::Query, scope: &Scope<'_>) -> SqlResult<Typed> {
        let sub = self.subquery(query, scope)?;
        let element = sub.only_column()?.ty;
        let array = crate::types::array_of(element.oid)
            .ok_or_else(|| SqlError::unsupported(format!("an array of {}", element.name())))?;
        let item = self.helper("hf_array_item", &["\"v\"", &element.oid.to_string()])?;
        let sql = format!(
            "(SELECT '{{' || coalesce(group_concat({item}), '') || '}}' FROM (WITH \"a\"(\"v\") AS ({}) SELECT * FROM \"a\"))",
            sub.sql
        );
        Ok(Typed::sure(sql, Type::new(array)))
    }
}

/// The field of EXTRACT in lower case.
pub fn field_name(field: &DateTimeField) -> String {
    field.to_string().trim_matches(['\'', '"']).to_ascii_lowercase()
}
