//! The table here into which a subscription writes the changes of one of the publisher's.
//!
//! Failure: PostgreSQL's errors where it has the rule (`CheckSubscriptionRelkind`, `logicalrep_report_missing_attrs`); 0A000 for tables
//! whose rows something else than the subscription would write: foreign keys, triggers, generated columns, sequences.

use super::RemoteTable;
use crate::catalogue::has_sequence;
use crate::context::Context;
use holdfast_types::definition::token::tokens;
use holdfast_types::schema::{ForeignKey, Schema, Table, TableKind};
use holdfast_types::subscription::Subscriptions;
use holdfast_types::{SqlError, SqlResult, SqlState};

/// The OID of the table, after all checks. `subscription`: by number, the one that gets it.
pub fn target(
    remote: &RemoteTable,
    context: &Context<'_>,
    subscriptions: &Subscriptions,
    subscription: u32,
) -> SqlResult<u32> {
    let table = find(remote, context.schema)?;
    if let Some(other) = subscriptions.of_table(table.oid).filter(|other| other.number != subscription) {
        let message = format!("table \"{}\" in two subscriptions", table.name);
        return Err(SqlError::unsupported(message).with_detail(format!("Subscription \"{}\" writes it.", other.name)));
    }
    check_columns(remote, table)?;
    check_writers(remote, table, context.schema)?;
    Ok(table.oid)
}

fn find<'s>(remote: &RemoteTable, schema: &'s Schema) -> SqlResult<&'s Table> {
    let RemoteTable { schema: of, name, .. } = remote;
    if of != "public" {
        return Err(SqlError::new(SqlState("3F000"), format!("schema \"{of}\" does not exist")));
    }
    let missing = || SqlError::new(SqlState::UNDEFINED_TABLE, format!("relation \"{of}.{name}\" does not exist"));
    let table = schema.table_among(false, name).ok_or_else(missing)?;
    let kind = match table.kind {
        TableKind::Table => return Ok(table),
        TableKind::View => "views",
        TableKind::Virtual => "virtual tables",
    };
    let message = format!("cannot use relation \"{of}.{name}\" as logical replication target");
    Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)
        .with_detail(format!("This operation is not supported for {kind}.")))
}

fn check_columns(remote: &RemoteTable, table: &Table) -> SqlResult<()> {
    let missing = remote.columns.iter().filter(|name| !table.columns.iter().any(|c| c.name == **name));
    let missing: Vec<String> = missing.map(|name| format!("\"{name}\"")).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let word = if missing.len() == 1 { "column" } else { "columns" };
    let message = format!(
        "logical replication target relation \"public.{}\" is missing replicated {word}: {}",
        table.name,
        missing.join(", ")
    );
    Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message))
}

/// 0A000 where something else than the subscription writes rows of the table.
fn check_writers(remote: &RemoteTable, table: &Table, schema: &Schema) -> SqlResult<()> {
    let refused = |what: String, hint: &str| {
        Err(SqlError::unsupported(format!("a subscription to table \"{}\" with {what}", table.name)).with_hint(hint))
    };
    if let Some(key) = table.foreign_keys.first() {
        return refused(format!("the foreign key \"{}\"", key.name), "The publisher checks it. Drop it here.");
    }
    let children = schema.tables.iter().flat_map(|child| child.foreign_keys.iter().map(move |key| (child, key)));
    let of_it = |key: &ForeignKey| key.parent.eq_ignore_ascii_case(&table.name) && acts(key);
    if let Some((child, key)) = children.into_iter().find(|(child, key)| !child.temp && of_it(key)) {
        let what = format!("an action of the foreign key \"{}\" of table \"{}\"", key.name, child.name);
        return refused(what, "Drop the foreign key, or add it again without an action.");
    }
    if let Some(trigger) = triggers_of(schema, &table.name).next() {
        return refused(format!("the trigger \"{trigger}\""), "Drop the trigger.");
    }
    let published = |name: &str| remote.columns.iter().any(|c| c == name);
    if let Some(column) = table.columns.iter().find(|c| c.generated && published(&c.name)) {
        let hint = "Make it a plain column here, or leave it out of the publication.";
        return refused(format!("the generated column \"{}\"", column.name), hint);
    }
    if let Some(column) = table.columns.iter().find(|c| c.rowid_alias && has_sequence(table) && published(&c.name)) {
        let what = if crate::keys::is_identity(table) { "identity" } else { "serial" };
        let hint = format!(
            "The publisher gives the values. Make it a plain column: ALTER TABLE \"{}\" ALTER COLUMN \"{}\" DROP {}.",
            table.name,
            column.name,
            if what == "identity" { "IDENTITY" } else { "DEFAULT" }
        );
        return refused(format!("the {what} column \"{}\"", column.name), &hint);
    }
    Ok(())
}

/// Whether a foreign key changes rows when those it refers to change.
fn acts(key: &ForeignKey) -> bool {
    let changes = |action: &str| !matches!(action.to_ascii_uppercase().as_str(), "" | "NO ACTION" | "RESTRICT");
    changes(&key.on_delete) || changes(&key.on_update)
}

/// The triggers that name a table, on it or in their programs.
fn triggers_of<'s>(schema: &'s Schema, name: &str) -> impl Iterator<Item = &'s str> {
    let names = move |sql: &str| {
        let is_name = |found: Option<String>| found.is_some_and(|found| found.eq_ignore_ascii_case(name));
        tokens(sql).iter().any(|token| is_name(token.name(sql)))
    };
    let triggers = schema.tables.iter().flat_map(|table| &table.triggers);
    triggers.filter(move |trigger| names(&trigger.sql)).map(|trigger| trigger.name.as_str())
}
