//! The FROM clause: tables, catalogue tables, subqueries, set-returning functions, and joins.
//!
//! USING and NATURAL become conditions with merged columns in the scope, so that types are checked and `*` lists
//! the columns in PostgreSQL's order.

use super::coerce::When;
use super::query::{derived, renamed, unique_names};
use super::scope::{self, Column, Columns, Relation, Scope, Source};
use super::typed::Typed;
use super::{Binder, Settings};
use crate::catalogue;
use crate::names::{fold, is_temp_schema, object_name, quote};
use crate::types::Type;
use holdfast_types::access::Privileges;
use holdfast_types::desc::oid;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, Ident, Join, JoinConstraint, JoinOperator, ObjectName, Query,
    SelectItem, Spanned, TableAlias, TableFactor, TableWithJoins,
};

/// Whether a join can return rows without a row of its first table.
fn outer(table: &TableWithJoins) -> bool {
    table.joins.iter().any(|j| matches!(side(&j.join_operator), Ok((Side::Right | Side::Full, _))))
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Inner,
    Left,
    Right,
    Full,
}

impl Binder<'_> {
    /// Binds a FROM clause. Returns its text with the leading ` FROM`, and true if it can return no rows because an
    /// inner table of the catalogue is always empty.
    pub(super) fn from(&mut self, tables: &[TableWithJoins], scope: &mut Scope<'_>) -> SqlResult<(String, bool)> {
        let mut parts = Vec::new();
        let mut empty = false;
        for table in tables {
            let (sql, none) = self.joined(table, scope)?;
            parts.push(if outer(table) && tables.len() > 1 { format!("({sql})") } else { sql });
            empty |= none;
        }
        // A LATERAL query of one row exists only in the scope.
        parts.retain(|part| !part.is_empty());
        let sql = if parts.is_empty() { String::new() } else { format!(" FROM {}", parts.join(", ")) };
        Ok((sql, empty))
    }

    fn joined(&mut self, table: &TableWithJoins, scope: &mut Scope<'_>) -> SqlResult<(String, bool)> {
        let first = scope.relations.len();
        let (mut sql, mut empty) = self.factor(&table.relation, scope)?;
        // SQLite takes ON after a comma too, but not at the start of parentheses.
        if let Some(on) = self.lateral_on.take() {
            if outer(table) {
                return Err(SqlError::unsupported("a function of another table's columns left of RIGHT or FULL JOIN"));
            }
            sql.push_str(&format!(" ON {on}"));
        }
        for join in &table.joins {
            let (text, side, none) = self.join(join, first, scope)?;
            sql.push_str(&text);
            empty = match side {
                Side::Inner => empty || none,
                Side::Left => empty,
                Side::Right => none,
                Side::Full => empty && none,
            };
        }
        Ok((sql, empty))
    }

    fn join(&mut self, join: &Join, first: usize, scope: &mut Scope<'_>) -> SqlResult<(String, Side, bool)> {
        let (side, constraint) = side(&join.join_operator)?;
        let boundary = scope.relations.len();
        let (factor, empty) = self.factor(&join.relation, scope)?;
        let lateral = self.lateral_on.take();
        let condition = match constraint {
            JoinConstraint::None if lateral.is_some() && side == Side::Inner => {
                lateral.map_or_else(String::new, |on| format!(" ON {on}"))
            }
            _ if lateral.is_some() => {
                return Err(SqlError::unsupported("a function of another table's columns in JOIN ... ON"));
            }
            JoinConstraint::None => String::new(),
            JoinConstraint::On(e) => format!(" ON {}", self.join_condition(e, scope, empty)?),
            JoinConstraint::Using(names) => {
                let names: Vec<String> = names.iter().map(|n| Ok(object_name(n)?.1)).collect::<SqlResult<_>>()?;
                self.merge(&names, first, boundary, side, scope)?
            }
            JoinConstraint::Natural => {
                let names: Vec<String> = visible(scope, first, boundary)
                    .into_iter()
                    .filter(|n| scope.relations[boundary..].iter().any(|r| r.columns.iter().any(|c| c.name == *n)))
                    .collect();
                self.merge(&names, first, boundary, side, scope)?
            }
        };
        let end = scope.relations.len();
        let nullable = match side {
            Side::Inner => 0..0,
            Side::Left => boundary..end,
            Side::Right => first..boundary,
            Side::Full => first..end,
        };
        for relation in &mut scope.relations[nullable] {
            relation.nullable = true;
            relation.columns.iter_mut().for_each(|c| c.not_null = false);
        }
        let word = match side {
            Side::Inner => "JOIN",
            Side::Left => "LEFT JOIN",
            Side::Right => "RIGHT JOIN",
            Side::Full => "FULL JOIN",
        };
        if factor.is_empty() {
            // A LATERAL query of one row exists only in the scope.
            let plain = condition.is_empty() && side == Side::Inner;
            return if plain {
                Ok((String::new(), side, false))
            } else {
                Err(SqlError::unsupported("LATERAL with ON"))
            };
        }
        Ok((format!(" {word} {factor}{condition}"), side, empty))
    }

    fn join_condition(&mut self, e: &Expr, scope: &Scope<'_>, lenient: bool) -> SqlResult<String> {
        let outer = self.lenient;
        self.lenient |= lenient;
        let bare = scope.grouping.borrow().bare.len();
        let bound = self.fixed(|b| b.condition(e, "JOIN/ON", scope));
        self.lenient = outer;
        scope.grouping.borrow_mut().bare.truncate(bare);
        match bound {
            Err(e) if lenient && e.state() == SqlState::FEATURE_NOT_SUPPORTED => Ok("0".into()),
            other => Ok(other?.sql),
        }
    }

    /// Binds USING: returns its condition, and adds the merged columns to the scope.
    fn merge(
        &mut self,
        names: &[String],
        first: usize,
        boundary: usize,
        side: Side,
        scope: &mut Scope<'_>,
    ) -> SqlResult<String> {
        let mut tests = Vec::new();
        for name in names {
            let already = scope.merged.iter().position(|(c, _)| c.name == *name);
            let left = match already {
                Some(m) => {
                    let c = &scope.merged[m].0;
                    (c.sql.clone().unwrap_or_default(), c.clone(), scope.merged[m].1.clone())
                }
                None => only(scope, first..boundary, name, "left")?,
            };
            let right = only(scope, boundary..scope.relations.len(), name, "right")?;
            left.2.iter().chain(&right.2).for_each(|(r, c)| scope.reads(*r, *c));
            let (l, r) = (Typed::new(left.0.clone(), left.1.ty), Typed::new(right.0.clone(), right.1.ty));
            tests.push(self.fixed(|b| b.compare(l, &BinaryOperator::Eq, r))?.sql);
            let sql = match side {
                Side::Inner | Side::Left => left.0,
                Side::Right => right.0,
                Side::Full => format!("coalesce({}, {})", left.0, right.0),
            };
            let column = Column {
                sql: Some(sql),
                not_null: side == Side::Inner && left.1.not_null,
                ..if side == Side::Right { right.1 } else { left.1 }
            };
            let mut of = left.2;
            of.extend(right.2);
            match already {
                Some(m) => scope.merged[m] = (column, of),
                None => scope.merged.push((column, of)),
            }
        }
        Ok(if tests.is_empty() { String::new() } else { format!(" ON ({})", tests.join(" AND ")) })
    }

    fn factor(&mut self, factor: &TableFactor, scope: &mut Scope<'_>) -> SqlResult<(String, bool)> {
        match factor {
            TableFactor::Table {
                name, alias, args: None, sample: None, version: None, with_ordinality: false, ..
            } => {
                let result = self.table(name, alias.as_ref(), scope);
                self.at(result, name.span().start)
            }
            TableFactor::Table { name, alias, args: Some(args), with_ordinality: false, .. } => {
                self.table_function(name, &args.args, alias.as_ref(), scope)
            }
            TableFactor::Function { name, args, alias, with_ordinality: false, .. } => {
                self.table_function(name, args, alias.as_ref(), scope)
            }
            TableFactor::Derived { lateral: false, subquery, alias, sample: None } => {
                let bound = self.fixed(|b| b.query(subquery, scope.parent, None))?;
                let Some(alias) = alias else {
                    return Err(SqlError::new(SqlState::SYNTAX_ERROR, "subquery in FROM must have an alias")
                        .with_hint("For example, FROM (SELECT ...) [AS] foo."));
                };
                let name = fold(&alias.name);
                let stored = unique_names(&bound.columns);
                let mut columns = renamed(&bound.columns, &alias_columns(alias), &name)?;
                for (column, stored) in columns.iter_mut().zip(&stored) {
                    if column.name != *stored {
                        column.sql = Some(format!("{}.{}", quote(&name), quote(stored)));
                    }
                }
                let sql = format!("({}) AS {}", super::query::computed_once(&bound.sql), quote(&name));
                let source = Source::Query { reads: super::lock::reads_tables(subquery) };
                add(scope, Relation::new(name, columns, source))?;
                Ok((sql, false))
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => {
                let (sql, empty) = self.joined(table_with_joins, scope)?;
                Ok((format!("({sql})"), empty))
            }
            TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None } => {
                self.lateral(subquery, alias, scope)?;
                Ok((String::new(), false))
            }
            TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_ordinality: false, .. } => {
                let args: Vec<FunctionArg> =
                    array_exprs.iter().map(|e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e.clone()))).collect();
                self.table_function(&ObjectName::from(vec![Ident::new("unnest")]), &args, alias.as_ref(), scope)
            }
            TableFactor::Table { name, alias: Some(alias), with_ordinality: true, .. }
            | TableFactor::Function { name, alias: Some(alias), with_ordinality: true, .. }
                if object_name(name)?.1 == "pg_partition_ancestors" =>
            {
                // No table is a partition, so it has no rows for any argument.
                let names = alias_columns(alias);
                let shown = fold(&alias.name);
                let column = |i: usize, default: &str, ty| derived(names.get(i).map_or(default, |n| n), ty);
                let columns = vec![column(0, "relid", Type::new(2205)), column(1, "ordinality", Type::INT8)];
                let listed: Vec<String> = columns.iter().map(|c| format!("NULL AS {}", quote(&c.name))).collect();
                let sql = format!("(SELECT {} WHERE 0) AS {}", listed.join(", "), quote(&shown));
                add(scope, Relation::new(shown, columns, Source::Function))?;
                Ok((sql, true))
            }
            TableFactor::Derived { lateral: true, .. } | TableFactor::Function { lateral: true, .. } => {
                Err(SqlError::unsupported("LATERAL"))
            }
            TableFactor::Table { sample: Some(_), .. } => Err(SqlError::unsupported("TABLESAMPLE")),
            TableFactor::Table { with_ordinality: true, .. } | TableFactor::Function { .. } => {
                Err(SqlError::unsupported("WITH ORDINALITY"))
            }
            TableFactor::UNNEST { .. } => Err(SqlError::unsupported("unnest")),
            other => Err(SqlError::unsupported(format!("{other} in FROM"))),
        }
    }

    /// Binds LATERAL (SELECT expressions): one row, whose columns are those expressions over the tables to the left.
    fn lateral(&mut self, query: &Query, alias: &TableAlias, scope: &mut Scope<'_>) -> SqlResult<()> {
        let refused = || SqlError::unsupported("LATERAL over a query with a FROM clause");
        let select = query.body.as_select().ok_or_else(refused)?;
        let plain = query.with.is_none()
            && query.order_by.is_none()
            && query.limit_clause.is_none()
            && select.from.is_empty()
            && select.selection.is_none()
            && select.having.is_none()
            && select.distinct.is_none();
        if !plain || scope.relations.is_empty() {
            return Err(refused());
        }
        let names = alias_columns(alias);
        let mut columns = Columns::new();
        for (i, item) in select.projection.iter().enumerate() {
            let (e, own) = match item {
                SelectItem::UnnamedExpr(e) => (e, super::select::column_name(e)),
                SelectItem::ExprWithAlias { expr, alias } => (expr, fold(alias)),
                _ => return Err(refused()),
            };
            let bare = scope.grouping.borrow().bare.len();
            let typed = self.fixed(|b| b.value_expr(e, scope))?;
            let mut grouping = scope.grouping.borrow_mut();
            grouping.bare.truncate(bare);
            if std::mem::take(&mut grouping.aggregates) {
                return Err(refused());
            }
            let name = names.get(i).cloned().unwrap_or(own);
            columns.push(Column { sql: Some(typed.sql), ..derived(&name, typed.ty) });
        }
        add(scope, Relation::new(fold(&alias.name), columns, Source::Query { reads: false }))
    }

    fn table(
        &mut self,
        name: &ObjectName,
        alias: Option<&TableAlias>,
        scope: &mut Scope<'_>,
    ) -> SqlResult<(String, bool)> {
        let (schema, bare) = object_name(name)?;
        let shown = alias.map_or_else(|| bare.clone(), |a| fold(&a.name));
        let names = alias.map(alias_columns).unwrap_or_default();
        if schema.is_none()
            && let Some((_, columns)) = self.ctes.iter().rev().find(|(n, _)| *n == bare)
        {
            let columns = with_stored_names(columns, &names, &shown, &unique_names(columns))?;
            add(scope, Relation::new(shown.as_str(), columns, Source::With))?;
            return Ok((format!("{} AS {}", quote(&bare), quote(&shown)), false));
        }
        if let Some(table) = catalogue::find(schema.as_deref(), &bare) {
            if self.stored {
                return Err(SqlError::unsupported("a stored definition that reads the catalogue"));
            }
            if table.name == "pg_settings" {
                self.settings = self.settings.max(Settings::Read);
            }
            self.secrets.extend(catalogue::SECRETS.iter().filter(|(_, name)| *name == table.name));
            let columns: Columns = table.columns.iter().map(|(n, o)| derived(n, Type::new(*o))).collect();
            let stored: Vec<String> = table.columns.iter().map(|(n, _)| (*n).to_owned()).collect();
            let columns = with_stored_names(&columns, &names, &shown, &stored)?;
            // The system column that pg_dump asks for; the table is the same in every row.
            let own = catalogue::of_catalogue_table(table.schema, table.name).unwrap_or(0);
            let tableoid = Column { sql: Some(own.to_string()), ..derived("tableoid", Type::new(oid::OID)) };
            let relation = Relation::new(shown.as_str(), columns, Source::Catalogue);
            add(scope, Relation { rowid: Some(tableoid), ..relation })?;
            let all = format!("{}.{}", table.schema, quote(table.name));
            let seen = if table.schema == "information_schema" { self.seen_rows(table.name)? } else { None };
            let sql = match seen {
                Some(condition) => format!("(SELECT * FROM {all} WHERE {condition}) AS {}", quote(&shown)),
                None => format!("{all} AS {}", quote(&shown)),
            };
            return Ok((sql, table.always_empty));
        }
        if schema.as_deref().is_some_and(|s| s != "public" && !is_temp_schema(s)) {
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist")));
        }
        let table = scope::table_named(self.ctx.schema, name)?;
        if table.temp && self.stored {
            return Err(SqlError::unsupported(format!("a view over the temporary table \"{bare}\"")));
        }
        let stored: Vec<String> = table.columns.iter().map(|c| c.name.clone()).collect();
        let all = scope::columns_of(table, self.ctx.dialect);
        let columns = if names.is_empty() { all } else { with_stored_names(&all, &names, &shown, &stored)? };
        let key = crate::keys::primary_key(table);
        self.temporary |= table.temp;
        let source = if table.temp { Source::Temporary } else { Source::Table(bare.clone()) };
        let used = self.uses(table, name, Privileges::SELECT);
        let relation = Relation::new(shown.as_str(), columns, source);
        let rowid = scope::rowid_of(table, self.ctx.dialect);
        add(scope, Relation { key, used, rowid, ..relation })?;
        let stands = self.stands(table);
        let sql = if shown == bare { stands } else { format!("{stands} AS {}", quote(&shown)) };
        Ok((sql, false))
    }

    fn table_function(
        &mut self,
        name: &ObjectName,
        args: &[FunctionArg],
        alias: Option<&TableAlias>,
        scope: &mut Scope<'_>,
    ) -> SqlResult<(String, bool)> {
        let (_, function) = object_name(name)?;
        let shown = alias.map_or_else(|| function.clone(), |a| fold(&a.name));
        if let ("aclexplode", [FunctionArg::Unnamed(FunctionArgExpr::Expr(list))]) = (function.as_str(), args) {
            let list = self.fixed(|b| b.expr(list, scope))?;
            let names = alias.map(alias_columns).unwrap_or_default();
            let (sql, relation) = self.acl_explode(list, shown, &names)?;
            add(scope, relation)?;
            return Ok((sql, false));
        }
        if let ("pg_get_keywords", [], Some(table)) =
            (function.as_str(), args, catalogue::find(Some("pg_catalog"), "hf_keywords"))
        {
            let columns: Columns = table.columns.iter().map(|(n, o)| derived(n, Type::new(*o))).collect();
            let stored: Vec<String> = table.columns.iter().map(|(n, _)| (*n).to_owned()).collect();
            let names = alias.map(alias_columns).unwrap_or_default();
            let columns = with_stored_names(&columns, &names, &shown, &stored)?;
            add(scope, Relation::new(shown.as_str(), columns, Source::Function))?;
            return Ok((format!("pg_catalog.{} AS {}", quote(table.name), quote(&shown)), false));
        }
        if let ("pg_get_publication_tables", [FunctionArg::Unnamed(FunctionArgExpr::Expr(name))]) =
            (function.as_str(), args)
        {
            return self.publication_tables(name, alias, shown, scope);
        }
        let column = alias.and_then(|a| alias_columns(a).into_iter().next()).unwrap_or_else(|| shown.clone());
        let empty = Scope::new(scope.parent);
        let mut bound = Vec::new();
        for arg in args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => bound.push(self.fixed(|b| b.expr(e, &empty))?),
                _ => return Err(SqlError::unsupported(format!("named arguments of {function}"))),
            }
        }
        let (sql, ty) = match (function.as_str(), bound.len()) {
            ("generate_series", 2 | 3) => self.generate_series(bound)?,
            ("pg_partition_ancestors", 1) => ("SELECT NULL AS \"v\" WHERE 0".to_owned(), Type::new(2205)),
            ("unnest", 1) => {
                let array = self.settle(bound.remove(0), Type::new(crate::types::more::TEXT_ARRAY))?;
                let Some(element) = crate::types::element_of(array.ty.oid) else {
                    let message = format!("function unnest({}) does not exist", array.ty.name());
                    return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message));
                };
                let as_json = self.helper("hf_array_json", &[&array.sql, &element.to_string()])?;
                let value = match element {
                    oid::FLOAT4 | oid::FLOAT8 => "hf_real(value)",
                    oid::BYTEA => "unhex(value)",
                    _ => "value",
                };
                let list = format!("CASE WHEN {} IS NULL THEN '[]' ELSE {as_json} END", array.sql);
                (format!("SELECT {value} AS \"v\" FROM json_each({list})"), Type::new(element))
            }
            (_, 0) => {
                let typed = self.call_named(&function, &[], &empty)?;
                (format!("SELECT {} AS \"v\"", typed.sql), typed.ty)
            }
            _ => return Err(SqlError::unsupported(format!("the function {function} in FROM"))),
        };
        let sql = format!("({sql}) AS {}", quote(&shown));
        let column = Column { sql: Some(format!("{}.\"v\"", quote(&shown))), ..derived(&column, ty) };
        add(scope, Relation { scalar: true, ..Relation::new(shown, vec![column], Source::Function) })?;
        Ok((sql, false))
    }

    /// `pg_get_publication_tables(name)`, where the name may be a column of a table to the left.
    fn publication_tables(
        &mut self,
        name: &Expr,
        alias: Option<&TableAlias>,
        shown: String,
        scope: &mut Scope<'_>,
    ) -> SqlResult<(String, bool)> {
        let table = catalogue::find(Some("pg_catalog"), "hf_publication_tables")
            .ok_or_else(|| SqlError::internal("the catalogue has no hf_publication_tables"))?;
        let is_column =
            matches!(name, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) && !scope.relations.is_empty();
        let name = match is_column {
            true => self.fixed(|b| b.value_expr(name, scope))?,
            false => self.fixed(|b| b.value_expr(name, &Scope::new(scope.parent)))?,
        };
        let name = self.coerce(name, Type::TEXT, When::Implicit)?.sql;
        let returned = &table.columns[..3];
        let columns: Columns = returned.iter().map(|(n, o)| derived(n, Type::new(*o))).collect();
        let stored: Vec<String> = returned.iter().map(|(n, _)| (*n).to_owned()).collect();
        let columns = with_stored_names(&columns, &alias.map(alias_columns).unwrap_or_default(), &shown, &stored)?;
        let (stored, shown_as) = (format!("pg_catalog.{}", quote(table.name)), quote(&shown));
        let sql = match is_column {
            true => {
                self.lateral_on = Some(format!("{shown_as}.\"pubname\" = {name}"));
                format!("{stored} AS {shown_as}")
            }
            false => format!("(SELECT * FROM {stored} WHERE \"pubname\" = {name}) AS {shown_as}"),
        };
        add(scope, Relation::new(shown, columns, Source::Function))?;
        Ok((sql, false))
    }

    /// generate_series over integers, as a recursive query that stock SQLite understands.
    fn generate_series(&mut self, args: Vec<Typed>) -> SqlResult<(String, Type)> {
        let (args, ty) = self.unify("generate_series", args)?;
        if !ty.is_integer() {
            return Err(SqlError::unsupported(format!("generate_series over {}", ty.name())));
        }
        let step = match args.get(2) {
            Some(step) => self.helper("hf_step", &[&step.sql])?,
            None => "1".into(),
        };
        let sql = format!(
            "WITH RECURSIVE \"s\"(\"v\", \"stop\", \"step\") AS (SELECT * FROM (SELECT {} AS \"v\", {} AS \"stop\", {step} AS \"step\") \
             WHERE (\"step\" > 0 AND \"v\" <= \"stop\") OR (\"step\" < 0 AND \"v\" >= \"stop\") \
             UNION ALL SELECT \"v\" + \"step\", \"stop\", \"step\" FROM \"s\" \
             WHERE (\"step\" > 0 AND \"v\" <= \"stop\" - \"step\") OR (\"step\" < 0 AND \"v\" >= \"stop\" - \"step\")) \
             SELECT \"v\" FROM \"s\"",
            args[0].sql, args[1].sql
        );
        Ok((sql, ty))
    }
}

fn alias_columns(alias: &TableAlias) -> Vec<String> {
    alias.columns.iter().map(|c| fold(&c.name)).collect()
}

/// Columns under an alias, which SQLite knows by their stored names.
fn with_stored_names(columns: &[Column], names: &[String], alias: &str, stored: &[String]) -> SqlResult<Columns> {
    let mut out = renamed(columns, names, alias)?;
    for (column, stored) in out.iter_mut().zip(stored) {
        if column.name != *stored {
            column.sql = Some(format!("{}.{}", quote(alias), quote(stored)));
        }
    }
    Ok(out)
}

fn add(scope: &mut Scope<'_>, relation: Relation) -> SqlResult<()> {
    if scope.relations.iter().any(|r| r.alias == relation.alias) {
        let message = format!("table name \"{}\" specified more than once", relation.alias);
        return Err(SqlError::new(SqlState("42712"), message));
    }
    scope.relations.push(relation);
    Ok(())
}

fn side(operator: &JoinOperator) -> SqlResult<(Side, &JoinConstraint)> {
    Ok(match operator {
        JoinOperator::Join(c) | JoinOperator::Inner(c) | JoinOperator::CrossJoin(c) => (Side::Inner, c),
        JoinOperator::Left(c) | JoinOperator::LeftOuter(c) => (Side::Left, c),
        JoinOperator::Right(c) | JoinOperator::RightOuter(c) => (Side::Right, c),
        JoinOperator::FullOuter(c) => (Side::Full, c),
        other => return Err(SqlError::unsupported(format!("the join {other:?}"))),
    })
}

/// Names of the columns that an unqualified name can mean on the left side.
fn visible(scope: &Scope<'_>, first: usize, end: usize) -> Vec<String> {
    let mut names: Vec<String> = scope.merged.iter().map(|(c, _)| c.name.clone()).collect();
    for relation in &scope.relations[first..end] {
        for column in &relation.columns {
            if !names.contains(&column.name) {
                names.push(column.name.clone());
            }
        }
    }
    names
}

type Found = (String, Column, Vec<(usize, usize)>);

/// The one column of that name among the relations; 42703 or 42702 otherwise.
fn only(scope: &Scope<'_>, range: std::ops::Range<usize>, name: &str, side: &str) -> SqlResult<Found> {
    let mut found: Option<Found> = None;
    for r in range {
        for (c, column) in scope.relations[r].columns.iter().enumerate().filter(|(_, c)| c.name == name) {
            if found.is_some() {
                let message = format!("common column name \"{name}\" appears more than once in {side} table");
                return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message));
            }
            found = Some((scope.column_sql(r, c), column.clone(), vec![(r, c)]));
        }
    }
    found.ok_or_else(|| {
        let message = format!("column \"{name}\" specified in USING clause does not exist in {side} table");
        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
    })
}
