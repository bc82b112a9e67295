//! ALTER TABLE, as far as SQLite can change a table in place.

use super::create_table::{Of, columns_of, draft, own_scope, refuse_nulls_not_distinct, unique_index};
use super::{check_free, ddl_of, skipping};
use crate::bind::{Binder, need, scope};
use crate::command::Kind;
use crate::context::Context;
use crate::names::{exact_name, fold, quote, quote_in, quote_table, relation_name};
use crate::scan::Piece;
use crate::translated::Translated;
use crate::types;
use holdfast_types::access::{Access, Need};
use holdfast_types::schema::Table;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{AlterTable, AlterTableOperation as Op, ColumnDef, RenameTableNameKind, TableConstraint};

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
    let mut steps = Vec::new();
    for operation in &alter.operations {
        steps.extend(change(operation, table, piece, context)?);
    }
    if steps.is_empty() {
        return Ok(Translated { access, cacheable: false, ..Translated::command(Kind::NoOp, VERB) });
    }
    Ok(Translated { access, ..ddl_of(table.temp, steps, VERB) })
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

fn change(operation: &Op, table: &Table, piece: &Piece<'_>, context: &Context<'_>) -> SqlResult<Vec<String>> {
    let target = quote_table(table);
    Ok(match operation {
        Op::AddConstraint { constraint, .. } => vec![add_constraint(constraint, table, context)?],
        Op::AddColumn { column_def, if_not_exists, .. } => {
            let exists = table.columns.iter().any(|c| c.name == fold(&column_def.name));
            if exists && *if_not_exists { Vec::new() } else { add_column(column_def, table, piece, context)? }
        }
        Op::DropColumn { column_names, if_exists, .. } => {
            let mut steps = Vec::new();
            for name in column_names.iter().map(fold) {
                if table.columns.iter().any(|c| c.name == name) {
                    steps.push(format!("ALTER TABLE {target} DROP COLUMN {}", quote(&name)));
                } else if !if_exists {
                    return Err(no_column(table, &name));
                }
            }
            steps
        }
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
            vec![format!("ALTER TABLE {target} RENAME TO {}", quote(&new))]
        }
        Op::DropConstraint { name, if_exists, .. } => {
            let name = fold(name);
            match table.indexes.iter().find(|i| i.name == name && i.sql.is_some()) {
                Some(_) => vec![format!("DROP INDEX {}", quote_in(table.temp, &name))],
                None if *if_exists => Vec::new(),
                None => {
                    return Err(SqlError::unsupported(format!("dropping the constraint \"{name}\"")).with_hint(
                        "Only unique constraints can be dropped, not keys and checks that CREATE TABLE declared.",
                    ));
                }
            }
        }
        // Ownership, statistics and storage do not change any result.
        Op::OwnerTo { .. }
        | Op::SetLogged
        | Op::SetUnlogged
        | Op::SetOptionsParens { .. }
        | Op::ValidateConstraint { .. } => Vec::new(),
        other => return Err(SqlError::unsupported(format!("ALTER TABLE ... {other}"))),
    })
}

fn no_column(table: &Table, name: &str) -> SqlError {
    let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
    SqlError::new(SqlState::UNDEFINED_COLUMN, message)
}

fn add_constraint(constraint: &TableConstraint, table: &Table, context: &Context<'_>) -> SqlResult<String> {
    let of = Of { context, temp: table.temp, table: &table.name };
    match constraint {
        TableConstraint::PrimaryKey(key) => {
            let columns = checked(table, columns_of(&key.columns)?)?;
            let name = format!("{}_pkey", table.name);
            let has_key = table.columns.iter().any(|c| c.pk > 0) || table.indexes.iter().any(|i| i.name == name);
            if has_key {
                let message = format!("multiple primary keys for table \"{}\" are not allowed", table.name);
                return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
            }
            Ok(unique_index(&of, Some(name), &columns, &mut Vec::new()))
        }
        TableConstraint::Unique(key) => {
            refuse_nulls_not_distinct(&key.nulls_distinct)?;
            let columns = checked(table, columns_of(&key.columns)?)?;
            let wanted = key.name.as_ref().map(fold);
            if let Some(name) = &wanted {
                check_free(context, table.temp, name)?;
            }
            Ok(unique_index(&of, wanted, &columns, &mut Vec::new()))
        }
        TableConstraint::ForeignKey(_) => {
            Err(SqlError::unsupported("ALTER TABLE ADD FOREIGN KEY").with_hint("Declare foreign keys in CREATE TABLE."))
        }
        TableConstraint::Check(_) => {
            Err(SqlError::unsupported("ALTER TABLE ADD CHECK").with_hint("Declare checks in CREATE TABLE."))
        }
        other => Err(SqlError::unsupported(format!("ALTER TABLE ADD {other}"))),
    }
}

fn checked(table: &Table, columns: Vec<String>) -> SqlResult<Vec<String>> {
    for name in &columns {
        let column = table.columns.iter().find(|c| c.name == *name).ok_or_else(|| {
            SqlError::new(SqlState::UNDEFINED_COLUMN, format!("column \"{name}\" named in key does not exist"))
        })?;
        let ty = types::of_column(table, column, holdfast_types::schema::Dialect::Postgres);
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
    Ok(columns)
}

/// Adds a column. SQLite accepts only a constant default, and no key.
fn add_column(column: &ColumnDef, table: &Table, piece: &Piece<'_>, context: &Context<'_>) -> SqlResult<Vec<String>> {
    let mut binder = Binder::new(piece, context);
    binder.stored = true;
    let mut columns: Vec<_> = scope::columns_of(table, context.dialect).into_iter().map(|c| (c.name, c.ty)).collect();
    columns.push((fold(&column.name), types::from_ast(&column.data_type)?));
    let scope = own_scope(&table.name, columns);
    let of = Of { context, temp: table.temp, table: &table.name };
    let draft = draft(&mut binder, &of, column, &scope)?;
    if table.columns.iter().any(|c| c.name.eq_ignore_ascii_case(&draft.name)) {
        let message = format!("column \"{}\" of relation \"{}\" already exists", draft.name, table.name);
        return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
    }
    if draft.primary || draft.serial {
        return Err(SqlError::unsupported("adding a primary key or serial column"));
    }
    let (sql, clock) = draft.column_sql()?;
    if clock {
        return Err(SqlError::unsupported("adding a column whose default is the current time"));
    }
    let mut steps = vec![format!("ALTER TABLE {} ADD COLUMN {sql}", quote_table(table))];
    if let Some(wanted) = draft.unique {
        steps.push(unique_index(&of, wanted, &[draft.name], &mut Vec::new()));
    }
    Ok(steps)
}
