//! The net effects of a transaction in all databases, so that two transactions can be compared: an undo is right if its
//! net effects are the inverse of those of the transaction that it undoes, all of them and no others.
//!
//! A row that is deleted and another one that is inserted under the same key count as one row with other values: which of the
//! two it is depends on the order of the statements.

use super::net::{Effects, Net, same};
use crate::row::Key;
use holdfast_types::record::put_cell;
use holdfast_types::{TableId, Value, VolumeId};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A row: its table, whether there was none before, and its key before; the key after where there was none.
type Place = (VolumeId, TableId, bool, Vec<u8>);

/// Net effects by row.
#[derive(Clone, Debug, Default)]
pub struct Nets(BTreeMap<Place, Net>);

/// A row in which two transactions differ.
pub struct Difference {
    pub volume: VolumeId,
    pub table: TableId,
    pub key: Key,
    /// What is done to it, and was not to be done; `None`: something was to be done and is not.
    pub done: Option<&'static str>,
}

impl Nets {
    pub fn add(&mut self, volume: VolumeId, effects: Effects) {
        effects.backwards().into_iter().for_each(|(table, net)| self.put(volume, table, net));
    }

    pub fn put(&mut self, volume: VolumeId, table: TableId, net: Net) {
        let is_new = matches!(net, Net::Inserted { .. });
        let bytes = net.keys()[0].bytes();
        let net = match (self.0.remove(&(volume, table, !is_new, bytes.clone())), net) {
            (Some(Net::Deleted { values, .. }), Net::Inserted { key, values: new }) => replaced(key, values, new),
            (Some(Net::Inserted { values: new, .. }), Net::Deleted { key, values }) => replaced(key, values, new),
            (Some(other), net) => {
                // A row that was inserted where another one was that has got another key.
                self.0.insert((volume, table, !is_new, bytes.clone()), other);
                Some(net)
            }
            (None, net) => Some(net),
        };
        let Some(net) = net else { return };
        let is_new = matches!(net, Net::Inserted { .. });
        if let Entry::Vacant(place) = self.0.entry((volume, table, is_new, bytes)) {
            place.insert(net);
        }
    }

    /// The net effects that take these back.
    pub fn inverse(&self) -> Nets {
        let mut inverse = Nets::default();
        for ((volume, table, ..), net) in &self.0 {
            let net = match net.clone() {
                Net::Inserted { key, values } => Net::Deleted { key, values },
                Net::Deleted { key, values } => Net::Inserted { key, values },
                Net::Updated { before, after, changes } => Net::Updated {
                    before: after,
                    after: before,
                    changes: changes.into_iter().map(|(position, was, is)| (position, is, was)).collect(),
                },
            };
            inverse.put(*volume, *table, net);
        }
        inverse
    }

    /// The rows in which what is done differs from these.
    pub fn differences(&self, done: &Nets) -> Vec<Difference> {
        let difference = |place: &Place, net: &Net, done| Difference {
            volume: place.0,
            table: place.1,
            key: net.keys()[0].clone(),
            done,
        };
        let others = done.0.iter().filter(|(place, net)| self.0.get(*place).is_none_or(|own| bytes(own) != bytes(net)));
        let others = others.map(|(place, net)| difference(place, net, Some(word(net))));
        let missing = self.0.iter().filter(|(place, _)| !done.0.contains_key(*place));
        others.chain(missing.map(|(place, net)| difference(place, net, None))).collect()
    }

    /// Whether these are exactly what is done.
    pub fn are(&self, done: &Nets) -> bool {
        self.differences(done).is_empty()
    }

    /// Whether something is done to each of these rows.
    pub fn are_among(&self, done: &Nets) -> bool {
        self.0.keys().all(|place| done.0.contains_key(place))
    }

    /// What is done to the rows of a table.
    pub fn of(&self, volume: VolumeId, table: TableId) -> impl Iterator<Item = &Net> {
        self.0.iter().filter(move |((v, t, ..), _)| (*v, *t) == (volume, table)).map(|(_, net)| net)
    }
}

fn word(net: &Net) -> &'static str {
    match net {
        Net::Inserted { .. } => "insert",
        Net::Deleted { .. } => "delete",
        Net::Updated { .. } => "update",
    }
}

/// A row in place of another one with the same key.
fn replaced(key: Key, values: Vec<Value>, new: Vec<Value>) -> Option<Net> {
    let pairs = values.into_iter().zip(new).enumerate();
    let changes: Vec<_> =
        pairs.filter(|(_, (was, is))| !same(was, is)).map(|(position, (was, is))| (position, was, is)).collect();
    (!changes.is_empty()).then(|| Net::Updated { before: key.clone(), after: key, changes })
}

/// Bytes that are equal for equal net effects, to the sign of zero.
fn bytes(net: &Net) -> Vec<u8> {
    let mut bytes = word(net).as_bytes().to_vec();
    net.keys().into_iter().for_each(|key| bytes.extend(key.bytes()));
    match net {
        Net::Inserted { values, .. } | Net::Deleted { values, .. } => {
            values.iter().for_each(|value| put_cell(&mut bytes, value.as_ref()));
        }
        Net::Updated { changes, .. } => {
            for (position, was, is) in changes {
                bytes.extend(position.to_le_bytes());
                put_cell(&mut bytes, was.as_ref());
                put_cell(&mut bytes, is.as_ref());
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: VolumeId = VolumeId(1);
    const TABLE: TableId = TableId(1);

    fn inserted(rowid: i64, value: i64) -> Net {
        Net::Inserted { key: Key::Rowid(rowid), values: vec![Value::Int(value)] }
    }

    fn deleted(rowid: i64, value: i64) -> Net {
        Net::Deleted { key: Key::Rowid(rowid), values: vec![Value::Int(value)] }
    }

    fn updated(from: i64, to: i64, was: i64, is: i64) -> Net {
        let changes = vec![(0, Value::Int(was), Value::Int(is))];
        Net::Updated { before: Key::Rowid(from), after: Key::Rowid(to), changes }
    }

    fn nets(all: &[Net]) -> Nets {
        let mut nets = Nets::default();
        all.iter().for_each(|net| nets.put(VOLUME, TABLE, net.clone()));
        nets
    }

    #[test]
    fn the_inverse_of_the_inverse_is_the_same() {
        let all = nets(&[inserted(1, 1), deleted(2, 2), updated(3, 4, 5, 6), updated(7, 7, 1, 2), inserted(3, 9)]);
        assert!(all.inverse().are(&nets(&[
            deleted(1, 1),
            inserted(2, 2),
            updated(4, 3, 6, 5),
            updated(7, 7, 2, 1),
            deleted(3, 9)
        ])));
        assert!(all.inverse().inverse().are(&all));
        assert!(!all.inverse().are(&all));
    }

    #[test]
    fn a_row_that_takes_the_place_of_another_is_an_update() {
        assert!(nets(&[deleted(1, 1), inserted(1, 2)]).are(&nets(&[updated(1, 1, 1, 2)])));
        assert!(nets(&[inserted(1, 2), deleted(1, 1)]).are(&nets(&[updated(1, 1, 1, 2)])));
        assert!(nets(&[inserted(1, 1), deleted(1, 1)]).are(&nets(&[])));
    }

    #[test]
    fn every_difference_is_found() {
        let all = nets(&[inserted(1, 1), updated(7, 7, 1, 2)]);
        let differs = |done: &[Net]| {
            let differences = all.differences(&nets(done));
            differences.iter().map(|d| (d.key.clone(), d.done)).collect::<Vec<_>>()
        };
        let key = Key::Rowid;
        assert_eq!(differs(&[inserted(1, 1), updated(7, 7, 1, 2)]), []);
        assert_eq!(differs(&[inserted(1, 1)]), [(key(7), None)]);
        assert_eq!(differs(&[inserted(1, 1), updated(7, 7, 1, 3)]), [(key(7), Some("update"))]);
        assert_eq!(differs(&[inserted(1, 1), updated(7, 8, 1, 2)]), [(key(7), Some("update"))]);
        assert_eq!(differs(&[inserted(1, 1), updated(7, 7, 1, 2), deleted(9, 0)]), [(key(9), Some("delete"))]);
    }
}
