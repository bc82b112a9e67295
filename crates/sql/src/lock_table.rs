//! LOCK TABLE.

use crate::bind::{need, scope};
use crate::catalogue;
use crate::command::Kind;
use crate::context::Context;
use crate::names::{Among, relation_name};
use crate::translated::Translated;
use holdfast_types::access::{Access, Need, Privileges};
use holdfast_types::schema::TableKind;
use holdfast_types::{SqlError, SqlResult, SqlState, TableLockMode};
use sqlparser::ast::{Lock, LockTableMode};

/// Translates LOCK TABLE. It can lock stored tables only: 42P01 for a name that does not exist, 42501 for a catalogue
/// table.
pub fn translate(lock: &Lock, context: &Context<'_>) -> SqlResult<Translated> {
    let (mut tables, mut needs) = (Vec::with_capacity(lock.tables.len()), Vec::new());
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
            // PostgreSQL: LockTableAclCheck in lockcmds.c.
            needs.extend(need::of_columns(table, lock_privileges(lock), std::iter::empty()));
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
    for need in &mut needs {
        if let Need::Table(need) = need {
            need.any = true;
        }
    }
    Ok(Translated { locks: true, access: Access::of(needs), ..Translated::command(kind, "LOCK TABLE") })
}

/// The privileges of which one is needed.
fn lock_privileges(lock: &Lock) -> Privileges {
    let changing = Privileges::UPDATE | Privileges::DELETE | Privileges::TRUNCATE;
    match &lock.lock_mode {
        Some(LockTableMode::AccessShare) => Privileges::SELECT,
        Some(LockTableMode::RowExclusive) => Privileges::INSERT | changing,
        _ => changing,
    }
}
