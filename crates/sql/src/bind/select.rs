//! One SELECT: its list, its grouping, and an ORDER BY that may use any expression.

use super::Binder;
use super::coerce::When;
use super::lock::Locking;
use super::query::{Bound, Targets, derived, order_items, unique_names};
use super::scope::{Column, Named, Scope};
use super::typed::{Shape, Typed};
use crate::names::{fold, quote};
use crate::types::{self, Type};
use holdfast_types::desc::oid;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{
    Distinct, Expr, GroupByExpr, NamedWindowExpr, OrderBy, OrderByExpr, Select, SelectItem,
    SelectItemQualifiedWildcardKind, Spanned,
};

/// PostgreSQL's limit for the columns of a result.
const COLUMNS_MAX: usize = 1664;

impl Binder<'_> {
    pub(super) fn select(
        &mut self,
        select: &Select,
        order: Option<&OrderBy>,
        parent: Option<&Scope<'_>>,
        targets: Targets<'_>,
    ) -> SqlResult<Bound> {
        refuse_extras(select)?;
        let distinct = match &select.distinct {
            None | Some(Distinct::All) => false,
            Some(Distinct::Distinct) => true,
            Some(Distinct::On(_)) => return Err(SqlError::unsupported("SELECT DISTINCT ON")),
        };
        let outermost = std::mem::take(&mut self.outermost);
        let locking = std::mem::take(&mut self.locking);
        let mut scope = Scope::new(parent);
        let (from, empty) = self.from(&select.from, &mut scope)?;
        let outer = self.lenient;
        self.lenient |= empty;
        let result = self.select_rest(select, order, &mut scope, from, (distinct, outermost, &locking), targets);
        self.lenient = outer;
        result
    }

    fn select_rest(
        &mut self,
        select: &Select,
        order: Option<&OrderBy>,
        scope: &mut Scope<'_>,
        from: String,
        (distinct, outermost, locking): (bool, bool, &Locking),
        targets: Targets<'_>,
    ) -> SqlResult<Bound> {
        let filter = match &select.selection {
            None => String::new(),
            Some(e) => {
                let bound = self.clause(scope, |b, s| b.condition(e, "WHERE", s), "WHERE");
                format!(" WHERE {}", self.never(bound, Type::BOOL)?.sql)
            }
        };
        let windows = self.windows(select, scope)?;
        let group_exprs = self.group_exprs(select, scope)?;
        let mut items = self.items(select, &group_exprs, scope)?;
        self.settle_items(&mut items, targets)?;
        if outermost {
            for item in items.iter_mut().filter(|i| i.typed.ty.is_oid() && i.typed.ty.oid != oid::OID) {
                item.typed.sql = self.shown_oid(&item.typed)?;
            }
        }
        if let Some(item) = items.iter().find(|i| distinct && i.typed.ty.has_unequal_forms()) {
            return Err(refused_rows("DISTINCT", item.typed.ty));
        }
        let sorts = self.groups_by_sorting(select, &group_exprs, order, scope);
        let (group, keys) = self.group(&group_exprs, sorts, scope)?;
        let having = match &select.having {
            None => String::new(),
            Some(e) => {
                scope.grouping.borrow_mut().aggregates = true;
                format!(" HAVING {}", self.grouped(e, &group_exprs, scope, |b, e, s| b.condition(e, "HAVING", s))?.sql)
            }
        };
        let order = match order {
            None => String::new(),
            Some(order) => self.order(order_items(order)?, &items, &group_exprs, scope, distinct)?,
        };
        check_grouping(scope, &keys, !group_exprs.is_empty())?;
        let columns: Vec<Column> = items.iter().map(column_of).collect();
        let names = unique_names(&columns);
        let hidden = self.lock_rows(locking, select, scope, items.len())?;
        let mut list: Vec<String> =
            items.iter().zip(&names).map(|(i, name)| format!("{} AS {}", i.typed.sql, quote(name))).collect();
        list.extend(hidden);
        let list = if list.is_empty() { "NULL".to_owned() } else { list.join(", ") };
        let word = if distinct { "SELECT DISTINCT" } else { "SELECT" };
        Ok(Bound { sql: format!("{word} {list}{from}{filter}{group}{having}{windows}{order}"), columns })
    }

    /// Binds a clause in which aggregates are not allowed.
    fn clause<T>(
        &mut self,
        scope: &Scope<'_>,
        f: impl FnOnce(&mut Self, &Scope<'_>) -> SqlResult<T>,
        name: &str,
    ) -> SqlResult<T> {
        let (bare, before) = {
            let mut grouping = scope.grouping.borrow_mut();
            (grouping.bare.len(), std::mem::take(&mut grouping.aggregates))
        };
        let result = self.fixed(|b| f(b, scope));
        let mut grouping = scope.grouping.borrow_mut();
        grouping.bare.truncate(bare);
        if std::mem::replace(&mut grouping.aggregates, before) && result.is_ok() {
            let message = format!("aggregate functions are not allowed in {name}");
            return Err(SqlError::new(SqlState::GROUPING_ERROR, message));
        }
        result
    }

    /// In a query that can return no rows, replaces an expression that cannot be translated: it is never evaluated.
    fn never(&self, bound: SqlResult<Typed>, ty: Type) -> SqlResult<Typed> {
        match bound {
            Err(e) if self.lenient && e.state() == SqlState::FEATURE_NOT_SUPPORTED => Ok(Typed::new("NULL", ty)),
            other => other,
        }
    }

    fn items(&mut self, select: &Select, groups: &[&Expr], scope: &mut Scope<'_>) -> SqlResult<Vec<Named>> {
        let mut items = Vec::new();
        for item in &select.projection {
            match item {
                SelectItem::UnnamedExpr(e) => {
                    let bound = self.grouped(e, groups, scope, |b, e, s| b.expr(e, s));
                    let typed = self.never(bound, Type::TEXT)?;
                    items.push(Named { name: column_name(e), typed });
                }
                SelectItem::ExprWithAlias { alias, .. } if alias.quote_style == Some('\'') => {
                    let message = format!("syntax error at or near \"'{}'\"", alias.value);
                    return self.at(Err(SqlError::new(SqlState::SYNTAX_ERROR, message)), alias.span.start);
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    let bound = self.grouped(expr, groups, scope, |b, e, s| b.expr(e, s));
                    let typed = self.never(bound, Type::TEXT)?;
                    items.push(Named { name: fold(alias), typed });
                }
                SelectItem::Wildcard(_) if scope.relations.is_empty() => {
                    return Err(SqlError::new(
                        SqlState::SYNTAX_ERROR,
                        "SELECT * with no tables specified is not valid",
                    ));
                }
                SelectItem::Wildcard(_) => items.extend(scope.star()),
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    let (_, alias) = crate::names::object_name(name)?;
                    let Some(relation) = scope.relation(&alias) else {
                        let message = format!("missing FROM-clause entry for table \"{alias}\"");
                        return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
                    };
                    items.extend(scope.star_of(relation, false));
                }
                other => return Err(SqlError::unsupported(format!("the select item {other}"))),
            }
            if items.len() > COLUMNS_MAX {
                let message = format!("target lists can have at most {COLUMNS_MAX} entries");
                return Err(SqlError::new(SqlState("54011"), message));
            }
        }
        Ok(items)
    }

    /// Binds an expression of a grouped query: one that GROUP BY names may use any column.
    fn grouped(
        &mut self,
        e: &Expr,
        groups: &[&Expr],
        scope: &Scope<'_>,
        f: impl FnOnce(&mut Self, &Expr, &Scope<'_>) -> SqlResult<Typed>,
    ) -> SqlResult<Typed> {
        let whole = groups.contains(&e);
        let before = std::mem::replace(&mut scope.grouping.borrow_mut().grouped, whole);
        let result = self.fixed(|b| f(b, e, scope));
        scope.grouping.borrow_mut().grouped = before;
        result
    }

    fn settle_items(&mut self, items: &mut [Named], targets: Targets<'_>) -> SqlResult<()> {
        if let Some((types, _)) = targets
            && !types.is_empty()
            && types.len() != items.len()
        {
            let message = "each query must have the same number of columns";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        for (i, item) in items.iter_mut().enumerate() {
            let typed = item.typed.clone();
            item.typed = match targets {
                Some(([], _)) => {
                    if typed.is_open() {
                        Typed { sql: "NULL".into(), ..typed }
                    } else {
                        typed
                    }
                }
                Some((types, when)) => {
                    let settled = self.coerce(typed, types[i], when)?;
                    Typed { ty: types[i], ..settled }
                }
                None => self.coerce_output(typed)?,
            };
        }
        Ok(())
    }

    fn coerce_output(&mut self, typed: Typed) -> SqlResult<Typed> {
        if typed.is_open() { self.coerce(typed, Type::TEXT, When::Implicit) } else { Ok(typed) }
    }

    fn group_exprs<'e>(&self, select: &'e Select, scope: &Scope<'_>) -> SqlResult<Vec<&'e Expr>> {
        let GroupByExpr::Expressions(exprs, modifiers) = &select.group_by else {
            return Err(SqlError::unsupported("GROUP BY ALL"));
        };
        if !modifiers.is_empty()
            || exprs.iter().any(|e| matches!(e, Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_)))
        {
            return Err(SqlError::unsupported("GROUP BY with ROLLUP, CUBE or GROUPING SETS"));
        }
        let output = |name: &str| {
            select.projection.iter().find_map(|item| match item {
                SelectItem::ExprWithAlias { expr, alias } if fold(alias) == name => Some(expr),
                _ => None,
            })
        };
        exprs
            .iter()
            .map(|e| match e {
                Expr::Value(v) => {
                    let n = v.value.to_string().parse::<usize>().ok().filter(|n| *n >= 1);
                    match n.and_then(|n| select.projection.get(n - 1)) {
                        Some(SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. }) => Ok(e),
                        _ => Err(SqlError::new(
                            SqlState("42P10"),
                            format!("GROUP BY position {} is not in select list", v.value),
                        )),
                    }
                }
                // The name means an output column only if no input column has it.
                Expr::Identifier(i) if scope.has_column(&fold(i)) => Ok(e),
                Expr::Identifier(i) => Ok(output(&fold(i)).unwrap_or(e)),
                other => Ok(other),
            })
            .collect()
    }

    /// Binds the GROUP BY clause; `sorts`: it is to follow no index. Returns its text and the columns that are keys.
    fn group(&mut self, exprs: &[&Expr], sorts: bool, scope: &Scope<'_>) -> SqlResult<(String, Vec<String>)> {
        let mut keys = Vec::new();
        let mut parts = Vec::new();
        for e in exprs {
            let typed = self.clause(scope, |b, s| b.expr(e, s), "GROUP BY")?;
            let typed = self.coerce_output(typed)?;
            if typed.is_column() {
                keys.push(typed.sql.clone());
            }
            // SQLite would read a constant as a position.
            let plain = typed.sql.parse::<f64>().is_ok();
            let column = typed.is_column();
            parts.push(match typed.ty.has_sort_form() {
                true => self.sort_form(&typed)?,
                false if plain => format!("({} + 0)", typed.sql),
                false if sorts && column => format!("+{}", typed.sql),
                false => typed.sql,
            });
        }
        Ok((if parts.is_empty() { String::new() } else { format!(" GROUP BY {}", parts.join(", ")) }, keys))
    }

    fn order(
        &mut self,
        order: &[OrderByExpr],
        items: &[Named],
        groups: &[&Expr],
        scope: &Scope<'_>,
        distinct: bool,
    ) -> SqlResult<String> {
        let mut keys = Vec::new();
        for item in order {
            if item.with_fill.is_some() {
                return Err(SqlError::unsupported("WITH FILL"));
            }
            let key = match output_position(&item.expr, items)? {
                Some(i) if items[i].typed.ty.has_sort_form() => items[i].typed.clone(),
                Some(i) => Typed { sql: (i + 1).to_string(), ..items[i].typed.clone() },
                None => {
                    let bound = self.grouped(&item.expr, groups, scope, |b, e, s| b.expr(e, s));
                    let typed = self.never(bound, Type::TEXT)?;
                    let typed = self.coerce_output(typed)?;
                    match items.iter().position(|i| i.typed.sql == typed.sql) {
                        Some(i) if !typed.ty.has_sort_form() => Typed { sql: (i + 1).to_string(), ..typed },
                        None if distinct => {
                            let message = "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
                            let error = SqlError::new(SqlState("42P10"), message);
                            return self.at(Err(error), item.expr.span().start);
                        }
                        _ => typed,
                    }
                }
            };
            if matches!(key.shape, Shape::Number { .. }) && key.sql.parse::<usize>().is_err() {
                continue;
            }
            keys.push(self.order_key(&key, &item.options)?);
        }
        Ok(if keys.is_empty() { String::new() } else { format!(" ORDER BY {}", keys.join(", ")) })
    }

    fn windows(&mut self, select: &Select, scope: &Scope<'_>) -> SqlResult<String> {
        let mut parts = Vec::new();
        for window in &select.named_window {
            let NamedWindowExpr::WindowSpec(spec) = &window.1 else {
                return Err(SqlError::unsupported("a window that is based on another window"));
            };
            let sql = self.window_spec(spec, scope)?;
            parts.push(format!("{} AS ({sql})", quote(&fold(&window.0))));
        }
        Ok(if parts.is_empty() { String::new() } else { format!(" WINDOW {}", parts.join(", ")) })
    }

    /// Binds the columns of a RETURNING list.
    pub fn returning(&mut self, items: &[SelectItem], scope: &Scope<'_>) -> SqlResult<(String, Vec<Column>)> {
        let mut named = Vec::new();
        for item in items {
            match item {
                SelectItem::Wildcard(_) => named.extend(scope.star()),
                SelectItem::UnnamedExpr(e) => {
                    let typed = self.fixed(|b| b.expr(e, scope))?;
                    named.push(Named { name: column_name(e), typed: self.coerce_output(typed)? });
                }
                SelectItem::ExprWithAlias { expr, alias } => {
                    let typed = self.fixed(|b| b.expr(expr, scope))?;
                    named.push(Named { name: fold(alias), typed: self.coerce_output(typed)? });
                }
                SelectItem::QualifiedWildcard(..) => named.extend(scope.star()),
                other => return Err(SqlError::unsupported(format!("the RETURNING item {other}"))),
            }
        }
        if scope.grouping.borrow().aggregates {
            return Err(SqlError::new(SqlState::GROUPING_ERROR, "aggregate functions are not allowed in RETURNING"));
        }
        let sql: Vec<String> = named.iter().map(|n| format!("{} AS {}", n.typed.sql, quote(&n.name))).collect();
        Ok((format!(" RETURNING {}", sql.join(", ")), named.iter().map(column_of).collect()))
    }
}

/// 0A000 for a comparison of whole rows in which equal values can have different stored forms.
pub(super) fn refused_rows(what: &str, ty: Type) -> SqlError {
    match ty.oid {
        oid::NUMERIC => SqlError::unsupported(format!("{what} of numeric values without a scale"))
            .with_hint("Cast to numeric(p,s)."),
        _ => SqlError::unsupported(format!("{what} of values of type {}", ty.name())).with_hint("Use GROUP BY."),
    }
}

fn column_of(item: &Named) -> Column {
    let column = derived(&item.name, item.typed.ty);
    match item.typed.shape {
        Shape::Column { table_oid, attnum, .. } => {
            Column { table_oid, attnum, not_null: item.typed.not_null, ..column }
        }
        _ => Column { not_null: item.typed.not_null, ..column },
    }
}

/// The output column that an ORDER BY item names by its number or name.
fn output_position(e: &Expr, items: &[Named]) -> SqlResult<Option<usize>> {
    match e {
        Expr::Value(v) => match v.value.to_string().parse::<usize>() {
            Ok(n) if n >= 1 && n <= items.len() => Ok(Some(n - 1)),
            Ok(n) => Err(SqlError::new(SqlState("42P10"), format!("ORDER BY position {n} is not in select list"))),
            Err(_) => Ok(None),
        },
        Expr::Identifier(ident) => {
            let name = fold(ident);
            let mut named = items.iter().enumerate().filter(|(_, i)| i.name == name);
            let Some((first, item)) = named.next() else { return Ok(None) };
            if named.any(|(_, other)| other.typed.sql != item.typed.sql) {
                return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, format!("ORDER BY \"{name}\" is ambiguous")));
            }
            Ok(Some(first))
        }
        _ => Ok(None),
    }
}

/// 42803 for a column that is neither grouped nor aggregated, where SQLite would take it from any row.
fn check_grouping(scope: &Scope<'_>, keys: &[String], has_groups: bool) -> SqlResult<()> {
    let grouping = scope.grouping.borrow();
    if !has_groups && !grouping.aggregates {
        return Ok(());
    }
    let whole_key = |relation: usize| {
        scope.relations.get(relation).is_some_and(|r| {
            !r.key.is_empty() && r.key.iter().all(|k| keys.contains(&format!("{}.{}", quote(&r.alias), quote(k))))
        })
    };
    for (shown, relation) in &grouping.bare {
        let (alias, name) = shown.split_once('.').unwrap_or(("", shown));
        let sql = format!("{}.{}", quote(alias), quote(name));
        let merged = *relation == usize::MAX;
        if keys.contains(&sql) || whole_key(*relation) || (merged && keys.iter().any(|k| k.ends_with(&quote(name)))) {
            continue;
        }
        let message =
            format!("column \"{shown}\" must appear in the GROUP BY clause or be used in an aggregate function");
        return Err(SqlError::new(SqlState::GROUPING_ERROR, message));
    }
    Ok(())
}

/// The name PostgreSQL gives an output column (`FigureColname` in parse_target.c).
pub fn column_name(e: &Expr) -> String {
    figure(e).unwrap_or_else(|| "?column?".into())
}

fn figure(e: &Expr) -> Option<String> {
    strong_name(e).or_else(|| weak_name(e))
}

/// A name that is used only if the expression has no better one.
fn weak_name(e: &Expr) -> Option<String> {
    let of_type = |data_type| {
        let ty = types::from_ast(data_type).ok()?;
        let of = types::element_of(ty.oid).unwrap_or(ty.oid);
        Some(types::by_oid(of).map_or_else(|| ty.name(), |t| t.name.to_owned()))
    };
    match e {
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => weak_name(inner),
        Expr::Cast { data_type, .. } => of_type(data_type),
        Expr::TypedString(t) => of_type(&t.data_type),
        Expr::Interval(_) => Some("interval".into()),
        Expr::Case { else_result, .. } => else_result.as_deref().and_then(weak_name).or_else(|| Some("case".into())),
        _ => None,
    }
}

/// The name of a column, of a function, or of the expression inside a cast.
fn strong_name(e: &Expr) -> Option<String> {
    Some(match e {
        Expr::Identifier(i) => match fold(i).as_str() {
            "session_user" => "session_user".into(),
            other => other.to_owned(),
        },
        Expr::CompoundIdentifier(parts) => fold(parts.last()?),
        Expr::Function(f) => fold(f.name.0.last()?.as_ident()?),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } | Expr::Cast { expr: inner, .. } => {
            return strong_name(inner);
        }
        Expr::Case { else_result, .. } => return else_result.as_deref().and_then(strong_name),
        Expr::Exists { .. } => "exists".into(),
        Expr::Extract { .. } => "extract".into(),
        Expr::Position { .. } => "position".into(),
        Expr::Substring { shorthand, .. } => if *shorthand { "substr" } else { "substring" }.into(),
        Expr::Overlay { .. } => "overlay".into(),
        Expr::Trim { trim_where, .. } => match trim_where {
            Some(sqlparser::ast::TrimWhereField::Leading) => "ltrim".into(),
            Some(sqlparser::ast::TrimWhereField::Trailing) => "rtrim".into(),
            _ => "btrim".into(),
        },
        Expr::Ceil { .. } => "ceil".into(),
        Expr::Floor { .. } => "floor".into(),
        Expr::AtTimeZone { .. } => "timezone".into(),
        Expr::CompoundFieldAccess { root, .. } => return figure(root),
        Expr::Array(_) => "array".into(),
        Expr::Tuple(items) if items.len() > 1 => "row".into(),
        Expr::Subquery(query) => match query.body.as_select()?.projection.first()? {
            SelectItem::UnnamedExpr(e) => return figure(e),
            SelectItem::ExprWithAlias { alias, .. } => fold(alias),
            _ => return None,
        },
        _ => return None,
    })
}

fn refuse_extras(select: &Select) -> SqlResult<()> {
    if select.into.is_some() {
        return Err(SqlError::unsupported("SELECT INTO").with_hint("Use CREATE TABLE AS."));
    }
    let foreign = select.top.is_some()
        || !select.lateral_views.is_empty()
        || select.prewhere.is_some()
        || !select.connect_by.is_empty()
        || !select.cluster_by.is_empty()
        || !select.distribute_by.is_empty()
        || !select.sort_by.is_empty()
        || select.qualify.is_some()
        || select.value_table_mode.is_some()
        || select.exclude.is_some();
    if foreign {
        return Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            "syntax error: the SELECT has a clause that PostgreSQL does not have",
        ));
    }
    Ok(())
}
