//! DROP and TRUNCATE.

use super::{ddl_of, skipping};
use crate::bind::{need, scope};
use crate::command::Kind;
use crate::context::Context;
use crate::names::{Among, quote, quote_in, quote_table, quote_text, relation_name};
use crate::translated::{TempDdl, Translated};
use holdfast_types::access::check::word_of;
use holdfast_types::access::needs::ObjectWord;
use holdfast_types::access::{Access, Need, Privileges};
use holdfast_types::definition::token::{Token, TokenKind, tokens};
use holdfast_types::schema::{Table, TableKind};
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{ObjectType, Statement, Truncate};

pub fn translate(statement: &Statement, context: &Context<'_>) -> SqlResult<Translated> {
    let Statement::Drop { object_type, if_exists, names, cascade, temporary: false, .. } = statement else {
        return Err(SqlError::unsupported("this form of DROP"));
    };
    let names: Vec<(Among, String)> = names.iter().map(relation_name).collect::<SqlResult<_>>()?;
    let (verb, word) = match object_type {
        ObjectType::Table => ("DROP TABLE", "table"),
        ObjectType::View => ("DROP VIEW", "view"),
        ObjectType::Index => ("DROP INDEX", "index"),
        other => return Err(SqlError::unsupported(format!("DROP {other}"))),
    };
    let (mut found, mut needs) = (Vec::new(), Vec::new());
    let mut skipped = None;
    for (among, name) in &names {
        match find(context, *among, name, object_type)? {
            Some(temp) => {
                needs.extend(owner_of(context, *among, name, object_type));
                found.push((temp, name.clone()));
            }
            None if *if_exists => skipped = Some(format!("{word} \"{name}\" does not exist")),
            None => {
                let state = if *object_type == ObjectType::Index {
                    SqlState::UNDEFINED_OBJECT
                } else {
                    SqlState::UNDEFINED_TABLE
                };
                return Err(SqlError::new(state, format!("{word} \"{name}\" does not exist")));
            }
        }
    }
    let temp = all_of_one_kind("DROP", found.iter().map(|(temp, _)| *temp))?;
    let mut views = Vec::new();
    if *object_type != ObjectType::Index {
        views = match views_over(context, &found, word, *cascade) {
            Ok(views) => views,
            // The owner is checked first, which the session does before the steps run.
            Err(e) => return Ok(Translated { access: Access::of(needs), ..ddl_of(temp, vec![failing(&e)], verb) }),
        };
    }
    let mut steps: Vec<String> = views.iter().map(|v| format!("DROP VIEW {}", quote(v))).collect();
    if *object_type == ObjectType::Table {
        steps.extend(without_children(context, &found, *cascade)?);
    }
    let own: Vec<String> = found.iter().map(|(temp, name)| format!("{verb} {}", quote_in(*temp, name))).collect();
    steps.extend(own);
    match skipped {
        Some(what) if steps.is_empty() => Ok(skipping(verb, &what, SqlState("00000"))),
        Some(what) => {
            let notices = skipping(verb, &what, SqlState("00000")).notices;
            Ok(Translated { notices, access: Access::of(needs), ..ddl_of(temp, steps, verb) })
        }
        None => Ok(Translated { access: Access::of(needs), ..ddl_of(temp, steps, verb) }),
    }
}

/// A step that fails with this error.
fn failing(error: &SqlError) -> String {
    let parts = error.parts();
    let (detail, hint) = (parts.detail.as_deref().unwrap_or_default(), parts.hint.as_deref().unwrap_or_default());
    let texts = [parts.state.0, &parts.message, detail, "", hint].map(quote_text);
    format!("SELECT hf_violates({})", texts.join(", "))
}

/// To be the owner of what is dropped.
fn owner_of(context: &Context<'_>, among: Among, name: &str, kind: &ObjectType) -> Vec<Need> {
    if *kind == ObjectType::Index {
        let table = context.schema.tables.iter().rev().find(|t| t.indexes.iter().any(|i| i.name == name));
        return table.map(|t| need::owner_to_drop(t, ObjectWord::Index, name)).unwrap_or_default();
    }
    match scope::table(context.schema, among, name) {
        Ok(table) => need::owner_to_drop(table, word_of(table), name),
        Err(_) => Vec::new(),
    }
}

/// Whether the tables of a statement are temporary. 0A000 where some are and others are not.
fn all_of_one_kind(verb: &str, mut temp: impl Iterator<Item = bool>) -> SqlResult<bool> {
    let first = temp.next().unwrap_or(false);
    if temp.all(|other| other == first) {
        return Ok(first);
    }
    Err(SqlError::unsupported(format!("{verb} of temporary and permanent tables in one statement"))
        .with_hint("Use one statement for the temporary tables and one for the others."))
}

/// Finds an object: `Some(true)` for a temporary one, `None` where it does not exist. 42809 where it is of another
/// kind.
fn find(context: &Context<'_>, among: Among, name: &str, kind: &ObjectType) -> SqlResult<Option<bool>> {
    if *kind == ObjectType::Index {
        let meant = |t: &Table| match among {
            Among::All => true,
            Among::Permanent => !t.temp,
            Among::Temporary => t.temp,
        };
        let tables = context.schema.tables.iter().rev().filter(|t| meant(t));
        let mut indexes = tables.flat_map(|t| t.indexes.iter().map(move |i| (t, i)));
        return match indexes.find(|(_, i)| i.name == name) {
            Some((table, index)) if index.sql.as_deref().is_some_and(|s| s.contains(crate::keys::CONSTRAINT_MARK)) => {
                let message =
                    format!("cannot drop index {name} because constraint {name} on table {} requires it", table.name);
                Err(SqlError::new(SqlState("2BP01"), message)
                    .with_hint(format!("You can drop constraint {name} on table {} instead.", table.name)))
            }
            found => Ok(found.map(|(table, _)| table.temp)),
        };
    }
    let Ok(table) = scope::table(context.schema, among, name) else { return Ok(None) };
    let is_view = table.kind == TableKind::View;
    if is_view != (*kind == ObjectType::View) {
        let word = if is_view { "table" } else { "view" };
        let hint = if is_view { "Use DROP VIEW to remove a view." } else { "Use DROP TABLE to remove a table." };
        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a {word}")).with_hint(hint));
    }
    Ok(Some(table.temp))
}

/// Whether a view reads a table or another view.
pub(super) fn is_over(view: &Table, table: &Table) -> bool {
    if view.kind != TableKind::View || table.temp || view.oid == table.oid {
        return false;
    }
    let body = view.sql.split_once(" AS ").map_or("", |(_, body)| body);
    let tokens = tokens(body);
    let named = |t: &Token| t.name(body).is_some_and(|n| n.eq_ignore_ascii_case(&table.name));
    tokens.iter().enumerate().any(|(i, t)| {
        let follows = |word: &str| i > 0 && tokens[i - 1].is(body, word);
        let listed = i > 0 && matches!(tokens[i - 1].kind, TokenKind::Comma | TokenKind::Open);
        let qualified = i > 0 && tokens[i - 1].text(body) == ".";
        named(t) && (follows("from") || follows("join") || listed || qualified)
    })
}

/// The views over what is dropped, those that depend on others first; 2BP01 where there are some and no CASCADE.
fn views_over(context: &Context<'_>, going: &[(bool, String)], word: &str, cascade: bool) -> SqlResult<Vec<String>> {
    let mut gone: Vec<&Table> =
        going.iter().filter_map(|(temp, name)| context.schema.table_among(*temp, name).map(|t| &**t)).collect();
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(table) = gone.get(at).copied() {
        at += 1;
        for view in context.schema.tables.iter().filter(|v| is_over(v, table)) {
            if gone.iter().any(|g| g.oid == view.oid) {
                continue;
            }
            if !cascade {
                let what = format!("{word} {}", table.name);
                return Err(super::alter::depends(&what, &format!("view {} depends on {what}", view.name)));
            }
            gone.push(view);
            found.push(view.name.clone());
        }
    }
    found.reverse();
    Ok(found)
}

/// Drops the foreign keys of other tables that refer to a table to drop; 2BP01 without CASCADE.
fn without_children(context: &Context<'_>, going: &[(bool, String)], cascade: bool) -> SqlResult<Vec<String>> {
    let goes = |temp: bool, name: &str| going.iter().any(|(t, n)| *t == temp && n.eq_ignore_ascii_case(name));
    let mut steps = Vec::new();
    for child in context.schema.tables.iter().filter(|t| !goes(t.temp, &t.name)) {
        let Some(key) = child.foreign_keys.iter().find(|k| goes(child.temp, &k.parent)) else { continue };
        if !cascade {
            let (what, on) =
                (format!("table {}", key.parent), format!("constraint {} on table {}", key.name, child.name));
            return Err(super::alter::depends(&what, &format!("{on} depends on {what}")));
        }
        if child.temp {
            return Err(SqlError::unsupported("DROP TABLE ... CASCADE of a table that a temporary table refers to"));
        }
        let refers = |name: &str| child.foreign_keys.iter().any(|k| k.name == name && goes(false, &k.parent));
        steps.push(super::alter::without_foreign_keys(child, refers)?);
    }
    Ok(steps)
}

/// TRUNCATE as DELETE of every row, which the audit trail records like any other change; subscribers get it so, too, and need the
/// rows' keys.
pub fn truncate(truncate: &Truncate, context: &Context<'_>) -> SqlResult<Translated> {
    let mut tables: Vec<&Table> = Vec::new();
    for target in &truncate.table_names {
        let table = scope::table_named(context.schema, &target.name)?;
        if table.kind == TableKind::View {
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is not a table", table.name)));
        }
        tables.push(table);
    }
    let temp = all_of_one_kind("TRUNCATE", tables.iter().map(|t| t.temp))?;
    let names: Vec<String> = tables.iter().map(|t| t.name.clone()).collect();
    let mut others = context.schema.tables.iter().filter(|t| t.temp == temp && !names.contains(&t.name));
    if let Some(child) = others.find(|t| t.foreign_keys.iter().any(|k| names.contains(&k.parent))) {
        return Err(SqlError::unsupported("truncating a table referenced in a foreign key constraint")
            .with_hint(format!("Truncate table \"{}\" at the same time.", child.name)));
    }
    let named = tables.clone();
    // Children before parents, so that no step violates a foreign key.
    tables.sort_by_key(|t| std::cmp::Reverse(t.foreign_keys.iter().filter(|k| names.contains(&k.parent)).count()));
    let steps = tables.iter().map(|t| format!("DELETE FROM {}", quote_table(t)).into()).collect();
    let temp = temp.then(TempDdl::default);
    let need = |t: &&Table| need::of_columns(t, Privileges::TRUNCATE, std::iter::empty());
    let unidentified = named.iter().find_map(|t| need::lacks_identity(context.schema, t, false));
    let access = Access::of(named.iter().flat_map(need).chain(unidentified).collect());
    Ok(Translated { steps, temp, access, counts: false, ..Translated::command(Kind::Delete, "TRUNCATE TABLE") })
}
