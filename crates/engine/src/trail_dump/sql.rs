//! The changes of a boxcar as SQL that a person can read, judge and run again: what a server that was deposed had done and
//! nobody else has.
//!
//! Each transaction stands between BEGIN and COMMIT under a comment that says when it was made. A row is found by its key;
//! what an update or delete found there before is in a comment.

use super::shown::{Cells, Item, OpItem, RecordItem, TxnItem};
use holdfast_store::schema_map::quote;
use holdfast_types::Hlc;
use std::fmt::Write;

/// The transactions of a boxcar; empty where it has none.
pub fn statements(item: &Item) -> String {
    let mut out = String::new();
    let Item::Boxcar { lsn, records, .. } = item else { return out };
    for record in records {
        match record {
            RecordItem::Batch { volume, database, transactions, .. } => {
                let name = database.clone().unwrap_or_else(|| format!("volume {volume}"));
                transactions.iter().for_each(|t| transaction(&mut out, *lsn, &name, t));
            }
            RecordItem::VolumeCreate { name, .. } => line(&mut out, &format!("CREATE DATABASE {};", quote(name))),
            RecordItem::VolumeDrop { volume } => line(&mut out, &format!("-- database of volume {volume} dropped")),
            RecordItem::Fragment { database, transaction, ops, .. } => {
                let name = database.clone().unwrap_or_default();
                line(&mut out, &format!("-- part of transaction {transaction} of {name}"));
                ops.iter().for_each(|op| operation(&mut out, op));
            }
            other @ (RecordItem::Parameters { .. }
            | RecordItem::Unreadable { .. }
            | RecordItem::FragmentDrop { .. }) => {
                line(&mut out, &format!("-- {other}"));
            }
            RecordItem::Checkpoint { .. } => {}
        }
    }
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn transaction(out: &mut String, lsn: u64, database: &str, t: &TxnItem) {
    let made = Hlc(t.unix_ms << 16);
    line(out, &format!("-- database {database}, LSN {lsn}, transaction {}, {} ms after 1970", t.id, made.unix_ms()));
    line(out, "BEGIN;");
    t.ops.iter().for_each(|op| operation(out, op));
    line(out, "COMMIT;");
}

fn operation(out: &mut String, op: &OpItem) {
    let text = match op {
        OpItem::Insert { table, values, .. } => {
            let columns: Vec<String> = values.0.iter().map(|(name, _)| quote(name)).collect();
            let literals: Vec<String> = values.0.iter().map(|(_, value)| value.to_string()).collect();
            format!("INSERT INTO {} ({}) VALUES ({});", quote(table), columns.join(", "), literals.join(", "))
        }
        OpItem::Update { table, key, changes, .. } => {
            let set: Vec<String> = changes.iter().map(|c| format!("{} = {}", quote(&c.column), c.after)).collect();
            let before: Vec<String> = changes.iter().map(|c| format!("{} = {}", c.column, c.before)).collect();
            format!(
                "UPDATE {} SET {} WHERE {}; -- before: {}",
                quote(table),
                set.join(", "),
                found(key),
                before.join(", ")
            )
        }
        OpItem::Delete { table, key, before } => {
            format!("DELETE FROM {} WHERE {}; -- before: {before}", quote(table), found(key))
        }
        OpItem::Ddl { sql, .. } | OpItem::Pragma { sql } => format!("{sql};"),
        OpItem::Sequence { .. } | OpItem::AllSequences { .. } => return,
        OpItem::Fragments { .. } | OpItem::Unreadable { .. } => format!("-- {op}"),
    };
    // A value may hold a line break; a comment must not end in its midst.
    out.push_str(&text.replace('\n', " "));
    out.push('\n');
}

fn found(key: &Cells) -> String {
    let mut out = String::new();
    for (i, (name, value)) in key.0.iter().enumerate() {
        let and = if i == 0 { "" } else { " AND " };
        // Writing to a string does not fail.
        let _ = write!(out, "{and}{} = {value}", quote(name));
    }
    out
}
