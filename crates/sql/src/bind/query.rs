//! Queries: WITH, set operations, VALUES, LIMIT, and the ORDER BY of a set operation.

use super::Binder;
use super::coerce::When;
use super::scope::{Column, Columns, Scope};
use super::typed::Typed;
use crate::names::{fold, quote};
use crate::types::Type;
use holdfast_types::desc::oid;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{
    Cte, CteAsMaterialized, Expr, LimitClause, OrderBy, OrderByExpr, OrderByKind, OrderByOptions, OrderBySort, Query,
    SetExpr, SetOperator, SetQuantifier, Spanned, Values, With,
};
use std::collections::{HashMap, HashSet};

/// A bound query: its text and its result columns.
#[derive(Clone, Debug)]
pub struct Bound {
    pub sql: String,
    pub columns: Columns,
}

impl Bound {
    pub fn only_column(&self) -> SqlResult<&Column> {
        match self.columns.as_slice() {
            [only] => Ok(only),
            _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "subquery must return only one column")),
        }
    }
}

/// The types that the rows must be converted to, and in which context.
pub type Targets<'t> = Option<(&'t [Type], When)>;

impl Binder<'_> {
    /// Binds a query inside an expression; it sees the columns of the queries around it.
    pub fn subquery(&mut self, query: &Query, scope: &Scope<'_>) -> SqlResult<Bound> {
        self.fixed(|b| b.query(query, Some(scope), None))
    }

    pub fn query(&mut self, query: &Query, parent: Option<&Scope<'_>>, targets: Targets<'_>) -> SqlResult<Bound> {
        let known = self.ctes.len();
        let result = self.query_inner(query, parent, targets);
        self.ctes.truncate(known);
        result
    }

    fn query_inner(&mut self, query: &Query, parent: Option<&Scope<'_>>, targets: Targets<'_>) -> SqlResult<Bound> {
        refuse_extras(query)?;
        let mut locking = self.begin_locking(query)?;
        // Only a plain SELECT at the top level shows OIDs as names; a WITH before it is bound first.
        let outermost = std::mem::take(&mut self.outermost) && matches!(&*query.body, SetExpr::Select(_));
        let with = match &query.with {
            Some(with) => self.with(with, parent)?,
            None => String::new(),
        };
        if locking.skips() {
            locking.limit = self.limit_of_granted(query)?;
        }
        let granted = locking.limit.clone();
        (self.outermost, self.locking) = (outermost, locking);
        let mut bound = match (&*query.body, &query.order_by) {
            (SetExpr::Select(select), order) => self.select(select, order.as_ref(), parent, targets)?,
            (body, order) => {
                let bound = self.body(body, parent, targets)?;
                match order {
                    Some(order) => self.order_rows(bound, order)?,
                    None => bound,
                }
            }
        };
        let limit = match granted {
            Some(limit) => self.limit_left(&limit),
            None => self.limit(query)?,
        };
        bound.sql = format!("{with}{}{limit}", bound.sql);
        Ok(bound)
    }

    /// Binds the queries of a WITH, so that the query after it can name them. The returned text goes before that query.
    pub fn with(&mut self, with: &With, parent: Option<&Scope<'_>>) -> SqlResult<String> {
        let mut parts = Vec::new();
        for cte in &with.cte_tables {
            let name = fold(&cte.alias.name);
            let bound = if with.recursive && names_itself(&cte.query, &name) {
                self.recursive(cte, &name, parent)?
            } else {
                self.query(&cte.query, parent, None)?
            };
            let columns = renamed(&bound.columns, &cte_columns(cte), &name)?;
            let unique = unique_names(&columns);
            let hint = match cte.materialized {
                Some(CteAsMaterialized::Materialized) => "MATERIALIZED ",
                Some(CteAsMaterialized::NotMaterialized) => "NOT MATERIALIZED ",
                None => "",
            };
            let listed: Vec<String> = unique.iter().map(|n| quote(n)).collect();
            parts.push(format!("{}({}) AS {hint}({})", quote(&name), listed.join(", "), bound.sql));
            self.ctes.push((name, columns));
        }
        let word = if with.recursive { "WITH RECURSIVE" } else { "WITH" };
        Ok(format!("{word} {} ", parts.join(", ")))
    }

    /// Binds a recursive query. Its first arm decides the types, as in PostgreSQL.
    fn recursive(&mut self, cte: &Cte, name: &str, parent: Option<&Scope<'_>>) -> SqlResult<Bound> {
        let SetExpr::SetOperation { left, .. } = &*cte.query.body else {
            let message = format!(
                "recursive query \"{name}\" does not have the form non-recursive-term UNION [ALL] recursive-term"
            );
            return Err(SqlError::new(SqlState("42P19"), message));
        };
        let saved = (self.params.clone(), self.client_types.clone());
        let first = self.body(left, parent, None)?;
        (self.params, self.client_types) = saved;
        let columns = renamed(&first.columns, &cte_columns(cte), name)?;
        self.ctes.push((name.to_owned(), columns.clone()));
        let types: Vec<Type> = columns.iter().map(|c| c.ty).collect();
        let result = self.query(&cte.query, parent, Some((&types, When::Implicit)));
        self.ctes.pop();
        result
    }

    /// Binds the body of a query: a SELECT, a set operation, VALUES, or a query in parentheses.
    fn body(&mut self, body: &SetExpr, parent: Option<&Scope<'_>>, targets: Targets<'_>) -> SqlResult<Bound> {
        match body {
            SetExpr::Select(select) => self.select(select, None, parent, targets),
            SetExpr::Query(query) => {
                let bound = self.query(query, parent, targets)?;
                let plain = query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none();
                let sql = if plain { bound.sql } else { format!("SELECT * FROM ({})", bound.sql) };
                Ok(Bound { sql, ..bound })
            }
            SetExpr::Values(values) => self.values(values, parent, targets),
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                self.set_operation(left, *op, *set_quantifier, right, parent, targets)
            }
            SetExpr::Table(table) => {
                let name = table.table_name.clone().unwrap_or_default();
                Err(SqlError::unsupported(format!("TABLE {name}")).with_hint("Use SELECT * FROM."))
            }
            _ => Err(SqlError::unsupported("a data-modifying statement in WITH or FROM")),
        }
    }

    fn set_operation(
        &mut self,
        left: &SetExpr,
        op: SetOperator,
        quantifier: SetQuantifier,
        right: &SetExpr,
        parent: Option<&Scope<'_>>,
        targets: Targets<'_>,
    ) -> SqlResult<Bound> {
        let word = match (op, quantifier) {
            (SetOperator::Union, SetQuantifier::All) => "UNION ALL",
            (SetOperator::Union, SetQuantifier::None | SetQuantifier::Distinct) => "UNION",
            (SetOperator::Except, SetQuantifier::None | SetQuantifier::Distinct) => "EXCEPT",
            (SetOperator::Intersect, SetQuantifier::None | SetQuantifier::Distinct) => "INTERSECT",
            _ => return Err(SqlError::unsupported(format!("{op} {quantifier}"))),
        };
        let types = match targets {
            Some(([], _)) => {
                let types = self.set_types(left, right, word, parent)?;
                let columns = types.into_iter().map(|t| derived("", t)).collect();
                return Ok(Bound { sql: String::new(), columns });
            }
            Some((types, _)) => types.to_vec(),
            None => {
                let saved = (self.params.clone(), self.client_types.clone());
                let types = self.set_types(left, right, word, parent)?;
                (self.params, self.client_types) = saved;
                types
            }
        };
        if word != "UNION ALL" && types.iter().any(|t| !t.groups_as_stored()) {
            return Err(SqlError::unsupported(format!("{word} of numeric values without a scale"))
                .with_hint("Cast to numeric(p,s)."));
        }
        let when = targets.map_or(When::Implicit, |(_, when)| when);
        let a = self.body(left, parent, Some((&types, when)))?;
        let b = self.body(right, parent, Some((&types, when)))?;
        // SQLite evaluates a chain from left to right. An operation on the right (INTERSECT binds tighter in
        // PostgreSQL's grammar) becomes a query of its own.
        let b_sql =
            if matches!(right, SetExpr::SetOperation { .. }) { format!("SELECT * FROM ({})", b.sql) } else { b.sql };
        let columns =
            a.columns.into_iter().map(|c| Column { not_null: false, table_oid: 0, attnum: 0, lifts: false, ..c });
        Ok(Bound { sql: format!("{} {word} {b_sql}", a.sql), columns: columns.collect() })
    }

    /// The types of the columns of a set operation. Both sides are bound only to find them; the caller drops the
    /// parameters that this creates.
    fn set_types(
        &mut self,
        left: &SetExpr,
        right: &SetExpr,
        word: &str,
        parent: Option<&Scope<'_>>,
    ) -> SqlResult<Vec<Type>> {
        let open = [Type::UNKNOWN; 0];
        let a = self.body(left, parent, Some((&open, When::Implicit)))?;
        let b = self.body(right, parent, Some((&open, When::Implicit)))?;
        let word = word.trim_end_matches(" ALL");
        if a.columns.len() != b.columns.len() {
            let message = format!("each {word} query must have the same number of columns");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let mut types = Vec::new();
        for (x, y) in a.columns.iter().zip(&b.columns) {
            let known: Vec<Typed> =
                [x.ty, y.ty].into_iter().filter(|t| *t != Type::UNKNOWN).map(|t| Typed::new("", t)).collect();
            types.push(if known.is_empty() { Type::UNKNOWN } else { self.common_type(word, &known)? });
        }
        Ok(types)
    }

    fn values(&mut self, values: &Values, parent: Option<&Scope<'_>>, targets: Targets<'_>) -> SqlResult<Bound> {
        let empty = Scope::new(parent);
        let width = values.rows.first().map_or(0, |r| r.len());
        let mut rows: Vec<Vec<Typed>> = Vec::with_capacity(values.rows.len());
        for row in &values.rows {
            if row.len() != width {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "VALUES lists must all be the same length"));
            }
            rows.push(row.iter().map(|e| self.expr(e, &empty)).collect::<SqlResult<_>>()?);
        }
        let mut columns = Vec::new();
        for c in 0..width {
            let column: Vec<Typed> = rows.iter_mut().map(|r| r[c].clone()).collect();
            let open = column.iter().all(Typed::is_open);
            let (column, ty) = match targets {
                Some((types, _)) if types.is_empty() && open => (column, Type::UNKNOWN),
                Some((types, when)) if !types.is_empty() => {
                    let ty = types.get(c).copied().unwrap_or(Type::TEXT);
                    (column.into_iter().map(|t| self.coerce(t, ty, when)).collect::<SqlResult<_>>()?, ty)
                }
                _ => self.unify("VALUES", column)?,
            };
            for (row, typed) in rows.iter_mut().zip(column) {
                row[c] = typed;
            }
            columns.push(derived(&format!("column{}", c + 1), ty));
        }
        let rows: Vec<String> = rows
            .iter()
            .map(|r| format!("({})", r.iter().map(|t| t.sql.as_str()).collect::<Vec<_>>().join(", ")))
            .collect();
        Ok(Bound { sql: format!("VALUES {}", rows.join(", ")), columns })
    }

    /// Binds ORDER BY over the rows of a set operation or VALUES: output columns only.
    fn order_rows(&mut self, bound: Bound, order: &OrderBy) -> SqlResult<Bound> {
        let names = unique_names(&bound.columns);
        let mut keys = Vec::new();
        for item in order_items(order)? {
            let index = match &item.expr {
                Expr::Value(v) => v.value.clone().to_string().parse::<usize>().ok().and_then(|n| n.checked_sub(1)),
                Expr::Identifier(i) => bound.columns.iter().position(|c| c.name == fold(i)),
                _ => None,
            };
            let Some(column) = index.and_then(|i| bound.columns.get(i).map(|c| (i, c))) else {
                return Err(SqlError::unsupported(
                    "ORDER BY something other than a result column after a set operation",
                ));
            };
            let key = Typed { not_null: column.1.not_null, ..Typed::new(quote(&names[column.0]), column.1.ty) };
            keys.push(self.order_key(&key, &item.options)?);
        }
        if keys.iter().all(|k| !k.contains("hf_")) && !matches!(bound.sql.as_bytes(), [b'V', ..]) {
            return Ok(Bound { sql: format!("{} ORDER BY {}", bound.sql, keys.join(", ")), ..bound });
        }
        let listed: Vec<String> = names.iter().map(|n| quote(n)).collect();
        let sql = format!(
            "SELECT * FROM (WITH \"rows\"({}) AS ({}) SELECT * FROM \"rows\") ORDER BY {}",
            listed.join(", "),
            bound.sql,
            keys.join(", ")
        );
        Ok(Bound { sql, ..bound })
    }

    /// One sort key, with NULLs where PostgreSQL sorts them: last when ascending, first when descending.
    pub fn order_key(&mut self, key: &Typed, options: &OrderByOptions) -> SqlResult<String> {
        let descending = match &options.sort {
            None | Some(OrderBySort::Asc) => false,
            Some(OrderBySort::Desc) => true,
            Some(OrderBySort::Using(op)) => return Err(SqlError::unsupported(format!("ORDER BY USING {op}"))),
        };
        if matches!(key.ty.oid, oid::JSON) {
            let message = "could not identify an ordering operator for type json";
            return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message));
        }
        let sql = self.sort_form(key)?;
        let direction = if descending { " DESC" } else { "" };
        let nulls_first = options.nulls_first.unwrap_or(descending);
        let nulls = match (key.not_null, nulls_first) {
            (true, _) => "",
            (false, true) if !descending => " NULLS FIRST",
            (false, true) => " NULLS FIRST",
            (false, false) => " NULLS LAST",
        };
        Ok(format!("{sql}{direction}{nulls}"))
    }

    fn limit(&mut self, query: &Query) -> SqlResult<String> {
        Ok(match self.limits(query)? {
            (None, None) => String::new(),
            (Some(n), None) => format!(" LIMIT {n}"),
            (None, Some(m)) => format!(" LIMIT -1 OFFSET {m}"),
            (Some(n), Some(m)) => format!(" LIMIT {n} OFFSET {m}"),
        })
    }

    /// Binds the numbers of LIMIT and OFFSET.
    pub(super) fn limits(&mut self, query: &Query) -> SqlResult<(Option<String>, Option<String>)> {
        let (mut limit, offset) = match &query.limit_clause {
            None => (None, None),
            Some(LimitClause::LimitOffset { limit, offset, limit_by }) if limit_by.is_empty() => {
                (limit.as_ref(), offset.as_ref().map(|o| &o.value))
            }
            Some(_) => {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "LIMIT #,# syntax is not supported")
                    .with_hint("Use separate LIMIT and OFFSET clauses."));
            }
        };
        let one;
        if let Some(fetch) = &query.fetch {
            if fetch.with_ties || fetch.percent {
                return Err(SqlError::unsupported("FETCH FIRST with TIES or PERCENT"));
            }
            one = Expr::Value(sqlparser::ast::Value::Number("1".into(), false).into());
            limit = Some(fetch.quantity.as_ref().unwrap_or(&one));
        }
        let count = match limit {
            Some(e) => self.row_count(e, "LIMIT")?,
            None => None,
        };
        let skip = match offset {
            Some(e) => self.row_count(e, "OFFSET")?,
            None => None,
        };
        Ok((count, skip))
    }

    fn row_count(&mut self, e: &Expr, clause: &str) -> SqlResult<Option<String>> {
        let empty = Scope::new(None);
        let typed = self.fixed(|b| b.expr(e, &empty))?;
        let typed = self.coerce(typed, Type::INT8, When::Assignment)?;
        let result = match typed.shape {
            super::Shape::Null => return Ok(None),
            _ => match typed.sql.trim_matches(['(', ')']).parse::<i64>() {
                Ok(n) if n < 0 => {
                    let state = if clause == "LIMIT" { SqlState("2201W") } else { SqlState("2201X") };
                    Err(SqlError::new(state, format!("{clause} must not be negative")))
                }
                Ok(_) => return Ok(Some(typed.sql)),
                Err(_) if self.stored => Ok(typed.sql),
                Err(_) => self.helper("hf_limit", &[&typed.sql, if clause == "LIMIT" { "1" } else { "0" }]),
            },
        };
        self.at(result, e.span().start).map(Some)
    }
}

/// The items of an ORDER BY.
pub fn order_items(order: &OrderBy) -> SqlResult<&[OrderByExpr]> {
    match &order.kind {
        OrderByKind::Expressions(items) if order.interpolate.is_none() => Ok(items),
        _ => Err(SqlError::unsupported("ORDER BY ALL")),
    }
}

/// A column of a computed relation.
pub fn derived(name: &str, ty: Type) -> Column {
    Column { name: name.to_owned(), ty, not_null: false, table_oid: 0, attnum: 0, lifts: false, sql: None }
}

/// Makes the names of a relation's columns unique.
pub fn unique_names(columns: &[Column]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(columns.len());
    let (mut taken, mut tries): (HashSet<String>, HashMap<String, usize>) = (HashSet::new(), HashMap::new());
    for column in columns {
        let key = column.name.to_ascii_lowercase();
        let mut name = column.name.clone();
        // Continues where the last column of this name ended: thousands of equal names are not compared with each other.
        let n = tries.entry(key).or_insert(0);
        while !taken.insert(name.to_ascii_lowercase()) {
            *n += 1;
            name = format!("{}:{n}", column.name);
        }
        names.push(name);
    }
    names
}

fn cte_columns(cte: &Cte) -> Vec<String> {
    cte.alias.columns.iter().map(|c| fold(&c.name)).collect()
}

/// The columns of a relation under an alias with a column list. 42P10 where the list is too long.
pub fn renamed(columns: &[Column], names: &[String], relation: &str) -> SqlResult<Columns> {
    if names.len() > columns.len() {
        let message = format!(
            "table \"{relation}\" has {} columns available but {} columns specified",
            columns.len(),
            names.len()
        );
        return Err(SqlError::new(SqlState("42P10"), message));
    }
    Ok(columns
        .iter()
        .enumerate()
        .map(|(i, c)| Column {
            name: names.get(i).unwrap_or(&c.name).clone(),
            table_oid: 0,
            attnum: 0,
            lifts: false,
            sql: None,
            ..c.clone()
        })
        .collect())
}

/// True where the query reads a table of this name.
fn names_itself(query: &Query, name: &str) -> bool {
    use std::ops::ControlFlow;
    let found = crate::relations::visit_relations(query, |relation| {
        let last = relation.0.last().and_then(|p| p.as_ident()).map(fold);
        if last.as_deref() == Some(name) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    found.is_break()
}

fn refuse_extras(query: &Query) -> SqlResult<()> {
    if !query.pipe_operators.is_empty()
        || query.settings.is_some()
        || query.format_clause.is_some()
        || query.for_clause.is_some()
    {
        return Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            "syntax error: the query has a clause that PostgreSQL does not have",
        ));
    }
    Ok(())
}
