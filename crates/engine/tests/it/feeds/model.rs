//! What a subscriber has. It is stricter than PostgreSQL: a row that it lacks or has already is an error, and so is a message
//! outside a transaction.

use holdfast_sites::pgoutput::Cell;
use holdfast_sites::received::{Received, RemoteRelation, message};
use std::collections::{BTreeMap, HashMap};

/// A row by its columns' names; `None` is NULL.
pub type Row = BTreeMap<String, Option<String>>;

/// The rows of a table by their key's values.
pub type Rows = BTreeMap<Vec<Option<String>>, Row>;

/// How often each kind of message came.
#[derive(Clone, Copy, Default, Debug)]
pub struct Kinds {
    pub inserts: u64,
    pub updates: u64,
    pub moves: u64,
    pub deletes: u64,
    pub unchanged: u64,
}

#[derive(Default)]
pub struct Model {
    pub tables: HashMap<String, Rows>,
    /// What the transaction that is being sent makes of them.
    draft: Option<HashMap<String, Rows>>,
    relations: HashMap<u32, RemoteRelation>,
    pub kinds: Kinds,
}

impl Model {
    /// The connection ends: what was not committed is gone, and tables are described again.
    pub fn disconnected(&mut self) {
        self.draft = None;
        self.relations.clear();
    }

    /// Takes a message. True: it was a commit.
    pub fn take(&mut self, bytes: &[u8]) -> bool {
        let received = message(bytes).expect("a known message");
        match received {
            Received::Begin { .. } => {
                assert!(self.draft.is_none(), "a beginning within a transaction");
                self.draft = Some(self.tables.clone());
            }
            Received::Commit(_) => {
                self.tables = self.draft.take().expect("a commit without a beginning");
                return true;
            }
            Received::Relation(relation) => _ = self.relations.insert(relation.oid, relation),
            Received::Insert { table, new } => {
                assert!(!new.contains(&Cell::Unchanged), "an insert has every column");
                self.kinds.inserts += 1;
                let (relation, rows) = self.of(table);
                let row = with_names(relation, &new);
                let before = rows.insert(key(relation, &row), row.clone());
                assert_eq!(before, None, "insert into {} of {row:?}: it is there", relation.name);
            }
            Received::Update { table, old, new } => {
                self.kinds.updates += 1;
                self.kinds.moves += u64::from(old.is_some());
                self.kinds.unchanged += u64::from(new.contains(&Cell::Unchanged));
                let (relation, rows) = self.of(table);
                let changed = with_names(relation, &new);
                let at = key(relation, &old.map_or_else(|| changed.clone(), |old| with_names(relation, &old)));
                let Some(mut row) = rows.remove(&at) else { panic!("update of {} {at:?}: not there", relation.name) };
                row.extend(changed);
                let before = rows.insert(key(relation, &row), row);
                assert_eq!(before, None, "update of {} {at:?}: its new key is there", relation.name);
            }
            Received::Delete { table, old } => {
                self.kinds.deletes += 1;
                let (relation, rows) = self.of(table);
                let at = key(relation, &with_names(relation, &old));
                assert!(rows.remove(&at).is_some(), "delete from {} of {at:?}: not there", relation.name);
            }
            other => panic!("unexpected {other:?}"),
        }
        false
    }

    fn of(&mut self, table: u32) -> (&RemoteRelation, &mut Rows) {
        let relation = self.relations.get(&table).expect("a table that was not described");
        let draft = self.draft.as_mut().expect("a change outside a transaction");
        (relation, draft.entry(relation.name.clone()).or_default())
    }
}

/// The columns that have a value; those that are unchanged are left out.
fn with_names(relation: &RemoteRelation, cells: &[Cell]) -> Row {
    assert_eq!(relation.columns.len(), cells.len());
    let text = |text: &Vec<u8>| String::from_utf8(text.clone()).expect("UTF-8");
    let each = relation.columns.iter().zip(cells).filter_map(|(column, cell)| match cell {
        Cell::Unchanged => None,
        Cell::Null => Some((column.name.clone(), None)),
        Cell::Text(bytes) => Some((column.name.clone(), Some(text(bytes)))),
    });
    each.collect()
}

fn key(relation: &RemoteRelation, row: &Row) -> Vec<Option<String>> {
    let of_key = relation.columns.iter().filter(|column| column.is_key);
    of_key.map(|column| row.get(&column.name).cloned().expect("a key has no unchanged column")).collect()
}
