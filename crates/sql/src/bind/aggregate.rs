//! Aggregates and window functions.
//!
//! Exact sums of numeric values are computed from the text that `group_concat` returns. So Holdfast registers no
//! aggregate of its own, and every window and FILTER works. avg over integers is an exact division, with PostgreSQL's
//! digits.

use super::Binder;
use super::coerce::When;
use super::scope::Scope;
use super::typed::Typed;
use crate::names::{fold, quote};
use crate::types::{Category, Type};
use holdfast_types::desc::oid;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{
    DuplicateTreatment, Expr, Function, FunctionArgumentClause, FunctionArgumentList, OrderByExpr, WindowFrameBound,
    WindowFrameUnits, WindowSpec, WindowType,
};

/// True for the names of PostgreSQL's aggregates, whether Holdfast supports them or not.
pub fn is_aggregate(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "count",
        "sum",
        "avg",
        "min",
        "max",
        "string_agg",
        "bool_and",
        "bool_or",
        "every",
        "array_agg",
        "json_agg",
        "jsonb_agg",
        "json_object_agg",
        "jsonb_object_agg",
        "stddev",
        "stddev_pop",
        "stddev_samp",
        "variance",
        "var_pop",
        "var_samp",
        "corr",
        "bit_and",
        "bit_or",
        "mode",
        "percentile_cont",
        "percentile_disc",
    ];
    NAMES.contains(&name)
}

/// True for functions that exist only over a window.
pub fn is_window(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "row_number",
        "rank",
        "dense_rank",
        "percent_rank",
        "cume_dist",
        "ntile",
        "lag",
        "lead",
        "first_value",
        "last_value",
        "nth_value",
    ];
    NAMES.contains(&name)
}

/// The parts of a call that follow its arguments.
struct Tail {
    distinct: &'static str,
    order: String,
    /// FILTER and OVER.
    after: String,
}

impl Binder<'_> {
    pub(super) fn aggregate(
        &mut self,
        name: &str,
        call: &Function,
        list: &FunctionArgumentList,
        args: &[&Expr],
        star: bool,
        scope: &Scope<'_>,
    ) -> SqlResult<Typed> {
        let window = call.over.is_some();
        if scope.grouping.borrow().inside && !window {
            return Err(SqlError::new(SqlState::GROUPING_ERROR, "aggregate function calls cannot be nested"));
        }
        let (before, grouped) = {
            let mut grouping = scope.grouping.borrow_mut();
            let before = grouping.inside;
            if !window {
                grouping.aggregates = true;
                grouping.inside = true;
            }
            (before, grouping.grouped)
        };
        let result = self.aggregate_inside(name, call, list, args, star, scope);
        let mut grouping = scope.grouping.borrow_mut();
        grouping.inside = before;
        grouping.grouped = grouped;
        result
    }

    fn aggregate_inside(
        &mut self,
        name: &str,
        call: &Function,
        list: &FunctionArgumentList,
        args: &[&Expr],
        star: bool,
        scope: &Scope<'_>,
    ) -> SqlResult<Typed> {
        let bound: Vec<Typed> = args.iter().map(|a| self.expr(a, scope)).collect::<SqlResult<_>>()?;
        let tail = self.tail(call, list, scope)?;
        let undefined = |b: &[Typed]| {
            let types: Vec<String> = b.iter().map(|t| Type::new(t.ty.oid).name()).collect();
            SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("function {name}({}) does not exist", types.join(", ")))
        };
        let wrap = |inner: &str, arg: &str| format!("{inner}({}{arg}{}){}", tail.distinct, tail.order, tail.after);
        match (name, bound.as_slice()) {
            ("count", []) if star => Ok(Typed::sure(format!("count(*){}", tail.after), Type::INT8)),
            ("count", [_]) => {
                let x = self.finish(bound[0].clone())?;
                if !tail.distinct.is_empty() && x.ty.has_sort_form() {
                    let key = self.sort_form(&x)?;
                    return Ok(Typed::sure(wrap("count", &key), Type::INT8));
                }
                Ok(Typed::sure(wrap("count", &x.sql), Type::INT8))
            }
            ("sum" | "avg" | "min" | "max", [x]) => {
                let x = if x.is_open() { self.coerce(x.clone(), Type::FLOAT8, When::Implicit)? } else { x.clone() };
                self.number_aggregate(name, x, &tail)?.ok_or_else(|| undefined(&bound))
            }
            ("bool_and" | "every" | "bool_or", [_]) => {
                let x = self.coerce(bound[0].clone(), Type::BOOL, When::Implicit).map_err(|_| undefined(&bound))?;
                let inner = if name == "bool_or" { "max" } else { "min" };
                Ok(Typed::new(wrap(inner, &x.sql), Type::BOOL))
            }
            ("string_agg", [_, _]) => {
                let x = self.coerce(bound[0].clone(), Type::TEXT, When::Implicit).map_err(|_| undefined(&bound))?;
                let separator = self.coerce(bound[1].clone(), Type::TEXT, When::Implicit)?;
                if !tail.distinct.is_empty() {
                    return Err(SqlError::unsupported("string_agg(DISTINCT ...)"));
                }
                Ok(Typed::new(wrap("group_concat", &format!("{}, {}", x.sql, separator.sql)), Type::TEXT))
            }
            ("count" | "sum" | "avg" | "min" | "max" | "string_agg", _) => Err(undefined(&bound)),
            _ => Err(SqlError::unsupported(format!("the aggregate {name}"))),
        }
    }

    fn number_aggregate(&mut self, name: &str, x: Typed, tail: &Tail) -> SqlResult<Option<Typed>> {
        let wrap = |inner: &str| format!("{inner}({}{}{}){}", tail.distinct, x.sql, tail.order, tail.after);
        if x.ty.oid == oid::INTERVAL {
            let concat = format!("group_concat({}{}){}", tail.distinct, x.sql, tail.after);
            if !tail.distinct.is_empty() && matches!(name, "sum" | "avg") {
                return Err(SqlError::unsupported(format!("{name}(DISTINCT ...) of intervals")));
            }
            let sql = self.helper(&format!("hf_interval_{name}"), &[&concat])?;
            return Ok(Some(Typed::new(sql, Type::new(oid::INTERVAL))));
        }
        let numeric = x.ty.oid == oid::NUMERIC;
        let sql = match (name, numeric) {
            ("min" | "max", false) => {
                let sortable = matches!(x.ty.category(), Category::Number | Category::String | Category::DateTime);
                let ty = if x.ty.oid == oid::VARCHAR || x.ty.oid == oid::NAME { Type::TEXT } else { x.ty };
                // A char(n) needs its length to be printed with its blanks.
                let ty = if ty.oid == oid::BPCHAR { ty } else { Type::new(ty.oid) };
                return Ok(sortable.then(|| Typed::new(wrap(name), ty)));
            }
            (_, true) => {
                let concat = format!("group_concat({}{}){}", tail.distinct, x.sql, tail.after);
                let helper = self.helper(&format!("hf_num_{name}"), &[&concat])?;
                return Ok(Some(Typed::new(helper, Type::NUMERIC)));
            }
            ("sum", _) if x.ty.is_integer() || x.ty.is_float() => wrap("sum"),
            ("avg", _) if x.ty.is_float() => wrap("avg"),
            ("avg", _) if x.ty.is_integer() => self.helper("hf_num_div", &[&wrap("sum"), &wrap("count")])?,
            _ => return Ok(None),
        };
        let ty = match (name, x.ty.oid) {
            ("sum", oid::INT2 | oid::INT4) => Type::INT8,
            ("sum", oid::INT8) => Type::NUMERIC,
            ("sum", other) => Type::new(other),
            (_, oid::FLOAT4 | oid::FLOAT8) => Type::FLOAT8,
            _ => Type::NUMERIC,
        };
        Ok(Some(Typed::new(sql, ty)))
    }

    fn tail(&mut self, call: &Function, list: &FunctionArgumentList, scope: &Scope<'_>) -> SqlResult<Tail> {
        if !call.within_group.is_empty() {
            return Err(SqlError::unsupported("WITHIN GROUP"));
        }
        if call.null_treatment.is_some() {
            return Err(SqlError::unsupported("IGNORE NULLS or RESPECT NULLS"));
        }
        let distinct = match list.duplicate_treatment {
            Some(DuplicateTreatment::Distinct) => "DISTINCT ",
            _ => "",
        };
        let mut order = String::new();
        for clause in &list.clauses {
            match clause {
                FunctionArgumentClause::OrderBy(items) => {
                    order = format!(" ORDER BY {}", self.order_list(items, scope)?);
                }
                _ => return Err(SqlError::unsupported("this clause of an aggregate call")),
            }
        }
        let mut after = match &call.filter {
            Some(e) => format!(" FILTER (WHERE {})", self.condition(e, "FILTER", scope)?.sql),
            None => String::new(),
        };
        after.push_str(&self.over(call.over.as_ref(), scope)?);
        Ok(Tail { distinct, order, after })
    }

    fn order_list(&mut self, items: &[OrderByExpr], scope: &Scope<'_>) -> SqlResult<String> {
        let mut keys = Vec::new();
        for item in items {
            let typed = self.value_expr(&item.expr, scope)?;
            keys.push(self.order_key(&typed, &item.options)?);
        }
        Ok(keys.join(", "))
    }

    fn over(&mut self, over: Option<&WindowType>, scope: &Scope<'_>) -> SqlResult<String> {
        scope.grouping.borrow_mut().windows |= over.is_some();
        Ok(match over {
            None => String::new(),
            Some(WindowType::NamedWindow(name)) => format!(" OVER {}", quote(&fold(name))),
            Some(WindowType::WindowSpec(spec)) => format!(" OVER ({})", self.window_spec(spec, scope)?),
        })
    }

    pub(super) fn window_spec(&mut self, spec: &WindowSpec, scope: &Scope<'_>) -> SqlResult<String> {
        let mut parts = Vec::new();
        if let Some(name) = &spec.window_name {
            parts.push(quote(&fold(name)));
        }
        if !spec.partition_by.is_empty() {
            let mut keys = Vec::new();
            for e in &spec.partition_by {
                let typed = self.value_expr(e, scope)?;
                keys.push(self.sort_form(&typed)?);
            }
            parts.push(format!("PARTITION BY {}", keys.join(", ")));
        }
        if !spec.order_by.is_empty() {
            parts.push(format!("ORDER BY {}", self.order_list(&spec.order_by, scope)?));
        }
        if let Some(frame) = &spec.window_frame {
            let units = match frame.units {
                WindowFrameUnits::Rows => "ROWS",
                WindowFrameUnits::Range => "RANGE",
                WindowFrameUnits::Groups => "GROUPS",
            };
            let start = self.frame_bound(&frame.start_bound, scope)?;
            parts.push(match &frame.end_bound {
                Some(end) => format!("{units} BETWEEN {start} AND {}", self.frame_bound(end, scope)?),
                None => format!("{units} {start}"),
            });
        }
        Ok(parts.join(" "))
    }

    fn frame_bound(&mut self, bound: &WindowFrameBound, scope: &Scope<'_>) -> SqlResult<String> {
        Ok(match bound {
            WindowFrameBound::CurrentRow => "CURRENT ROW".into(),
            WindowFrameBound::Preceding(None) => "UNBOUNDED PRECEDING".into(),
            WindowFrameBound::Following(None) => "UNBOUNDED FOLLOWING".into(),
            WindowFrameBound::Preceding(Some(e)) => format!("{} PRECEDING", self.expr_as(e, Type::INT8, scope)?.sql),
            WindowFrameBound::Following(Some(e)) => format!("{} FOLLOWING", self.expr_as(e, Type::INT8, scope)?.sql),
        })
    }

    /// Binds a function that exists only over a window, such as row_number.
    pub(super) fn window_function(
        &mut self,
        name: &str,
        call: &Function,
        args: &[&Expr],
        scope: &Scope<'_>,
    ) -> SqlResult<Typed> {
        if call.over.is_none() {
            let message = format!("window function {name} requires an OVER clause");
            return Err(SqlError::new(SqlState("42809"), message));
        }
        if call.filter.is_some() {
            return Err(SqlError::new(
                SqlState::WRONG_OBJECT_TYPE,
                "FILTER is not implemented for non-aggregate window functions",
            ));
        }
        let over = self.over(call.over.as_ref(), scope)?;
        let mut bound: Vec<Typed> = args.iter().map(|a| self.value_expr(a, scope)).collect::<SqlResult<_>>()?;
        let ty = match (name, bound.len()) {
            ("row_number" | "rank" | "dense_rank", 0) => Type::INT8,
            ("percent_rank" | "cume_dist", 0) => Type::FLOAT8,
            ("ntile", 1) => Type::INT4,
            ("lag" | "lead", 1..=2) | ("first_value" | "last_value", 1) | ("nth_value", 2) => bound[0].ty,
            ("lag" | "lead", 3) => {
                let (first, last) = (bound[0].ty, bound.remove(2));
                let last = self.coerce(last, Type::new(first.oid), When::Implicit)?;
                bound.push(last);
                first
            }
            _ => {
                let message = format!("function {name} with {} arguments does not exist", bound.len());
                return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message));
            }
        };
        let args: Vec<&str> = bound.iter().map(|b| b.sql.as_str()).collect();
        let sure = matches!(name, "row_number" | "rank" | "dense_rank" | "ntile");
        Ok(Typed { not_null: sure, ..Typed::new(format!("{name}({}){over}", args.join(", ")), ty) })
    }
}
