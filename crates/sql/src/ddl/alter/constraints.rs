//! Adding, dropping, renaming and validating constraints.

use super::change::{Change, GOING_MARK, depends, going_index, key_detail, mentions, named_definition};
use crate::bind::{Binder, scope};
use crate::ddl::check_free;
use crate::ddl::create_table::{
    Of, columns_of, foreign_key_clause, own_scope, parenthesised, primary_index, refuse_nulls_not_distinct,
    unique_index,
};
use crate::keys::{CONSTRAINT_MARK, is_primary_index, primary_key};
use crate::names::{fold, quote, quote_text};
use crate::scan::Piece;
use crate::types::{self, RowidKind};
use holdfast_types::definition::names::free;
use holdfast_types::definition::redefinition::Redefinition;
use holdfast_types::definition::{Clause, ClauseKind, NOT_VALID_MARK, Reference};
use holdfast_types::schema::{Dialect, Index, Table};
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{CheckConstraint, ForeignKeyConstraint, Ident, TableConstraint};

fn undefined(change: &Change<'_>, name: &str) -> SqlError {
    let message = format!("constraint \"{name}\" of relation \"{}\" does not exist", change.table.name);
    SqlError::new(SqlState::UNDEFINED_OBJECT, message)
}

/// The index of a unique constraint or an added primary key.
pub fn constraint_index<'t>(table: &'t Table, name: &str) -> Option<&'t Index> {
    let is_one = |i: &&Index| {
        i.name == name && (is_primary_index(table, i) || i.sql.as_deref().is_some_and(|s| s.contains(CONSTRAINT_MARK)))
    };
    table.indexes.iter().find(is_one)
}

/// The name of a new constraint: the one given, 42710 if the table has it, else PostgreSQL's default.
fn name_for(change: &mut Change<'_>, given: Option<&Ident>, label: &str, suffix: &str) -> SqlResult<String> {
    let table = change.table;
    let taken = |name: &str, added: &[String]| {
        added.iter().any(|n| n == name)
            || change.now.clauses().any(|(_, c)| c.name.as_deref() == Some(name))
            || table.indexes.iter().any(|i| i.name == name)
            || table.key_name == name
    };
    let name = match given.map(fold) {
        Some(name) if taken(&name, &change.added_names) => {
            let message = format!("constraint \"{name}\" for relation \"{}\" already exists", table.name);
            return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
        }
        Some(name) => name,
        None => free(&table.name, label, suffix, |name| !taken(name, &change.added_names)),
    };
    change.added_names.push(name.clone());
    Ok(name)
}

/// ADD CONSTRAINT.
pub fn add(change: &mut Change<'_>, constraint: &TableConstraint, not_valid: bool, piece: &Piece<'_>) -> SqlResult<()> {
    match constraint {
        TableConstraint::PrimaryKey(key) => add_primary_key(change, key.name.as_ref(), columns_of(&key.columns)?),
        TableConstraint::Unique(key) => {
            refuse_nulls_not_distinct(&key.nulls_distinct)?;
            crate::ddl::create_table::refuse_deferrable(key.characteristics.as_ref())?;
            add_unique(change, key.name.as_ref(), columns_of(&key.columns)?)
        }
        TableConstraint::Check(check) => add_check(change, check, not_valid, piece),
        TableConstraint::ForeignKey(key) => add_foreign_key(change, key, not_valid),
        other => Err(SqlError::unsupported(format!("ALTER TABLE ADD {other}"))),
    }
}

/// 42703 for a column that is not there; numeric without a scale is refused.
fn key_columns(change: &mut Change<'_>, columns: &[String]) -> SqlResult<()> {
    for name in columns {
        let missing = || {
            let message = format!("column \"{name}\" named in key does not exist");
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        };
        let column = change.column(name).map_err(|_| missing())?;
        let ty = types::of_decl(&column.ty, Dialect::Postgres);
        if ty.has_unequal_forms() && ty.oid != holdfast_types::desc::oid::NUMERIC {
            return Err(SqlError::unsupported(format!(
                "a unique key over the column \"{name}\" of type {}",
                ty.name()
            )));
        }
        if ty.has_unequal_forms() {
            return Err(SqlError::unsupported(format!("a unique key over the numeric column \"{name}\""))
                .with_hint("Give it a precision and a scale: numeric(p,s)."));
        }
    }
    Ok(())
}

fn check_duplicates(change: &mut Change<'_>, columns: &[String], name: &str) {
    let error = SqlError::new(SqlState::UNIQUE_VIOLATION, format!("could not create unique index \"{name}\""));
    let listed: Vec<String> = columns.iter().map(|c| quote(c)).collect();
    let present: Vec<String> = listed.iter().map(|c| format!("{c} IS NOT NULL")).collect();
    let condition = format!("{} GROUP BY {} HAVING count(*) > 1", present.join(" AND "), listed.join(", "));
    change.check_rows(&condition, &error.with_constraint(name), &key_detail(columns, "is duplicated."));
}

pub fn add_primary_key(change: &mut Change<'_>, given: Option<&Ident>, columns: Vec<String>) -> SqlResult<()> {
    let table = change.table;
    let kept = |i: &&Index| is_primary_index(table, i) && !change.dropped_indexes.contains(&i.name) && i.sql.is_some();
    if change.now.primary_key().is_some() || table.indexes.iter().any(|i| kept(&i)) {
        let message = format!("multiple primary keys for table \"{}\" are not allowed", table.name);
        return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
    }
    key_columns(change, &columns)?;
    let name = name_for(change, given, "", "pkey")?;
    check_free(change.context, table.temp, &name)?;
    for column in &columns {
        set_not_null(change, column)?;
    }
    check_duplicates(change, &columns, &name);
    change.new_indexes.push(primary_index(&table.name, &name, &columns));
    Ok(())
}

/// SET NOT NULL, with a check of the rows.
pub fn set_not_null(change: &mut Change<'_>, column: &str) -> SqlResult<()> {
    let table = change.table;
    let text = change.column(column)?;
    let is_set = text.clauses.iter().any(|c| matches!(c.kind, ClauseKind::NotNull));
    if is_set || text.clauses.iter().any(|c| matches!(c.kind, ClauseKind::PrimaryKey(_))) {
        return Ok(());
    }
    change.put(column, ClauseKind::NotNull, "NOT NULL")?;
    let message = format!("column \"{column}\" of relation \"{}\" contains null values", table.name);
    let error = SqlError::new(SqlState::NOT_NULL_VIOLATION, message);
    change.check_rows(&format!("{} IS NULL", quote(column)), &error, "NULL");
    Ok(())
}

pub fn add_unique(change: &mut Change<'_>, given: Option<&Ident>, columns: Vec<String>) -> SqlResult<()> {
    key_columns(change, &columns)?;
    let table = change.table;
    let name = name_for(change, given, &columns.join("_"), "key")?;
    check_free(change.context, table.temp, &name)?;
    if !table.temp {
        check_duplicates(change, &columns, &name);
    }
    let of =
        Of { context: change.context, temp: table.temp, table: &table.name, primary: crate::keys::primary_key(table) };
    change.new_indexes.push(unique_index(&of, Some(name), &columns, &mut Vec::new()));
    Ok(())
}

fn add_check(change: &mut Change<'_>, check: &CheckConstraint, not_valid: bool, piece: &Piece<'_>) -> SqlResult<()> {
    let mut binder = Binder::new(piece, change.context);
    binder.stored = true;
    let columns = change.now.columns.iter().filter(|c| !change.drops.contains(&c.name));
    let typed = columns.map(|c| {
        let known = scope::columns_of(change.table, change.context.dialect).into_iter().find(|k| k.name == c.name);
        (c.name.clone(), known.map_or_else(|| types::of_decl(&c.ty, Dialect::Postgres), |k| k.ty))
    });
    let scope = own_scope(&change.table.name, typed.collect());
    let condition = binder.condition(&check.expr, "CHECK", &scope)?;
    let used: Vec<String> =
        change.now.columns.iter().map(|c| c.name.clone()).filter(|c| mentions(&condition.sql, c)).collect();
    let label = if let [only] = used.as_slice() { only.as_str() } else { "" };
    let name = name_for(change, check.name.as_ref(), label, "check")?;
    let mark = if not_valid { format!(" {NOT_VALID_MARK}") } else { String::new() };
    let condition = parenthesised(&condition.sql);
    let text = format!("CHECK {condition}{mark}");
    change.now.constraints.push(Clause { name: Some(name.clone()), kind: ClauseKind::Check, text });
    if !not_valid {
        check_check(change, &name, &condition);
    }
    Ok(())
}

fn check_check(change: &mut Change<'_>, name: &str, condition: &str) {
    let table = &change.table.name;
    let message = format!("check constraint \"{name}\" of relation \"{table}\" is violated by some row");
    let error = SqlError::new(SqlState::CHECK_VIOLATION, message).with_constraint(name);
    change.check_rows(&format!("NOT {condition}"), &error, "NULL");
}

fn add_foreign_key(change: &mut Change<'_>, key: &ForeignKeyConstraint, not_valid: bool) -> SqlResult<()> {
    let columns: Vec<String> = key.columns.iter().map(fold).collect();
    for column in &columns {
        change.column(column).map_err(|_| {
            let message = format!("column \"{column}\" referenced in foreign key constraint does not exist");
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        })?;
    }
    let name = name_for(change, key.name.as_ref(), &columns.join("_"), "fkey")?;
    let table = change.table;
    let of =
        Of { context: change.context, temp: table.temp, table: &table.name, primary: crate::keys::primary_key(table) };
    let (text, mut reference) = foreign_key_clause(key, &of, Some(&columns), &primary_key(table))?;
    let mark = if not_valid { format!(" {NOT_VALID_MARK}") } else { String::new() };
    let listed: Vec<String> = columns.iter().map(|c| quote(c)).collect();
    let text = format!("FOREIGN KEY ({}) {text}{mark}", listed.join(", "));
    reference.columns = columns;
    if !not_valid {
        check_foreign_key(change, &name, &reference);
    }
    change.now.constraints.push(Clause { name: Some(name), kind: ClauseKind::ForeignKey(reference), text });
    Ok(())
}

pub fn check_foreign_key(change: &mut Change<'_>, name: &str, reference: &Reference) {
    let table = change.table;
    let message = format!("insert or update on table \"{}\" violates foreign key constraint \"{name}\"", table.name);
    let error = SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, message).with_constraint(name);
    let own = |c: &String| format!("{}.{}", quote(&table.name), quote(c));
    let present: Vec<String> = reference.columns.iter().map(|c| format!("{} IS NOT NULL", own(c))).collect();
    let pairs = reference.columns.iter().zip(&reference.parent_columns);
    let equal: Vec<String> = pairs.map(|(c, p)| format!("\"the parent\".{} = {}", quote(p), own(c))).collect();
    let condition = format!(
        "{} AND NOT EXISTS (SELECT 1 FROM {} AS \"the parent\" WHERE {})",
        present.join(" AND "),
        quote(&reference.parent),
        equal.join(" AND ")
    );
    let rest = format!("is not present in table \"{}\".", reference.parent);
    change.check_rows(&condition, &error, &key_detail(&reference.columns, &rest));
}

/// The foreign keys, of any table, that refer to these columns of the table: their tables and names.
pub fn referring<'c>(change: &Change<'c>, columns: &[String]) -> Vec<(&'c Table, String)> {
    let table = change.table;
    let own_key = primary_key(table);
    let mut found = Vec::new();
    for child in change.context.schema.tables.iter().filter(|t| t.temp == table.temp) {
        for key in child.foreign_keys.iter().filter(|k| k.parent.eq_ignore_ascii_case(&table.name)) {
            let named: Vec<String> = key.parent_columns.iter().flatten().cloned().collect();
            let parent = if named.is_empty() { own_key.clone() } else { named };
            let same = parent.len() == columns.len() && parent.iter().all(|c| columns.contains(c));
            if same {
                found.push((&**child, key.name.clone()));
            }
        }
    }
    found
}

/// Drops the foreign keys that refer to a key, or fails where there are some and no CASCADE.
pub fn release(change: &mut Change<'_>, columns: &[String], what: &str, on: &str, cascade: bool) -> SqlResult<()> {
    for (child, name) in referring(change, columns) {
        if child.oid == change.table.oid && !change.now.clauses().any(|(_, c)| c.name.as_ref() == Some(&name)) {
            continue;
        }
        if !cascade {
            return Err(depends(what, &format!("constraint {name} on table {} depends on {on}", child.name)));
        }
        if child.oid == change.table.oid {
            change.now.retain(|_, c| c.name.as_ref() != Some(&name));
            continue;
        }
        change.others.push(without_foreign_keys(child, |n| n == name)?);
    }
    Ok(())
}

/// The redefinition of a table without some of its foreign keys.
pub fn without_foreign_keys(child: &Table, goes: impl Fn(&str) -> bool) -> SqlResult<String> {
    let before = named_definition(child)?;
    let mut after = before.clone();
    let is_key = |c: &Clause| matches!(c.kind, ClauseKind::ForeignKey(_));
    after.retain(|_, c| !(is_key(c) && c.name.as_deref().is_some_and(&goes)));
    Redefinition::text(&before, &after, &[])
        .ok_or_else(|| SqlError::unsupported("a definition that contains the character U+001E"))
}

/// DROP CONSTRAINT. `false` where there is none, and IF EXISTS.
pub fn drop(change: &mut Change<'_>, name: &str, if_exists: bool, cascade: bool) -> SqlResult<bool> {
    let table = change.table;
    let plain = |c: &Clause| matches!(c.kind, ClauseKind::Check | ClauseKind::ForeignKey(_));
    if change.now.clauses().any(|(_, c)| plain(c) && c.name.as_deref() == Some(name)) {
        change.now.retain(|_, c| !(plain(c) && c.name.as_deref() == Some(name)));
        return Ok(true);
    }
    let what = format!("constraint {name} on table {}", table.name);
    if let Some(index) = constraint_index(table, name) {
        let columns: Vec<String> = index.columns.iter().flatten().cloned().collect();
        release(change, &columns, &what, &format!("index {name}"), cascade)?;
        change.dropped_indexes.push(name.to_owned());
        return Ok(true);
    }
    if table.key_name == name && change.now.primary_key().is_some() {
        let columns = primary_key(table);
        release(change, &columns, &what, &format!("index {name}"), cascade)?;
        drop_primary_key(change)?;
        return Ok(true);
    }
    if if_exists { Ok(false) } else { Err(undefined(change, name)) }
}

/// Takes the primary key that CREATE TABLE declared off the definition. Its columns stay NOT NULL.
pub fn drop_primary_key(change: &mut Change<'_>) -> SqlResult<()> {
    let table = change.table;
    let is_key = |c: &Clause| matches!(c.kind, ClauseKind::PrimaryKey(_));
    if let Some(alias) = table.columns.iter().find(|c| c.rowid_alias) {
        let kind = RowidKind::of(table);
        let going = change.drops.contains(&alias.name);
        if kind.serial() && !going {
            return Err(SqlError::unsupported("dropping the primary key of a serial or identity column"));
        }
        let hidden = crate::ids::hidden_name(table).ok_or_else(|| {
            SqlError::unsupported("dropping the primary key of a table with columns rowid, _rowid_ and oid")
        })?;
        let text = change.now.column_mut(&alias.name).ok_or_else(|| super::change::not_understood(table))?;
        text.ty = types::declare(kind.ty())?;
        text.clauses.retain(|c| !is_key(c));
        if !going {
            change.put(&alias.name, ClauseKind::NotNull, "NOT NULL")?;
            change.retyped.push(alias.name.clone());
            change.fills.push((alias.name.clone(), hidden.to_owned()));
        }
        return Ok(());
    }
    let automatic: Vec<&Index> = table.indexes.iter().filter(|i| i.sql.is_none()).collect();
    let [index] = automatic.as_slice() else { return Err(super::change::not_understood(table)) };
    if table.without_rowid {
        return Err(SqlError::unsupported("dropping the primary key of a table WITHOUT ROWID"));
    }
    change.now.retain(|_, c| !is_key(c));
    let listed: Vec<String> = index.columns.iter().flatten().map(|c| quote(c)).collect();
    let sql = format!(
        "CREATE UNIQUE INDEX {} {GOING_MARK} ON {} ({})",
        quote(&going_index(table)),
        quote(&table.name),
        listed.join(", ")
    );
    change.index_texts.push((index.name.clone(), sql));
    Ok(())
}

/// RENAME CONSTRAINT.
pub fn rename(change: &mut Change<'_>, old: &str, new: &str) -> SqlResult<()> {
    let table = change.table;
    let is_key = |c: &Clause| matches!(c.kind, ClauseKind::PrimaryKey(_));
    let has = |name: &str| {
        change.now.clauses().any(|(_, c)| c.name.as_deref() == Some(name))
            || constraint_index(table, name).is_some()
            || (table.key_name == name)
    };
    if !has(old) {
        let message = format!("constraint \"{old}\" for table \"{}\" does not exist", table.name);
        return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
    }
    if has(new) {
        let message = format!("constraint \"{new}\" for relation \"{}\" already exists", table.name);
        return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
    }
    if let Some(index) = constraint_index(table, old) {
        check_free(change.context, table.temp, new)?;
        change.index_texts.push((old.to_owned(), renamed_index(table, index, new)?));
        return Ok(());
    }
    if table.key_name == old {
        check_free(change.context, table.temp, new)?;
    }
    let key_name = table.key_name.as_str();
    change.now.each_clause(|_, c| {
        let is_it = if is_key(c) { key_name == old } else { c.name.as_deref() == Some(old) };
        if is_it {
            c.name = Some(new.to_owned());
        }
    });
    Ok(())
}

/// The text of an index under another name.
pub fn renamed_index(table: &Table, index: &Index, new: &str) -> SqlResult<String> {
    let sql = index.sql.as_deref().ok_or_else(|| super::change::not_understood(table))?;
    let tokens = holdfast_types::definition::token::tokens(sql);
    let at = tokens.iter().position(|t| t.is(sql, "index")).and_then(|i| tokens.get(i + 1));
    let at = at.ok_or_else(|| super::change::not_understood(table))?.at.clone();
    let mark = match is_primary_index(table, index) && !sql.contains(crate::keys::PRIMARY_MARK) {
        true => format!(" {}", crate::keys::PRIMARY_MARK),
        false => String::new(),
    };
    Ok(format!("{}{}{mark}{}", &sql[..at.start], quote(new), &sql[at.end..]))
}

/// VALIDATE CONSTRAINT.
pub fn validate(change: &mut Change<'_>, name: &str) -> SqlResult<()> {
    let found = change.now.clauses().find(|(_, c)| c.name.as_deref() == Some(name));
    let found = found.map(|(column, clause)| (column.map(|c| c.name.clone()), clause.clone()));
    let Some((column, clause)) = found else { return Err(undefined(change, name)) };
    if clause.is_valid() {
        return Ok(());
    }
    match &clause.kind {
        ClauseKind::ForeignKey(reference) => {
            let mut reference = reference.clone();
            reference.columns.extend(column.filter(|_| reference.columns.is_empty()));
            check_foreign_key(change, name, &reference);
        }
        ClauseKind::Check => {
            let text = clause.text.replace(NOT_VALID_MARK, "");
            check_check(change, name, text.trim_start_matches("CHECK").trim());
        }
        _ => {
            let message = format!(
                "constraint {} of relation {} is not a foreign key or check constraint",
                quote_text(name),
                quote(&change.table.name)
            );
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
        }
    }
    change.now.each_clause(|_, c| {
        if c.name.as_deref() == Some(name) {
            c.text = c.text.replace(NOT_VALID_MARK, "").trim().to_owned();
        }
    });
    Ok(())
}
