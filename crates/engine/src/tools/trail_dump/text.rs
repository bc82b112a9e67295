//! The dump of the trail as lines of text: one for each segment, boxcar, record, transaction and operation, indented in that order.

use super::shown::{Cells, Item, OpItem, RecordItem, TxnItem, Val, hex};
use holdfast_types::Value;
use std::fmt::{Display, Formatter, Result};

impl Display for Item {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Item::Segment { file, segment, epoch, recycled } => {
                let epoch = epoch.map_or("damaged header".to_owned(), |e| format!("epoch {e}"));
                write!(f, "segment {segment}, {epoch}{}: {file}", if *recycled { ", recycled" } else { "" })
            }
            Item::Boxcar { lsn, end, kind, epoch, incarnation, proven, written_unix_ms, checksum, records } => {
                write!(
                    f,
                    "boxcar {lsn}..{end} {kind}, epoch {epoch}, incarnation {incarnation}, proven {proven}, \
                     checksum {checksum:08x}, written {written_unix_ms}"
                )?;
                records.iter().try_for_each(|record| write!(f, "\n  {record}"))
            }
            Item::Stop { file, offset, lsn, reason } => {
                write!(f, "stop at LSN {lsn}, byte {offset} of {file}: {reason}")
            }
        }
    }
}

/// `volume 3 (shop)`
fn volume(id: u32, name: &Option<String>) -> String {
    name.as_ref().map_or_else(|| format!("volume {id}"), |name| format!("volume {id} ({name})"))
}

impl Display for RecordItem {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            RecordItem::Batch { volume: id, database, number, schema_epoch, transactions, .. } => {
                write!(f, "batch {number} of {}, schema epoch {schema_epoch}", volume(*id, database))?;
                transactions.iter().try_for_each(|t| write!(f, "\n    {t}"))
            }
            RecordItem::Fragment { volume: id, database, transaction, number, ops, .. } => {
                write!(f, "fragment {number} of transaction {transaction} of {}", volume(*id, database))?;
                ops.iter().try_for_each(|op| write!(f, "\n      {op}"))
            }
            RecordItem::FragmentDrop { volume: id, database, transaction } => {
                write!(f, "fragments of transaction {transaction} of {} dropped", volume(*id, database))
            }
            RecordItem::Checkpoint { volume: id, database, number, redo_start, file_size_bytes, file_mtime_ns } => {
                write!(
                    f,
                    "checkpoint of {} at {number}, redo starts at {redo_start}, file {file_size_bytes} bytes of time \
                     {file_mtime_ns}",
                    volume(*id, database)
                )
            }
            RecordItem::VolumeCreate { volume, dialect, name } => {
                write!(f, "volume {volume} created, dialect {dialect}, name {name}")
            }
            RecordItem::VolumeDrop { volume } => write!(f, "volume {volume} dropped"),
            RecordItem::Parameters { volume, role, parameters } => {
                match (volume, role) {
                    (Some(volume), _) => write!(f, "parameters of volume {volume}:")?,
                    (None, Some(role)) => write!(f, "parameters of role {role}:")?,
                    // Whole files.
                    (None, None) => return server(parameters, f),
                }
                parameters.iter().try_for_each(|(name, value)| write!(f, " {name}={value}"))
            }
            RecordItem::Role { .. } => role(self, f),
            RecordItem::RoleDrop { oid } => write!(f, "role {oid} dropped"),
            RecordItem::DatabaseAccess { volume, owner, connection_limit, acl } => {
                write!(f, "access to volume {volume}: owner {owner}, connection limit {connection_limit}, grants ")?;
                match acl {
                    None => write!(f, "initial"),
                    Some(acl) => write!(f, "{{{}}}", acl.join(",")),
                }
            }
            RecordItem::Unreadable { error } => write!(f, "unreadable: {error}"),
        }
    }
}

/// What all nodes share: names and sizes.
fn server(parameters: &[(String, String)], f: &mut Formatter<'_>) -> Result {
    write!(f, "shared by all nodes:")?;
    parameters.iter().try_for_each(|(name, value)| write!(f, " {name} ({} bytes)", value.len()))
}

/// A role on one line; not the verifier of its password.
fn role(item: &RecordItem, f: &mut Formatter<'_>) -> Result {
    let RecordItem::Role {
        oid,
        name,
        attributes,
        connection_limit,
        has_password,
        valid_until_us,
        member_of,
        parameters,
    } = item
    else {
        return Ok(());
    };
    write!(f, "role {oid} {name:?}: {}, connection limit {connection_limit}", attributes.join(" "))?;
    write!(f, ", {}", if *has_password { "with a password" } else { "no password" })?;
    valid_until_us.iter().try_for_each(|us| write!(f, ", valid until {us} µs after 1970"))?;
    for m in member_of {
        let admin = if m.admin { " with admin option" } else { "" };
        write!(f, ", member of {} by {}{admin}", m.role, m.grantor)?;
    }
    for p in parameters {
        let place = if p.volume == 0 { String::new() } else { format!(" in volume {}", p.volume) };
        write!(f, ", {}={}{place}", p.name, p.value)?;
    }
    Ok(())
}

impl Display for TxnItem {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "transaction {} of site {}, clock {}.{}", self.id, self.site, self.unix_ms, self.counter)?;
        self.by().iter().try_for_each(|by| write!(f, ", by {by}"))?;
        self.ops.iter().try_for_each(|op| write!(f, "\n      {op}"))
    }
}

impl Display for OpItem {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            OpItem::Insert { table, rowid, values } => {
                write!(f, "insert {table}")?;
                rowid.iter().try_for_each(|rowid| write!(f, " rowid={rowid}"))?;
                write!(f, ": {values}")
            }
            OpItem::Update { table, key, new_key, changes } => {
                write!(f, "update {table} {key}")?;
                new_key.iter().try_for_each(|key| write!(f, " to {key}"))?;
                let mut before = ": ";
                changes.iter().try_for_each(|c| {
                    write!(f, "{before}{} {} -> {}", c.column, c.before, c.after)?;
                    before = ", ";
                    Ok(())
                })
            }
            OpItem::Delete { table, key, before } => write!(f, "delete {table} {key}: {before}"),
            OpItem::Ddl { sql, schema_epoch_after, .. } => write!(f, "ddl to schema epoch {schema_epoch_after}: {sql}"),
            OpItem::Sequence { table, value, .. } => write!(f, "sequence of {table}: {value}"),
            OpItem::AllSequences { rows } => {
                write!(f, "all sequences")?;
                rows.iter().try_for_each(|row| write!(f, " ({row})"))
            }
            OpItem::Pragma { sql } => write!(f, "pragma: {sql}"),
            OpItem::Fragments { transaction, count } => write!(f, "{count} fragments of transaction {transaction}"),
            OpItem::Unreadable { error } => write!(f, "unreadable: {error}"),
        }
    }
}

impl Display for Cells {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut between = "";
        self.0.iter().try_for_each(|(name, value)| {
            write!(f, "{between}{name}={value}")?;
            between = ", ";
            Ok(())
        })
    }
}

/// As an SQL literal.
impl Display for Val {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match &self.0 {
            Value::Null => write!(f, "NULL"),
            Value::Int(n) => write!(f, "{n}"),
            Value::Real(r) => write!(f, "{r:?}"),
            Value::Text(t) => write!(f, "'{}'", t.replace('\'', "''").replace('\n', "\\n")),
            Value::Blob(b) => write!(f, "x'{}'", hex(b)),
        }
    }
}
