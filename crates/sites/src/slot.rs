//! A logical replication slot: what a publisher keeps for one subscriber, as a row of the internal table `holdfast_slots` of its
//! database.
//!
//! | column | content |
//! |---|---|
//! | `name` | of the slot |
//! | `plugin` | the output plugin |
//! | `trail` | id of the trail to which the positions belong, in hexadecimal |
//! | `confirmed`, `confirmed_offset` | the subscriber has everything before: a boxcar's LSN, and an offset in its body |
//! | `restart`, `restart_offset` | reading begins there: the first fragment of a transaction that was open then, or the same place |
//! | `epoch` | what the subscriber has was sent to it in this epoch of the trail, or before |
//!
//! The trail carries its rows like those of a user's table, so a standby that is promoted has them. A restored server has
//! another trail: then they are invalid.
//!
//! Failure: a row that cannot be read is damage.

use holdfast_changes::Position;
use holdfast_types::{Epoch, Lsn, Value};

/// The internal table.
pub const SLOTS_TABLE: &str = holdfast_store::schema_map::SLOTS_TABLE;

/// Creates the table, and the one of shapes, where they do not exist.
pub const CREATE: [&str; 2] = [
    holdfast_store::shapes::CREATE,
    "CREATE TABLE IF NOT EXISTS main.holdfast_slots(name TEXT PRIMARY KEY, plugin TEXT NOT NULL, trail TEXT NOT NULL, \
     confirmed INTEGER NOT NULL, confirmed_offset INTEGER NOT NULL, restart INTEGER NOT NULL, restart_offset INTEGER NOT NULL, \
     epoch INTEGER NOT NULL) WITHOUT ROWID",
];

/// Reads all rows.
pub const SELECT: &str =
    "SELECT name, plugin, trail, confirmed, confirmed_offset, restart, restart_offset, epoch FROM main.holdfast_slots";

/// Writes the positions and the epoch of the slot `?1`.
pub const UPDATE: &str = "UPDATE main.holdfast_slots SET confirmed = ?2, confirmed_offset = ?3, restart = ?4, restart_offset = ?5, \
     epoch = ?6 WHERE name = ?1";

/// Adds a slot, of [`Slot::row`].
pub const INSERT: &str = "INSERT INTO main.holdfast_slots VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";

/// Removes the slot `?1`.
pub const DELETE: &str = "DELETE FROM main.holdfast_slots WHERE name = ?1";

/// A slot as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    pub name: String,
    pub plugin: String,
    pub trail: String,
    pub confirmed: Position,
    pub restart: Position,
    pub epoch: Epoch,
}

impl Slot {
    /// The parameters of [`INSERT`].
    pub fn row(&self) -> Vec<Value> {
        let text = |text: &String| Value::Text(text.clone());
        let mut row = vec![text(&self.name), text(&self.plugin), text(&self.trail)];
        row.extend(self.positions().into_iter().skip(1));
        row
    }

    /// The parameters of [`UPDATE`].
    pub fn positions(&self) -> Vec<Value> {
        let Slot { name, confirmed, restart, .. } = self;
        let lsn = |position: &Position| Value::Int(position.boxcar.0 as i64);
        let offset = |position: &Position| Value::Int(position.offset.into());
        let epoch = Value::Int(self.epoch.0.into());
        vec![Value::Text(name.clone()), lsn(confirmed), offset(confirmed), lsn(restart), offset(restart), epoch]
    }

    /// Reads a row of [`SELECT`].
    pub fn of(row: &[Value]) -> Option<Slot> {
        let [Value::Text(name), Value::Text(plugin), Value::Text(trail), positions @ ..] = row else { return None };
        let [
            Value::Int(confirmed),
            Value::Int(offset),
            Value::Int(restart),
            Value::Int(restart_offset),
            Value::Int(epoch),
        ] = positions
        else {
            return None;
        };
        let position = |lsn: i64, offset: i64| {
            Some(Position { boxcar: Lsn(u64::try_from(lsn).ok()?), offset: u32::try_from(offset).ok()? })
        };
        let (confirmed, restart) = (position(*confirmed, *offset)?, position(*restart, *restart_offset)?);
        let epoch = Epoch(u32::try_from(*epoch).ok()?);
        Some(Slot { name: name.clone(), plugin: plugin.clone(), trail: trail.clone(), confirmed, restart, epoch })
    }
}

/// Whether PostgreSQL takes a text as a slot's name: lower-case letters, digits and underscores, at most 63.
pub fn is_name(name: &str) -> bool {
    (1..64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}
