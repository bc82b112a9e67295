//! Actions on columns: type, default, NOT NULL, and what a dropped column takes with it.

use super::change::{Change, depends, mentions};
use super::constraints::{drop_primary_key, release};
use crate::bind::coerce::{When, constant};
use crate::bind::{Binder, need, scope};
use crate::ddl::create_table::{default, own_scope};
use crate::names::quote;
use crate::scan::Piece;
use crate::types::{self, RowidKind, Type};
use holdfast_types::definition::ClauseKind;
use holdfast_types::desc::oid;
use holdfast_types::publication::PublishedTable;
use holdfast_types::schema::TableKind;
use holdfast_types::{SqlError, SqlResult, SqlState, Value};
use sqlparser::ast::{DataType, Expr};

/// DROP COLUMN, with the indexes and constraints that contain it. Returns what a CASCADE takes out of publications, in
/// PostgreSQL's words; the store does that when the column is gone.
pub fn drop(change: &mut Change<'_>, name: &str, cascade: bool) -> SqlResult<Vec<String>> {
    change.column(name)?;
    let (table, context) = (change.table, change.context);
    let what = format!("column {name} of table {}", table.name);
    if let Some(view) = view_using(change, name) {
        let on = format!("view {view} depends on {what}");
        return Err(if cascade {
            SqlError::unsupported("DROP COLUMN ... CASCADE of a view's column")
        } else {
            depends(&what, &on)
        });
    }
    let generated = |c: &&holdfast_types::definition::ColumnText| {
        c.name != name && c.clauses.iter().any(|k| k.kind == ClauseKind::Generated && mentions(&k.text, name))
    };
    if let Some(other) = change.now.columns.iter().find(generated) {
        return Err(depends(&what, &format!("column {} of table {} depends on {what}", other.name, table.name)));
    }
    let published = published(change, name);
    if !cascade && !published.is_empty() {
        let lines: Vec<String> = published.iter().map(|entry| format!("{entry} depends on {what}")).collect();
        return Err(depends(&what, &lines.join("\n")));
    }
    for child in context.schema.tables.iter().filter(|t| t.temp == table.temp) {
        let of = |k: &&holdfast_types::schema::ForeignKey| {
            k.parent.eq_ignore_ascii_case(&table.name) && k.parent_columns.iter().flatten().any(|c| c == name)
        };
        for key in child.foreign_keys.iter().filter(of) {
            if child.oid == table.oid && key.columns.iter().any(|c| c == name) {
                continue;
            }
            let on = format!("constraint {} on table {} depends on {what}", key.name, child.name);
            let columns: Vec<String> = key.parent_columns.iter().flatten().cloned().collect();
            release(change, &columns, &what, &on, cascade)?;
        }
    }
    change.drops.push(name.to_owned());
    let in_key = change.now.primary_key().is_some_and(|(_, columns)| columns.iter().any(|c| c == name));
    if in_key {
        drop_primary_key(change)?;
    }
    change.now.retain(|column, clause| {
        let in_check = clause.kind == ClauseKind::Check && mentions(&clause.text, name);
        let listed = match &clause.kind {
            ClauseKind::ForeignKey(r) => r.columns.iter().any(|c| c == name),
            ClauseKind::Unique(columns) => columns.iter().any(|c| c == name),
            _ => false,
        };
        let own = column == Some(name) && matches!(clause.kind, ClauseKind::ForeignKey(_) | ClauseKind::Unique(_));
        !(in_check || listed || own)
    });
    let with_it = table.indexes.iter().filter(|i| i.sql.as_deref().is_some_and(|sql| in_index(sql, name)));
    change.dropped_indexes.extend(with_it.map(|i| i.name.clone()));
    change.dropped_indexes.dedup();
    Ok(published)
}

/// The entries of the table in publications that name a column, in PostgreSQL's words.
fn published(change: &Change<'_>, column: &str) -> Vec<String> {
    let table = change.table;
    let names = |entry: &PublishedTable| {
        let listed = entry.columns.iter().flatten().any(|c| c == column);
        listed || entry.filter.as_deref().is_some_and(|filter| mentions(filter, column))
    };
    let entries = change.context.schema.publications.of_table(table.oid).filter(|(_, entry)| names(entry));
    entries.map(|(p, _)| format!("publication of table {} in publication {}", table.name, p.name)).collect()
}

/// Whether a CREATE INDEX names a column in its keys or its condition.
fn in_index(sql: &str, column: &str) -> bool {
    sql.find('(').is_some_and(|at| mentions(&sql[at..], column))
}

/// A view whose text names the table and the column.
fn view_using(change: &Change<'_>, column: &str) -> Option<String> {
    let views = change.context.schema.tables.iter().filter(|t| t.kind == TableKind::View);
    let uses = |sql: &str| mentions(sql, &change.table.name) && mentions(sql, column);
    views.filter(|v| crate::ddl::drop::is_over(v, change.table)).find(|v| uses(&v.sql)).map(|v| v.name.clone())
}

/// DROP NOT NULL.
pub fn drop_not_null(change: &mut Change<'_>, name: &str) -> SqlResult<()> {
    let in_key = crate::keys::primary_key(change.table).iter().any(|c| c == name);
    let column = change.column(name)?;
    if in_key {
        let message = format!("column \"{name}\" is in a primary key");
        return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
    }
    column.clauses.retain(|c| c.kind != ClauseKind::NotNull);
    Ok(())
}

fn is_serial(change: &Change<'_>, name: &str) -> bool {
    change.table.columns.iter().any(|c| c.rowid_alias && c.name == name) && RowidKind::of(change.table).serial()
}

/// SET DEFAULT, and DROP DEFAULT without a value.
pub fn set_default(change: &mut Change<'_>, name: &str, value: Option<&Expr>, piece: &Piece<'_>) -> SqlResult<()> {
    let table = change.table;
    let generated = change.column(name)?.has(&ClauseKind::Generated);
    if generated || (crate::keys::is_identity(table) && is_serial(change, name)) {
        let kind = if generated { "a generated" } else { "an identity" };
        let message = format!("column \"{name}\" of relation \"{}\" is {kind} column", table.name);
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    if is_serial(change, name) {
        let plain = RowidKind::new(RowidKind::of(table).ty(), false);
        change.column(name)?.ty = plain.type_text();
    }
    let ty = type_of(change, name)?;
    match value {
        None => change.column(name)?.clauses.retain(|c| c.kind != ClauseKind::Default),
        Some(value) => {
            let mut binder = Binder::new(piece, change.context);
            binder.stored = true;
            let text = format!("DEFAULT {}", default(&mut binder, value, ty)?);
            change.put(name, ClauseKind::Default, &text)?;
        }
    }
    Ok(())
}

fn type_of(change: &Change<'_>, name: &str) -> SqlResult<Type> {
    let known = scope::columns_of(change.table, change.context.dialect).into_iter().find(|c| c.name == name);
    known.map(|c| c.ty).ok_or_else(|| super::change::no_column(change.table, name))
}

/// Whether every value of the one type is stored in the same way as a value of the other, and fits.
fn widens(from: Type, to: Type) -> bool {
    let rank = |oid: u32| [oid::INT2, oid::INT4, oid::INT8].iter().position(|o| *o == oid);
    if let (Some(a), Some(b)) = (rank(from.oid), rank(to.oid)) {
        return a <= b;
    }
    match (from.oid, to.oid) {
        (oid::VARCHAR | oid::TEXT, oid::TEXT) | (oid::VARCHAR | oid::TEXT, oid::VARCHAR) if to.typmod == -1 => true,
        (oid::VARCHAR, oid::VARCHAR) => from.typmod != -1 && from.typmod <= to.typmod,
        _ => from.oid == to.oid && from.typmod == to.typmod,
    }
}

/// Whether expressions that were bound for the one type mean the same for the other.
fn is_family(from: Type, to: Type) -> bool {
    let text = |o: u32| matches!(o, oid::TEXT | oid::VARCHAR);
    from.oid == to.oid || (from.is_integer() && to.is_integer()) || (text(from.oid) && text(to.oid))
}

/// ALTER COLUMN TYPE.
pub fn set_type(
    change: &mut Change<'_>,
    name: &str,
    to: &DataType,
    using: Option<&Expr>,
    piece: &Piece<'_>,
) -> SqlResult<()> {
    let (from, to) = (type_of(change, name)?, types::from_ast(to)?);
    let declared = types::declare(to)?;
    let table = change.table;
    if change.column(name)?.has(&ClauseKind::Generated) {
        return Err(SqlError::unsupported("ALTER TYPE of a generated column"));
    }
    if let Some(view) = view_using(change, name) {
        return Err(SqlError::new(
            SqlState::FEATURE_NOT_SUPPORTED,
            "cannot alter type of a column used by a view or rule",
        )
        .with_detail(format!("rule _RETURN on view {view} depends on column \"{name}\"")));
    }
    let published = published(change, name);
    if let Some(entry) = published.first() {
        let message = "cannot alter type of a column used by a publication WHERE clause";
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
            .with_detail(format!("{entry} depends on column \"{name}\"")));
    }
    if !is_family(from, to) {
        refuse_dependents(change, name)?;
    }
    let mut binder = Binder::new(piece, change.context);
    let columns = scope::columns_of(table, change.context.dialect).into_iter().map(|c| (c.name, c.ty)).collect();
    let scope = own_scope(&table.name, columns);
    let own = Expr::Identifier(sqlparser::ast::Ident::with_quote('"', name));
    let typed = binder.value_expr(using.unwrap_or(&own), &scope)?;
    let source = typed.ty;
    let typed = binder.coerce(typed, to, When::Assignment).map_err(|e| match using {
        None if e.state() == SqlState::DATATYPE_MISMATCH => {
            let bare = Type::new(to.oid).name();
            SqlError::new(e.state(), format!("column \"{name}\" cannot be cast automatically to type {bare}"))
                .with_hint(format!("You might need to specify \"USING {name}::{}\".", to.name()))
        }
        Some(_) if e.state() == SqlState::DATATYPE_MISMATCH => {
            let (bare, source) = (Type::new(to.oid).name(), Type::new(source.oid).name());
            SqlError::new(
                e.state(),
                format!("result of USING clause for column \"{name}\" cannot be cast automatically to type {bare}"),
            )
            .with_detail(format!("The expression is of type {source}."))
        }
        _ => e,
    })?;
    if !binder.params.is_empty() {
        return Err(SqlError::unsupported("USING with a parameter or a value of the session"));
    }
    // Columns are dropped before values are computed, and SQLite would take the name of a missing column for a text.
    if let Some(dropped) = change.drops.iter().find(|dropped| using.is_some() && mentions(&typed.sql, dropped)) {
        let what = format!("USING with the column \"{dropped}\", which the same statement drops");
        return Err(SqlError::unsupported(what).with_hint("Change the type first, then drop the column."));
    }
    let alias = table.columns.iter().any(|c| c.rowid_alias && c.name == name);
    if alias {
        if using.is_some() || !to.is_integer() {
            return Err(SqlError::unsupported("ALTER TYPE of an integer primary key to another type, or with USING")
                .with_hint("Drop the primary key, change the type, and add the primary key again."));
        }
        let kind = RowidKind::new(to, RowidKind::of(table).serial());
        change.column(name)?.ty = kind.type_text();
        if !widens(from, to) {
            change.checks.push(format!(
                "SELECT 1 FROM {} WHERE ({}) IS NULL",
                crate::names::quote_table(table),
                typed.sql
            ));
        }
        return Ok(());
    }
    new_default(change, name, from, to)?;
    change.column(name)?.ty = declared;
    if using.is_none() && widens(from, to) {
        return Ok(());
    }
    change.retyped.push(name.to_owned());
    change.fills.push((name.to_owned(), typed.sql));
    for index in &table.indexes {
        let Some(sql) = index.sql.as_deref().filter(|sql| in_index(sql, name)) else { continue };
        if !change.dropped_indexes.contains(&index.name) {
            change.dropped_indexes.push(index.name.clone());
            change.new_indexes.push(sql.to_owned());
        }
    }
    Ok(())
}

/// 0A000 where something that was bound for the old type uses the column.
fn refuse_dependents(change: &Change<'_>, name: &str) -> SqlResult<()> {
    let table = change.table;
    let in_check = change.now.checks().any(|(_, c)| mentions(&c.text, name));
    let in_generated = change.now.clauses().any(|(_, c)| c.kind == ClauseKind::Generated && mentions(&c.text, name));
    let in_key = change.now.foreign_keys().any(|(.., columns)| columns.iter().any(|c| c == name));
    let is_parent = change.context.schema.tables.iter().any(|t| {
        let of = |k: &&holdfast_types::schema::ForeignKey| k.parent.eq_ignore_ascii_case(&table.name);
        t.foreign_keys.iter().filter(of).any(|k| k.parent_columns.iter().flatten().any(|c| c == name))
    });
    let special = table.indexes.iter().any(|i| {
        let plain = i.columns.iter().all(Option::is_some) && i.sql.as_deref().is_none_or(|s| !s.contains(" WHERE "));
        !plain && i.sql.as_deref().is_some_and(|sql| in_index(sql, name))
    });
    let what = match () {
        () if in_check => "a check",
        () if in_generated => "a generated column",
        () if in_key || is_parent => "a foreign key",
        () if special => "an index over expressions or with a condition",
        () => return Ok(()),
    };
    Err(SqlError::unsupported(format!("ALTER TYPE of column \"{name}\" to another kind of type while {what} uses it"))
        .with_hint("Drop that, change the type, and create it again."))
}

/// The default in the new type.
fn new_default(change: &mut Change<'_>, name: &str, from: Type, to: Type) -> SqlResult<()> {
    let Some(text) = change.column(name)?.default().map(str::to_owned) else { return Ok(()) };
    let cannot = || {
        let bare = Type::new(to.oid).name();
        let message = format!("default for column \"{name}\" cannot be cast automatically to type {bare}");
        SqlError::new(SqlState::DATATYPE_MISMATCH, message)
    };
    if crate::default::clock(&text).is_some() {
        let clock = crate::default::stored_clock(to).ok_or_else(cannot)?;
        return change.put(name, ClauseKind::Default, &format!("DEFAULT ({clock})"));
    }
    if text.eq_ignore_ascii_case("null") || (is_family(from, to) && widens(from, to)) {
        return Ok(());
    }
    let bare = text.trim_start_matches('(').trim_end_matches(')');
    let value = match bare.strip_prefix('\'').and_then(|t| t.strip_suffix('\'')) {
        Some(inner) => Value::Text(inner.replace("''", "'")),
        None => match (bare.parse::<i64>(), bare.parse::<f64>()) {
            (Ok(n), _) => Value::Int(n),
            (_, Ok(r)) => Value::Real(r),
            _ => return Err(cannot()),
        },
    };
    let text = types::cast(value.as_ref(), from, to, false).map_err(|_| cannot())?;
    change.put(name, ClauseKind::Default, &format!("DEFAULT {}", constant(&text)))
}

/// ADD GENERATED AS IDENTITY.
pub fn add_identity(change: &mut Change<'_>, name: &str) -> SqlResult<()> {
    let table = change.table;
    need::refuse_where_subscribed(change.context.schema, table, "an identity column of")?;
    let alias = table.columns.iter().any(|c| c.rowid_alias && c.name == name);
    if !alias || RowidKind::of(table).serial() {
        return Err(SqlError::unsupported(
            "ADD GENERATED AS IDENTITY of a column that is not a plain integer primary key",
        ));
    }
    let kind = RowidKind::new(RowidKind::of(table).ty(), true);
    let column = change.column(name)?;
    column.ty = kind.type_text();
    for clause in column.clauses.iter_mut().filter(|c| matches!(c.kind, ClauseKind::PrimaryKey(_))) {
        clause.text = format!("{} {}", clause.text, crate::keys::IDENTITY_MARK);
    }
    Ok(())
}

/// A new column as SQLite can add it, and the clauses that come with the redefinition after it.
pub fn add(change: &mut Change<'_>, sql: &str, clock: bool) -> SqlResult<()> {
    let parsed = holdfast_types::definition::Definition::parse(&format!("CREATE TABLE t ({sql})"));
    let full = parsed.and_then(|d| d.columns.into_iter().next());
    let full = full.ok_or_else(|| super::change::not_understood(change.table))?;
    let mut plain = full.clone();
    plain.clauses.retain(|c| match c.kind {
        ClauseKind::Default => !clock && full.default().is_some_and(|d| !d.starts_with('(')),
        ClauseKind::Generated => true,
        _ => false,
    });
    if plain.default().is_none()
        && let Some(value) = full.default()
    {
        change.fills.push((full.name.clone(), value.to_owned()));
    }
    if full.has(&ClauseKind::NotNull) {
        let message = format!("column \"{}\" of relation \"{}\" contains null values", full.name, change.table.name);
        let error = SqlError::new(SqlState::NOT_NULL_VIOLATION, message);
        change.check_rows(&format!("{} IS NULL", quote(&full.name)), &error, "NULL");
    }
    let own: Vec<_> = full.clauses.clone();
    change.adds.push(plain);
    change.now.columns.push(full.clone());
    for clause in own {
        let name = clause.name.clone().unwrap_or_default();
        match clause.kind {
            ClauseKind::Check => {
                let message = format!(
                    "check constraint \"{name}\" of relation \"{}\" is violated by some row",
                    change.table.name
                );
                let error = SqlError::new(SqlState::CHECK_VIOLATION, message).with_constraint(name);
                change.check_rows(&format!("NOT {}", clause.text.trim_start_matches("CHECK").trim()), &error, "NULL");
            }
            ClauseKind::ForeignKey(mut reference) => {
                reference.columns = vec![full.name.clone()];
                super::constraints::check_foreign_key(change, &name, &reference);
            }
            _ => {}
        }
    }
    Ok(())
}
