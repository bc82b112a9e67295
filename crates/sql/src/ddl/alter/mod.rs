//! ALTER TABLE. Several actions make one change of the table ([`change`]); RENAME is SQLite's own.

mod change;
mod columns;
mod constraints;

use super::create_table::{Of, draft, own_scope, unique_index};
use super::{check_free, ddl_of, skipping};
use crate::bind::{Binder, need, scope};
use crate::command::Kind;
use crate::context::Context;
use crate::names::{exact_name, fold, quote, quote_table, relation_name};
use crate::scan::Piece;
use crate::translated::{Notice, Translated};
use crate::types;
use change::{Change, no_column};
pub(super) use change::{depends, mentions};
pub(super) use constraints::without_foreign_keys;
use holdfast_types::access::{Access, Need};
use holdfast_types::definition::{ClauseKind, Definition};
use holdfast_types::schema::{Table, TableKind};
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{
    AlterColumnOperation as ColumnOp, AlterTable, AlterTableOperation as Op, ColumnDef, DropBehavior, ObjectName,
    RenameTableNameKind,
};

const VERB: &str = "ALTER TABLE";

pub fn translate(alter: &AlterTable, piece: &Piece<'_>, context: &Context<'_>) -> SqlResult<Translated> {
    let (among, name) = relation_name(&alter.name)?;
    let table = match scope::table(context.schema, among, &name) {
        Err(e) if alter.if_exists && e.state() == SqlState::UNDEFINED_TABLE => {
            let what = format!("relation \"{name}\" does not exist");
            return Ok(skipping(VERB, &what, SqlState::UNDEFINED_TABLE));
        }
        other => other?,
    };
    let access = access(alter, table);
    let (steps, notices) = match alter.operations.as_slice() {
        [Op::RenameTable { .. } | Op::RenameColumn { .. }] => {
            (rename(&alter.operations[0], table, context)?, Vec::new())
        }
        operations if operations.iter().all(has_no_effect) => (Vec::new(), Vec::new()),
        _ if table.kind != TableKind::Table => {
            let message = format!("ALTER action is not supported for relation \"{}\"", table.name);
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
        }
        operations => actions(operations, table, piece, context)?,
    };
    if steps.is_empty() {
        return Ok(Translated { access, notices, cacheable: false, ..Translated::command(Kind::NoOp, VERB) });
    }
    Ok(Translated { access, notices, ..ddl_of(table.temp, steps, VERB) })
}

/// To be the owner; a new name of the table, or an index with its constraint, also needs CREATE on the schema.
fn access(alter: &AlterTable, table: &Table) -> Access {
    let mut needs = need::owner(table);
    let renames = |op: &Op| matches!(op, Op::RenameTable { .. });
    if !table.temp && alter.operations.iter().any(renames) {
        needs.push(Need::CreateInSchema);
    }
    Access::of(needs)
}

/// Ownership, statistics and storage do not change any result.
fn has_no_effect(operation: &Op) -> bool {
    matches!(operation, Op::OwnerTo { .. } | Op::SetLogged | Op::SetUnlogged | Op::SetOptionsParens { .. })
}

fn rename(operation: &Op, table: &Table, context: &Context<'_>) -> SqlResult<Vec<String>> {
    let target = quote_table(table);
    Ok(match operation {
        Op::RenameColumn { old_column_name, new_column_name } => {
            let (old, new) = (fold(old_column_name), fold(new_column_name));
            if !table.columns.iter().any(|c| c.name == old) {
                return Err(no_column(table, &old));
            }
            if table.columns.iter().any(|c| c.name.eq_ignore_ascii_case(&new)) {
                let message = format!("column \"{new}\" of relation \"{}\" already exists", table.name);
                return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
            }
            vec![format!("ALTER TABLE {target} RENAME COLUMN {} TO {}", quote(&old), quote(&new))]
        }
        Op::RenameTable { table_name: RenameTableNameKind::To(new) | RenameTableNameKind::As(new) } => {
            let new = exact_name(new)?;
            check_free(context, table.temp, &new)?;
            let mut steps = keep_names(table, context)?;
            steps.push(format!("ALTER TABLE {target} RENAME TO {}", quote(&new)));
            steps
        }
        other => return Err(SqlError::unsupported(format!("ALTER TABLE ... {other}"))),
    })
}

/// Constraints keep their names when the table gets another: those it has by default are written down.
fn keep_names(table: &Table, context: &Context<'_>) -> SqlResult<Vec<String>> {
    if table.temp || table.kind != TableKind::Table {
        return Ok(Vec::new());
    }
    let Ok(mut change) = Change::new(context, table) else { return Ok(Vec::new()) };
    change.writes_names = true;
    change.now.each_clause(|_, clause| {
        if matches!(clause.kind, ClauseKind::PrimaryKey(_)) {
            clause.name = Some(table.key_name.clone());
        }
    });
    change.steps()
}

/// 0A000 for foreign keys, generated columns and sequences that a table gets which a subscription writes.
fn refuse_other_writers(change: &Change<'_>) -> SqlResult<()> {
    let count = |of: &Definition, generated: bool| {
        let counts = |kind: &ClauseKind| match kind {
            ClauseKind::Generated => generated,
            ClauseKind::ForeignKey(_) => !generated,
            _ => false,
        };
        of.clauses().filter(|(_, clause)| counts(&clause.kind)).count()
    };
    for (generated, what) in [(false, "a foreign key of"), (true, "a generated column of")] {
        if count(&change.now, generated) > count(&change.before, generated) {
            need::refuse_where_subscribed(change.context.schema, change.table, what)?;
        }
    }
    Ok(())
}

/// In which order PostgreSQL takes the actions of one statement: what is dropped first, constraints last.
fn pass(operation: &Op) -> u8 {
    match operation {
        Op::DropConstraint { .. } | Op::DropColumn { .. } => 0,
        Op::AlterColumn { op: ColumnOp::DropDefault | ColumnOp::DropNotNull, .. } => 0,
        Op::AlterColumn { op: ColumnOp::SetDataType { .. }, .. } => 1,
        Op::AddColumn { .. } => 2,
        Op::AddConstraint { .. } => 4,
        Op::ValidateConstraint { .. } => 5,
        _ => 3,
    }
}

fn actions(
    operations: &[Op],
    table: &Table,
    piece: &Piece<'_>,
    context: &Context<'_>,
) -> SqlResult<(Vec<String>, Vec<Notice>)> {
    if table.temp {
        return Ok((on_temporary(operations, table, piece, context)?, Vec::new()));
    }
    let (mut change, mut notices) = (Change::new(context, table)?, Vec::new());
    let mut ordered: Vec<&Op> = operations.iter().collect();
    ordered.sort_by_key(|op| pass(op));
    for operation in ordered {
        act(operation, &mut change, &mut notices, piece)?;
    }
    refuse_other_writers(&change)?;
    Ok((change.steps()?, notices))
}

fn act(operation: &Op, change: &mut Change<'_>, notices: &mut Vec<Notice>, piece: &Piece<'_>) -> SqlResult<()> {
    let cascades = |behavior: &Option<DropBehavior>| *behavior == Some(DropBehavior::Cascade);
    let table = change.table;
    let skipped = |what: String| skipping(VERB, &what, SqlState("00000")).notices;
    match operation {
        Op::AddConstraint { constraint, not_valid } => constraints::add(change, constraint, *not_valid, piece)?,
        Op::AddColumn { column_def, if_not_exists, .. } => {
            let name = fold(&column_def.name);
            let exists = change.now.columns.iter().any(|c| c.name == name);
            match exists && *if_not_exists {
                true => {
                    notices.extend(skipped(format!("column \"{name}\" of relation \"{}\" already exists", table.name)))
                }
                false => add_column(column_def, change, piece)?,
            }
        }
        Op::DropColumn { column_names, if_exists, drop_behavior, .. } => {
            for name in column_names.iter().map(fold) {
                match *if_exists && !change.now.columns.iter().any(|c| c.name == name) {
                    true => notices
                        .extend(skipped(format!("column \"{name}\" of relation \"{}\" does not exist", table.name))),
                    false => {
                        let with_it = columns::drop(change, &name, cascades(drop_behavior))?;
                        notices.extend(cascading(&with_it));
                    }
                }
            }
        }
        Op::DropConstraint { name, if_exists, drop_behavior } => {
            let name = fold(name);
            if !constraints::drop(change, &name, *if_exists, cascades(drop_behavior))? {
                notices.extend(skipped(format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name)));
            }
        }
        Op::RenameConstraint { old_name, new_name } => constraints::rename(change, &fold(old_name), &fold(new_name))?,
        Op::ValidateConstraint { name } => constraints::validate(change, &fold(name))?,
        Op::AlterColumn { column_name, op } => {
            let name = fold(column_name);
            match op {
                ColumnOp::SetNotNull => constraints::set_not_null(change, &name)?,
                ColumnOp::DropNotNull => columns::drop_not_null(change, &name)?,
                ColumnOp::SetDefault { value } => columns::set_default(change, &name, Some(value), piece)?,
                ColumnOp::DropDefault => columns::set_default(change, &name, None, piece)?,
                ColumnOp::SetDataType { data_type, using, .. } => {
                    columns::set_type(change, &name, data_type, using.as_ref(), piece)?;
                }
                ColumnOp::AddGenerated { .. } => columns::add_identity(change, &name)?,
            }
        }
        other if has_no_effect(other) => {}
        other => return Err(SqlError::unsupported(format!("ALTER TABLE ... {other}"))),
    }
    Ok(())
}

/// The notice about what a CASCADE takes with it.
fn cascading(dropped: &[String]) -> Option<Notice> {
    let message = match dropped {
        [] => return None,
        [only] => format!("drop cascades to {only}"),
        all => format!("drop cascades to {} other objects", all.len()),
    };
    Some(Notice { severity: "NOTICE", state: SqlState("00000"), message })
}

/// ADD COLUMN.
fn add_column(column: &ColumnDef, change: &mut Change<'_>, piece: &Piece<'_>) -> SqlResult<()> {
    let (table, context) = (change.table, change.context);
    let name = fold(&column.name);
    if change.now.columns.iter().any(|c| c.name.eq_ignore_ascii_case(&name) && !change.drops.contains(&c.name)) {
        let message = format!("column \"{name}\" of relation \"{}\" already exists", table.name);
        return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
    }
    let draft = drafted(column, table, &change.drops, piece, context)?;
    if draft.serial {
        return Err(SqlError::unsupported("adding a serial or identity column"));
    }
    let (sql, clock) = draft.column_sql()?;
    columns::add(change, &sql, clock)?;
    if draft.primary {
        constraints::add_primary_key(change, None, vec![name.clone()])?;
    }
    if let Some(wanted) = draft.unique {
        let wanted = wanted.map(|w| sqlparser::ast::Ident::with_quote('"', w));
        constraints::add_unique(change, wanted.as_ref(), vec![name])?;
    }
    Ok(())
}

/// The column, whose constraints may name the table's other columns except for `dropped` ones.
fn drafted(
    column: &ColumnDef,
    table: &Table,
    dropped: &[String],
    piece: &Piece<'_>,
    context: &Context<'_>,
) -> SqlResult<super::create_table::Draft> {
    let mut binder = Binder::new(piece, context);
    binder.stored = true;
    let others = scope::columns_of(table, context.dialect).into_iter().filter(|c| !dropped.contains(&c.name));
    let mut columns: Vec<_> = others.map(|c| (c.name, c.ty)).collect();
    columns.push((fold(&column.name), types::from_ast(&column.data_type)?));
    let scope = own_scope(&table.name, columns);
    let of = Of { context, temp: table.temp, table: &table.name, primary: crate::keys::primary_key(table) };
    draft(&mut binder, &of, column, &scope)
}

/// A temporary table is changed as far as SQLite itself can.
fn on_temporary(operations: &[Op], table: &Table, piece: &Piece<'_>, context: &Context<'_>) -> SqlResult<Vec<String>> {
    let target = quote_table(table);
    let of = Of { context, temp: true, table: &table.name, primary: crate::keys::primary_key(table) };
    let mut steps = Vec::new();
    for operation in operations {
        match operation {
            Op::AddColumn { column_def, .. } => {
                let draft = drafted(column_def, table, &[], piece, context)?;
                if table.columns.iter().any(|c| c.name.eq_ignore_ascii_case(&draft.name)) {
                    let message = format!("column \"{}\" of relation \"{}\" already exists", draft.name, table.name);
                    return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
                }
                let (sql, clock) = draft.column_sql()?;
                if draft.primary || draft.serial || clock {
                    return Err(SqlError::unsupported("adding this column to a temporary table"));
                }
                steps.push(format!("ALTER TABLE {target} ADD COLUMN {sql}"));
                if let Some(wanted) = draft.unique {
                    steps.push(unique_index(&of, wanted, &[draft.name], &mut Vec::new()));
                }
            }
            Op::DropColumn { column_names, if_exists, .. } => {
                for name in column_names.iter().map(fold) {
                    if table.columns.iter().any(|c| c.name == name) {
                        steps.push(format!("ALTER TABLE {target} DROP COLUMN {}", quote(&name)));
                    } else if !if_exists {
                        return Err(no_column(table, &name));
                    }
                }
            }
            Op::DropConstraint { name, .. } if constraints::constraint_index(table, &fold(name)).is_some() => {
                steps.push(format!("DROP INDEX {}", crate::names::quote_in(true, &fold(name))));
            }
            Op::AddConstraint { constraint, not_valid: false } => {
                let mut change = Change::new(context, table)?;
                constraints::add(&mut change, constraint, false, piece)?;
                steps.extend(change.steps()?);
            }
            other if has_no_effect(other) => {}
            other => return Err(SqlError::unsupported(format!("ALTER TABLE ... {other} of a temporary table"))),
        }
    }
    Ok(steps)
}

/// ALTER INDEX ... RENAME TO.
pub fn rename_index(name: &ObjectName, new: &ObjectName, context: &Context<'_>) -> SqlResult<Translated> {
    let (name, new) = (exact_name(name)?, exact_name(new)?);
    let of = |t: &&std::sync::Arc<Table>| !t.temp && t.indexes.iter().any(|i| i.name == name && i.sql.is_some());
    let Some(table) = context.schema.tables.iter().find(of) else {
        return Err(SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist")));
    };
    check_free(context, false, &new)?;
    let mut change = Change::new(context, table)?;
    for index in table.indexes.iter().filter(|i| i.name == name) {
        change.index_texts.push((name.clone(), constraints::renamed_index(table, index, &new)?));
    }
    let access = Access::of(need::owner(table));
    Ok(Translated { access, ..ddl_of(false, change.steps()?, "ALTER INDEX") })
}
