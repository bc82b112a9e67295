//! INSERT, UPDATE and DELETE.
//!
//! What SQLite's tables do not enforce is enforced here. Assignment casts enforce integer ranges and string lengths. A
//! check refuses a missing id of an integer primary key, and NULLs in the columns of a primary key that was added
//! later. If the statement gives no id for a new row, [`crate::ids`] does, even if no column shows it. The session, not
//! SQLite, computes defaults that depend on the clock.

use super::Binder;
use super::coerce::When;
use super::need::Used;
use super::query::Bound;
use super::scope::{self, Column, Relation, Scope, Source};
use super::typed::Typed;
use crate::default;
use crate::ids::{self, OverRows};
use crate::keys::{self, primary_key};
use crate::names::{fold, quote, quote_text};
use crate::types::{RowidKind, Type};
use holdfast_types::access::Privileges;
use holdfast_types::schema::{Dialect, Table, TableKind};
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{
    Assignment, AssignmentTarget, ConflictTarget, Delete, Expr, FromTable, Insert, OnConflictAction, OnInsert, SetExpr,
    Spanned, TableFactor, TableObject, TableWithJoins, Update, UpdateTableFromKind,
};

fn writable<'s>(b: &mut Binder<'s>, name: &sqlparser::ast::ObjectName) -> SqlResult<&'s Table> {
    let schema: &'s holdfast_types::schema::Schema = b.ctx.schema;
    let table = b.at(scope::table_named(schema, name), name.span().start)?;
    b.temporary |= table.temp;
    match table.kind {
        TableKind::View => Err(SqlError::new(
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            format!("cannot change view \"{}\"", table.name),
        )),
        _ => Ok(table),
    }
}

/// True for a column in which SQLite itself would store a NULL, or replace it by a new id; the system column `rowid` is one.
fn must_check_null(table: &Table, column: &Column) -> bool {
    let stored = table.columns.iter().find(|c| c.name == column.name);
    column.not_null && stored.is_none_or(|c| c.rowid_alias || !c.not_null)
}

fn own_columns(table: &Table, dialect: Dialect) -> Vec<Column> {
    let mut columns = scope::columns_of(table, dialect);
    for column in &mut columns {
        column.sql = Some(quote(&column.name));
    }
    columns
}

impl Binder<'_> {
    fn not_null(&mut self, typed: Typed, table: &Table, column: &Column) -> SqlResult<Typed> {
        if typed.not_null || !must_check_null(table, column) {
            return Ok(typed);
        }
        let names = [quote_text(&column.name), quote_text(&table.name)];
        let sql = self.helper("hf_not_null", &[&typed.sql, &names[0], &names[1]])?;
        Ok(Typed { sql, ..typed })
    }

    /// The value of a column that an INSERT leaves to its default. `None` where SQLite computes the same value.
    fn default_value(&mut self, table: &Table, column: &Column) -> SqlResult<Option<Typed>> {
        let Some(stored) = table.columns.iter().find(|c| c.name == column.name) else { return Ok(None) };
        if stored.generated {
            return Ok(None);
        }
        if stored.rowid_alias {
            if self.ctx.dialect == Dialect::Postgres && !RowidKind::of(table).serial() {
                if let Some(default) = &stored.default {
                    return Ok(Some(Typed::sure(format!("({default})"), column.ty)));
                }
                return Err(missing(table, column));
            }
            self.takes_id(table);
            return Ok(ids::next_id(table).map(|next| Typed::sure(next, column.ty)));
        }
        match stored.default.as_deref().and_then(default::clock) {
            Some(which) => self.session(which, Type::new(column.ty.oid)).map(Some),
            None if stored.default.is_none() && must_check_null(table, column) => Err(missing(table, column)),
            None => Ok(None),
        }
    }
}

fn missing(table: &Table, column: &Column) -> SqlError {
    let message =
        format!("null value in column \"{}\" of relation \"{}\" violates not-null constraint", column.name, table.name);
    SqlError::new(SqlState::NOT_NULL_VIOLATION, message)
}

/// Binds an INSERT. Returns its text and the columns that it returns.
pub fn insert(b: &mut Binder<'_>, insert: &Insert) -> SqlResult<Bound> {
    let TableObject::TableName(name) = &insert.table else {
        return Err(SqlError::unsupported("INSERT into something other than a table"));
    };
    if insert.or.is_some() || insert.replace_into || insert.ignore || !insert.assignments.is_empty() {
        return Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            "syntax error: PostgreSQL does not have this form of INSERT",
        )
        .with_hint("Use ON CONFLICT."));
    }
    let table = writable(b, name)?;
    let used = b.uses(table, name, Privileges::INSERT);
    let all = scope::columns_of(table, b.ctx.dialect);
    let mut columns = target_columns(b, insert, table, &all)?;
    let rows = match &insert.source {
        None => {
            columns.clear();
            None
        }
        Some(source) => Some(source),
    };
    if let Some(used) = &used {
        used.changes(table, Privileges::INSERT, columns.iter().map(|c| c.name.as_str()));
        if columns.iter().any(|c| c.attnum == scope::SYSTEM_ATTNUM) {
            used.inserts_system_column();
        }
    }
    let mut defaults = Vec::new();
    for column in all.iter().filter(|c| !columns.iter().any(|t| t.name == c.name)) {
        if let Some(value) = b.default_value(table, column)? {
            defaults.push((column.name.clone(), value.sql));
        }
    }
    let hidden = ids::id_column(table).filter(|id| all.iter().chain(&columns).all(|c| c.name != *id));
    if let (Some(hidden), Some(next)) = (hidden, ids::next_id(table)) {
        defaults.push((hidden.to_owned(), next));
    }
    let source = match rows {
        None if defaults.is_empty() => "DEFAULT VALUES".to_owned(),
        None => format!("VALUES ({})", defaults.iter().map(|d| d.1.as_str()).collect::<Vec<_>>().join(", ")),
        Some(source) => {
            match (&*source.body, source.with.is_none() && source.order_by.is_none() && source.limit_clause.is_none()) {
                (SetExpr::Values(values), true) => {
                    let rows: Vec<&Vec<Expr>> = values.rows.iter().map(|r| &r.content).collect();
                    insert_values(b, table, &columns, &rows, &defaults)?
                }
                _ => insert_query(b, table, &columns, source, &defaults)?,
            }
        }
    };
    let mut names: Vec<String> = columns.iter().map(|c| quote(&c.name)).collect();
    names.extend(defaults.iter().map(|d| quote(&d.0)));
    let alias = insert.table_alias.as_ref().map(|a| fold(&a.alias));
    let shown = alias.as_ref().map(|a| format!(" AS {}", quote(a))).unwrap_or_default();
    let listed = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    let mut sql = format!("INSERT INTO {}{shown}{listed} {source}", b.stands(table));
    if let Some(on) = &insert.on {
        sql.push_str(&on_conflict(b, table, alias.as_deref().unwrap_or(&table.name), used.as_ref(), on)?);
    }
    let alias = alias.as_deref().unwrap_or(&table.name);
    returning(b, (table, alias, used), insert.returning.as_deref(), sql)
}

fn target_columns(b: &Binder<'_>, insert: &Insert, table: &Table, all: &[Column]) -> SqlResult<Vec<Column>> {
    if insert.columns.is_empty() {
        let width = match insert.source.as_deref().map(|q| &*q.body) {
            Some(SetExpr::Values(v)) => v.rows.iter().map(|r| r.len()).max().unwrap_or(0),
            Some(SetExpr::Select(s)) if !s.projection.iter().any(|i| i.to_string().ends_with('*')) => {
                s.projection.len()
            }
            _ => all.len(),
        };
        if width > all.len() {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "INSERT has more expressions than target columns"));
        }
        return Ok(all[..width].to_vec());
    }
    let mut columns: Vec<Column> = Vec::new();
    // A table with a key of its own has another name for the rowid.
    let system = scope::rowid_of(table, b.ctx.dialect).filter(|c| c.attnum == scope::SYSTEM_ATTNUM);
    for name in &insert.columns {
        let (_, bare) = crate::names::object_name(name)?;
        let found = all.iter().chain(&system).find(|c| c.name == bare).ok_or_else(|| {
            let message = format!("column \"{bare}\" of relation \"{}\" does not exist", table.name);
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        });
        let found = b.at(found, name.span().start)?;
        if columns.iter().any(|c| c.name == bare) {
            let message = format!("column \"{bare}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        columns.push(found.clone());
    }
    Ok(columns)
}

fn is_default(e: &Expr) -> bool {
    matches!(e, Expr::Identifier(i) if i.quote_style.is_none() && i.value.eq_ignore_ascii_case("default"))
}

fn insert_values(
    b: &mut Binder<'_>,
    table: &Table,
    columns: &[Column],
    rows: &[&Vec<Expr>],
    defaults: &[(String, String)],
) -> SqlResult<String> {
    let empty = Scope::new(None);
    let mut out = Vec::with_capacity(rows.len());
    for row in rows {
        match row.len() {
            n if n > columns.len() => {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "INSERT has more expressions than target columns"));
            }
            n if n < columns.len() => {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "INSERT has more target columns than expressions"));
            }
            _ => {}
        }
        let mut items = Vec::with_capacity(row.len() + defaults.len());
        for (e, column) in row.iter().zip(columns) {
            let result = match is_default(e) || !chooses_id(b, table, column) {
                true => value_of(b, table, column, e, &empty),
                false => given(b, table, column, e, &empty).map(|typed| or_next_id(typed, table)),
            };
            items.push(b.at(result, e.span().start)?.sql);
        }
        items.extend(defaults.iter().map(|d| d.1.clone()));
        out.push(format!("({})", items.join(", ")));
    }
    Ok(format!("VALUES {}", out.join(", ")))
}

/// Binds a VALUES item or the right side of SET, converted to the column's type.
fn value_of(b: &mut Binder<'_>, table: &Table, column: &Column, e: &Expr, scope: &Scope<'_>) -> SqlResult<Typed> {
    if is_default(e) {
        return match b.default_value(table, column)? {
            Some(value) => Ok(value),
            None => {
                let stored = table.columns.iter().find(|c| c.name == column.name);
                let default = stored.and_then(|c| c.default.clone());
                Ok(Typed::new(default.map_or("NULL".into(), |d| format!("({d})")), column.ty))
            }
        };
    }
    let typed = given(b, table, column, e, scope)?;
    b.not_null(typed, table, column)
}

/// Binds a value other than DEFAULT (it may be NULL), converted to the column's type.
fn given(b: &mut Binder<'_>, table: &Table, column: &Column, e: &Expr, scope: &Scope<'_>) -> SqlResult<Typed> {
    let stored = table.columns.iter().find(|c| c.name == column.name);
    if stored.is_some_and(|c| c.generated) {
        let message = format!("cannot insert a non-DEFAULT value into column \"{}\"", column.name);
        return Err(SqlError::new(SqlState("428C9"), message));
    }
    let typed = b.lifting(|b| b.expr(e, scope))?;
    assign(b, typed, column)
}

/// True where a NULL for the id of a new row means "choose one", as in SQLite's dialect.
fn chooses_id(b: &Binder<'_>, table: &Table, column: &Column) -> bool {
    b.ctx.dialect == Dialect::Sqlite && table.columns.iter().any(|c| c.rowid_alias && c.name == column.name)
}

fn or_next_id(typed: Typed, table: &Table) -> Typed {
    if typed.not_null {
        return typed;
    }
    match ids::next_id(table) {
        Some(next) => Typed::sure(format!("coalesce({}, {next})", typed.sql), typed.ty),
        None => typed,
    }
}

fn assign(b: &mut Binder<'_>, typed: Typed, column: &Column) -> SqlResult<Typed> {
    let from = typed.ty;
    b.lifting(|b| b.coerce(typed, column.ty, When::Assignment)).map_err(|e| {
        if e.state() != SqlState::DATATYPE_MISMATCH {
            return e;
        }
        let (to, from) = (Type::new(column.ty.oid).name(), Type::new(from.oid).name());
        let message = format!("column \"{}\" is of type {to} but expression is of type {from}", column.name);
        SqlError::new(SqlState::DATATYPE_MISMATCH, message)
            .with_hint("You will need to rewrite or cast the expression.")
    })
}

fn insert_query(
    b: &mut Binder<'_>,
    table: &Table,
    columns: &[Column],
    source: &sqlparser::ast::Query,
    defaults: &[(String, String)],
) -> SqlResult<String> {
    let types: Vec<Type> = columns.iter().map(|c| c.ty).collect();
    let bound = b.fixed(|b| b.query(source, None, Some((&types, When::Assignment))))?;
    if bound.columns.len() != columns.len() {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "INSERT has more target columns than expressions"));
    }
    let mut items = Vec::new();
    for (i, (column, from)) in columns.iter().zip(&bound.columns).enumerate() {
        let typed = Typed { not_null: from.not_null, ..Typed::new(quote(&format!("c{}", i + 1)), column.ty) };
        let checked = match chooses_id(b, table, column) {
            true => or_next_id(typed, table),
            false => b.not_null(typed, table, column)?,
        };
        items.push(checked.sql);
    }
    items.extend(defaults.iter().map(|d| d.1.clone()));
    let over = OverRows::new(&items, columns.len(), &bound.sql);
    Ok(format!("{}{}{}", over.before, bound.sql, over.after))
}

fn on_conflict(
    b: &mut Binder<'_>,
    table: &Table,
    alias: &str,
    used: Option<&Used>,
    on: &OnInsert,
) -> SqlResult<String> {
    let OnInsert::OnConflict(on) = on else {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"DUPLICATE\""));
    };
    let target = match &on.conflict_target {
        None => String::new(),
        Some(ConflictTarget::Columns(columns)) => {
            let names: Vec<String> = columns.iter().map(fold).collect();
            check_arbiter(table, &names)?;
            if let Some(used) = used {
                used.reads(table, names.iter().map(String::as_str));
            }
            format!(" ({})", names.iter().map(|n| quote(n)).collect::<Vec<_>>().join(", "))
        }
        Some(ConflictTarget::OnConstraint(name)) => {
            let (_, bare) = crate::names::object_name(name)?;
            let columns = constraint_columns(table, &bare).ok_or_else(|| {
                let message = format!("constraint \"{bare}\" for table \"{}\" does not exist", table.name);
                SqlError::new(SqlState::UNDEFINED_OBJECT, message)
            })?;
            if let Some(used) = used {
                used.reads(table, columns.iter().map(String::as_str));
            }
            format!(" ({})", columns.iter().map(|n| quote(n)).collect::<Vec<_>>().join(", "))
        }
    };
    match &on.action {
        OnConflictAction::DoNothing => Ok(format!(" ON CONFLICT{target} DO NOTHING")),
        OnConflictAction::DoUpdate(update) => {
            if target.is_empty() {
                return Err(SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    "ON CONFLICT DO UPDATE requires inference specification or constraint name",
                )
                .with_hint("For example, ON CONFLICT (column_name)."));
            }
            b.changes_rows(table, true);
            let mut scope = Scope::new(None);
            let columns = scope::columns_of(table, b.ctx.dialect);
            // A column of the row that was not inserted is read like one of the stored row: a privilege on the column
            // decides, as in PostgreSQL.
            for name in [alias, "excluded"] {
                let source = Source::Table(table.name.clone());
                scope.relations.push(Relation { used: used.cloned(), ..Relation::new(name, columns.clone(), source) });
            }
            scope.relations[0].rowid = scope::rowid_of(table, b.ctx.dialect);
            // A bare name means a column of the target table.
            let target_only = Scope {
                relations: vec![scope.relations[0].clone()],
                merged: Vec::new(),
                parent: Some(&scope),
                grouping: Default::default(),
            };
            let set = assignments(b, table, used, &update.assignments, &target_only)?;
            let filter = match &update.selection {
                Some(e) => format!(" WHERE {}", b.fixed(|b| b.condition(e, "WHERE", &target_only))?.sql),
                None => String::new(),
            };
            Ok(format!(" ON CONFLICT{target} DO UPDATE SET {set}{filter}"))
        }
    }
}

fn check_arbiter(table: &Table, names: &[String]) -> SqlResult<()> {
    let same = |columns: &[String]| columns.len() == names.len() && names.iter().all(|n| columns.contains(n));
    let unique = table.indexes.iter().filter(|i| i.unique).any(|i| {
        let columns: Vec<String> = i.columns.iter().flatten().cloned().collect();
        columns.len() == i.columns.len() && same(&columns)
    });
    if unique || same(&primary_key(table)) {
        return Ok(());
    }
    Err(SqlError::new(
        SqlState("42P10"),
        "there is no unique or exclusion constraint matching the ON CONFLICT specification",
    ))
}

fn constraint_columns(table: &Table, name: &str) -> Option<Vec<String>> {
    if name == table.key_name {
        let key = primary_key(table);
        return (!key.is_empty()).then_some(key);
    }
    let index = table.indexes.iter().find(|i| i.unique && keys::index_name(table, i) == name)?;
    index.columns.iter().cloned().collect()
}

fn assignments(
    b: &mut Binder<'_>,
    table: &Table,
    used: Option<&Used>,
    list: &[Assignment],
    scope: &Scope<'_>,
) -> SqlResult<String> {
    let columns = own_columns(table, b.ctx.dialect);
    let mut parts = Vec::new();
    let mut seen: Vec<String> = Vec::new();
    for assignment in list {
        let targets = match &assignment.target {
            AssignmentTarget::ColumnName(name) => vec![name],
            AssignmentTarget::Tuple(names) => names.iter().collect(),
        };
        let values: Vec<&Expr> = match (&assignment.target, &assignment.value) {
            (AssignmentTarget::ColumnName(_), e) => vec![e],
            (_, Expr::Tuple(values)) => values.iter().collect(),
            (_, Expr::Nested(e)) if targets.len() == 1 => vec![e],
            _ => return Err(SqlError::unsupported("SET (columns) = (subquery)")),
        };
        if targets.len() != values.len() {
            let message = "number of columns does not match number of values";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        for (name, value) in targets.into_iter().zip(values) {
            let bare = name.0.last().and_then(|p| p.as_ident()).map(fold).unwrap_or_default();
            let column = columns.iter().find(|c| c.name == bare).ok_or_else(|| {
                let message = format!("column \"{bare}\" of relation \"{}\" does not exist", table.name);
                SqlError::new(SqlState::UNDEFINED_COLUMN, message)
            });
            let column = b.at(column, name.span().start)?;
            if seen.contains(&bare) {
                let message = format!("multiple assignments to same column \"{bare}\"");
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            let result = value_of(b, table, column, value, scope);
            let typed = b.at(result, value.span().start)?;
            parts.push(format!("{} = {}", quote(&bare), typed.sql));
            seen.push(bare);
        }
    }
    if let Some(used) = used {
        used.changes(table, Privileges::UPDATE, seen.iter().map(String::as_str));
    }
    b.changes_children(table, Some(&seen));
    Ok(parts.join(", "))
}

/// Binds an UPDATE.
pub fn update(b: &mut Binder<'_>, update: &Update) -> SqlResult<Bound> {
    let (table, alias, used) = target(b, &update.table, Privileges::UPDATE)?;
    b.changes_rows(table, true);
    if !update.order_by.is_empty() || update.limit.is_some() || update.or.is_some() {
        return Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            "syntax error: PostgreSQL does not have this form of UPDATE",
        ));
    }
    let mut scope = target_scope(b, table, &alias, used.clone());
    let from = match &update.from {
        None => String::new(),
        Some(UpdateTableFromKind::AfterSet(tables) | UpdateTableFromKind::BeforeSet(tables)) => {
            b.fixed(|b| b.from(tables, &mut scope))?.0
        }
    };
    let set = assignments(b, table, used.as_ref(), &update.assignments, &scope)?;
    let filter = filter(b, update.selection.as_ref(), &scope)?;
    let sql = format!("UPDATE {} SET {set}{from}{filter}", named(b, table, &alias));
    returning(b, (table, &alias, used), update.returning.as_deref(), sql)
}

/// Binds a DELETE.
pub fn delete(b: &mut Binder<'_>, delete: &Delete) -> SqlResult<Bound> {
    let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &delete.from;
    let [only] = tables.as_slice() else {
        return Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            "DELETE deletes from one table; name the other tables in USING",
        ));
    };
    if !delete.order_by.is_empty() || delete.limit.is_some() {
        return Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            "syntax error: PostgreSQL does not have this form of DELETE",
        ));
    }
    let (table, alias, used) = target(b, only, Privileges::DELETE)?;
    b.changes_rows(table, false);
    b.changes_children(table, None);
    let mut scope = target_scope(b, table, &alias, used.clone());
    let sql = match &delete.using {
        None => {
            let filter = filter(b, delete.selection.as_ref(), &scope)?;
            format!("DELETE FROM {}{filter}", named(b, table, &alias))
        }
        Some(tables) => {
            let (from, _) = b.fixed(|b| b.from(tables, &mut scope))?;
            let filter = filter(b, delete.selection.as_ref(), &scope)?;
            let others = from.trim_start_matches(" FROM ");
            let rowid = format!("{}.rowid", quote(&alias));
            format!(
                "DELETE FROM {} WHERE rowid IN (SELECT {rowid} FROM {}, {others}{filter})",
                b.stands(table),
                named(b, table, &alias)
            )
        }
    };
    returning(b, (table, &alias, used), delete.returning.as_deref(), sql)
}

fn named(b: &Binder<'_>, table: &Table, alias: &str) -> String {
    let stands = b.stands(table);
    if alias == table.name { stands } else { format!("{stands} AS {}", quote(alias)) }
}

fn target<'s>(
    b: &mut Binder<'s>,
    table: &TableWithJoins,
    privilege: Privileges,
) -> SqlResult<(&'s Table, String, Option<Used>)> {
    match &table.relation {
        TableFactor::Table { name, alias, args: None, .. } if table.joins.is_empty() => {
            let found = writable(b, name)?;
            let alias = alias.as_ref().map_or_else(|| found.name.clone(), |a| fold(&a.name));
            let used = b.uses(found, name, privilege);
            Ok((found, alias, used))
        }
        other => Err(SqlError::unsupported(format!("changing {other}"))),
    }
}

fn target_scope<'p>(b: &Binder<'_>, table: &Table, alias: &str, used: Option<Used>) -> Scope<'p> {
    let mut scope = Scope::new(None);
    let columns = scope::columns_of(table, b.ctx.dialect);
    let rowid = scope::rowid_of(table, b.ctx.dialect);
    scope.relations.push(Relation { used, rowid, ..Relation::new(alias, columns, Source::Table(table.name.clone())) });
    scope
}

fn filter(b: &mut Binder<'_>, e: Option<&Expr>, scope: &Scope<'_>) -> SqlResult<String> {
    let Some(e) = e else { return Ok(String::new()) };
    let condition = b.fixed(|b| b.condition(e, "WHERE", scope))?;
    if scope.grouping.borrow().aggregates {
        return Err(SqlError::new(SqlState::GROUPING_ERROR, "aggregate functions are not allowed in WHERE"));
    }
    Ok(format!(" WHERE {}", condition.sql))
}

/// Adds RETURNING to a statement. SQLite knows its columns by their bare names.
fn returning(
    b: &mut Binder<'_>,
    (table, alias, used): (&Table, &str, Option<Used>),
    items: Option<&[sqlparser::ast::SelectItem]>,
    sql: String,
) -> SqlResult<Bound> {
    let Some(items) = items else { return Ok(Bound { sql, columns: Vec::new() }) };
    let mut scope = Scope::new(None);
    let columns = own_columns(table, b.ctx.dialect);
    let own = |c: Column| Column { sql: Some(quote(&c.name)), ..c };
    let rowid = scope::rowid_of(table, b.ctx.dialect).map(own);
    scope.relations.push(Relation { used, rowid, ..Relation::new(alias, columns, Source::Table(table.name.clone())) });
    let (text, columns) = b.returning(items, &scope)?;
    Ok(Bound { sql: sql + &text, columns })
}
