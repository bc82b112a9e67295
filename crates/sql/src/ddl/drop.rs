//! DROP and TRUNCATE.

use super::{ddl, skipping};
use crate::bind::{exact_name, quote, scope};
use crate::translate::{Context, Kind, Translated};
use holdfast_types::schema::TableKind;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{ObjectType, Statement, Truncate};

pub fn translate(statement: &Statement, context: &Context<'_>) -> SqlResult<Translated> {
    let Statement::Drop { object_type, if_exists, names, cascade, temporary: false, .. } = statement else {
        return Err(SqlError::unsupported("DROP of this kind"));
    };
    let names: Vec<String> = names.iter().map(exact_name).collect::<SqlResult<_>>()?;
    let (verb, word) = match object_type {
        ObjectType::Table => ("DROP TABLE", "table"),
        ObjectType::View => ("DROP VIEW", "view"),
        ObjectType::Index => ("DROP INDEX", "index"),
        other => return Err(SqlError::unsupported(format!("DROP {other}"))),
    };
    let mut steps = Vec::new();
    let mut skipped = None;
    for name in &names {
        match find(context, name, object_type)? {
            true => steps.push(format!("{verb} {}", quote(name))),
            false if *if_exists => skipped = Some(format!("{word} \"{name}\" does not exist")),
            false => {
                let state = if *object_type == ObjectType::Index {
                    SqlState::UNDEFINED_OBJECT
                } else {
                    SqlState::UNDEFINED_TABLE
                };
                return Err(SqlError::new(state, format!("{word} \"{name}\" does not exist")));
            }
        }
    }
    if *object_type == ObjectType::Table {
        check_children(context, &names, *cascade)?;
    }
    match skipped {
        Some(what) if steps.is_empty() => Ok(skipping(verb, &what, SqlState("00000"))),
        Some(what) => Ok(Translated { notices: skipping(verb, &what, SqlState("00000")).notices, ..ddl(steps, verb) }),
        None => Ok(ddl(steps, verb)),
    }
}

/// It exists and is of that kind; 42809 where it is of another.
fn find(context: &Context<'_>, name: &str, kind: &ObjectType) -> SqlResult<bool> {
    if *kind == ObjectType::Index {
        let indexes = || context.schema.tables.iter().flat_map(|t| t.indexes.iter().map(move |i| (t, i)));
        return match indexes().find(|(_, i)| i.name == name) {
            Some((table, index)) if index.sql.as_deref().is_some_and(|s| s.contains(super::CONSTRAINT_MARK)) => {
                let message =
                    format!("cannot drop index {name} because constraint {name} on table {} requires it", table.name);
                Err(SqlError::new(SqlState("2BP01"), message)
                    .with_hint(format!("You can drop constraint {name} on table {} instead.", table.name)))
            }
            found => Ok(found.is_some()),
        };
    }
    let Ok(table) = scope::table(context.schema, name) else { return Ok(false) };
    let is_view = table.kind == TableKind::View;
    if is_view != (*kind == ObjectType::View) {
        let word = if is_view { "table" } else { "view" };
        let hint = if is_view { "Use DROP VIEW to remove a view." } else { "Use DROP TABLE to remove a table." };
        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a {word}")).with_hint(hint));
    }
    Ok(true)
}

/// 2BP01 where another table's foreign key refers to one that is to go.
fn check_children(context: &Context<'_>, names: &[String], cascade: bool) -> SqlResult<()> {
    for child in context.schema.tables.iter().filter(|t| !names.contains(&t.name)) {
        let Some(key) = child.foreign_keys.iter().find(|k| names.iter().any(|n| n.eq_ignore_ascii_case(&k.parent)))
        else {
            continue;
        };
        if cascade {
            return Err(SqlError::unsupported("DROP TABLE ... CASCADE of a table that a foreign key refers to")
                .with_hint(format!("Drop table {} as well.", child.name)));
        }
        let message = format!("cannot drop table {} because other objects depend on it", key.parent);
        return Err(SqlError::new(SqlState("2BP01"), message)
            .with_detail(format!("a foreign key of table {} depends on table {}", child.name, key.parent)));
    }
    Ok(())
}

/// TRUNCATE as DELETE of every row, which the audit trail records like any other change.
pub fn truncate(truncate: &Truncate, context: &Context<'_>) -> SqlResult<Translated> {
    let mut names = Vec::new();
    for target in &truncate.table_names {
        let name = exact_name(&target.name)?;
        let table = scope::table(context.schema, &name)?;
        if table.kind == TableKind::View {
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("\"{name}\" is not a table")));
        }
        names.push(name);
    }
    let children: Vec<&str> = context
        .schema
        .tables
        .iter()
        .filter(|t| !names.contains(&t.name) && t.foreign_keys.iter().any(|k| names.contains(&k.parent)))
        .map(|t| t.name.as_str())
        .collect();
    if let Some(child) = children.first() {
        return Err(SqlError::unsupported("truncating a table referenced in a foreign key constraint")
            .with_hint(format!("Truncate table \"{child}\" at the same time.")));
    }
    // Children before parents, so that no foreign key is violated in between.
    names.sort_by_key(|n| {
        let table = context.schema.table(n);
        std::cmp::Reverse(table.map_or(0, |t| t.foreign_keys.iter().filter(|k| names_has(&k.parent, truncate)).count()))
    });
    let steps = names.iter().map(|n| format!("DELETE FROM {}", quote(n))).collect();
    Ok(Translated { steps, counts: false, ..Translated::command(Kind::Delete, "TRUNCATE TABLE") })
}

fn names_has(parent: &str, truncate: &Truncate) -> bool {
    truncate.table_names.iter().any(|t| exact_name(&t.name).is_ok_and(|n| n == parent))
}
