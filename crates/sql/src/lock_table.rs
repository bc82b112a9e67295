//! LOCK TABLE.

use crate::bind::scope;
use crate::catalogue;
use crate::command::Kind;
use crate::context::Context;
use crate::names::{Among, relation_name};
use crate::translated::Translated;
use holdfast_types::schema::TableKind;
use holdfast_types::{SqlError, SqlResult, SqlState, TableLockMode};
use sqlparser::ast::{Lock, LockTableMode};

/// Translates LOCK TABLE. It can lock stored tables only: 42P01 for a name that does not exist, 42501 for a catalogue
/// table.
pub fn translate(lock: &Lock, context: &Context<'_>) -> SqlResult<Translated> {
    let mut tables = Vec::with_capacity(lock.tables.len());
    for target in &lock.tables {
        let (among, name) = relation_name(&target.name)?;
        if among != Among::Temporary && catalogue::find(None, &name).is_some() {
            let message = format!("permission denied for table {name}");
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        let table = scope::table(context.schema, among, &name)?;
        if table.kind == TableKind::View {
            return Err(SqlError::unsupported("LOCK TABLE of a view").with_hint("Lock the tables that it reads."));
        }
        // No other session sees a temporary table.
        if !table.temp {
            tables.push(name);
        }
    }
    let mode = match &lock.lock_mode {
        Some(LockTableMode::AccessShare) => TableLockMode::AccessShare,
        Some(LockTableMode::RowShare) => TableLockMode::RowShare,
        Some(LockTableMode::RowExclusive) => TableLockMode::RowExclusive,
        Some(LockTableMode::ShareUpdateExclusive) => TableLockMode::ShareUpdateExclusive,
        Some(LockTableMode::Share) => TableLockMode::Share,
        Some(LockTableMode::ShareRowExclusive) => TableLockMode::ShareRowExclusive,
        Some(LockTableMode::Exclusive) => TableLockMode::Exclusive,
        Some(LockTableMode::AccessExclusive) | None => TableLockMode::AccessExclusive,
    };
    let kind = Kind::LockTable { tables, mode, no_wait: lock.nowait };
    Ok(Translated { locks: true, ..Translated::command(kind, "LOCK TABLE") })
}
