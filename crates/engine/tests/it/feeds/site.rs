//! A database that publishes, and the subscriber that reads it.

use super::model::{Model, Row, Rows};
use super::workload::{TABLES, TableOf};
use crate::support::client::{block_on, query};
use holdfast_changes::{Assembly, Beyond, Car, Fragments, Position, parts};
use holdfast_engine::{Collect, Database, Engine, Report, Step, WriteOptions};
use holdfast_seams::testing::Seeded;
use holdfast_sites::{Feed, FeedError, Types};
use holdfast_store::publications::steps;
use holdfast_store::schema_read::FIRST_OID;
use holdfast_store::shapes::Shapes;
use holdfast_types::publication::{Publication, PublicationOptions, Publications, PublishedTable};
use holdfast_types::schema;
use holdfast_types::{ColumnDesc, Lsn, SqlResult, TableId, Value, ValueRef};
use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

const PUBLICATIONS: [&str; 2] = ["p", "q"];

/// What a feed asks of the server.
struct Plain(Database);

impl Types for Plain {
    fn describe(&self, _: &schema::Table, column: &schema::Column) -> ColumnDesc {
        ColumnDesc::new(&column.name, 25)
    }

    fn text(&self, value: ValueRef<'_>, _: &ColumnDesc, out: &mut Vec<u8>) {
        out.extend(text(&value.to_value()).unwrap_or_default().bytes());
    }

    fn shapes(&self) -> SqlResult<(Shapes, u32)> {
        self.0.shapes()
    }

    fn own_table(&self) -> Option<TableId> {
        self.0.slots_table()
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Int(n) => Some(n.to_string()),
        Value::Text(text) => Some(text.to_string()),
        other => panic!("no statement makes {other:?}"),
    }
}

/// A table as it was copied at a place: the messages in front of it are of the table as it was before.
struct Copied {
    at: Lsn,
    table: &'static str,
    /// `None`: it is published no longer.
    rows: Option<Rows>,
}

/// For each publication the column list and condition with which it has a table.
type TakenOf = [Option<(usize, usize)>; 2];

/// Which publications have a table, and what they take of it.
fn another(of: &TableOf, random: &mut Seeded) -> TakenOf {
    let columns = random.below(of.columns.len() as u64) as usize;
    let mut filter = || random.below(of.filters.len() as u64) as usize;
    let some = [(columns, filter()), (columns, filter())];
    match random.below(8) {
        0 => [None; 2],
        1 | 2 => [Some(some[0]), Some(some[1])],
        3 => [None, Some(some[0])],
        _ => [Some(some[0]), None],
    }
}

/// See the module.
pub struct Site {
    pub db: Database,
    /// Of each table.
    taken: Vec<TakenOf>,
    copies: VecDeque<Copied>,
    pub model: Model,
    /// Everything before is in the model; reading begins again at the second.
    end: u64,
    restart: Position,
    pub transactions: u64,
    pub fragmented: u64,
    pub cuts: u64,
}

impl Site {
    /// A database of which nothing is published yet, and a slot.
    pub fn new(engine: &Engine, db: Database) -> Site {
        let (from, here) = engine.begin_feed(db.name()).expect("the trail is kept");
        let taken = TABLES.iter().map(|_| [None; 2]).collect();
        let (copies, model) = (VecDeque::new(), Model::default());
        let restart = Position { boxcar: from, offset: 0 };
        Site { db, taken, copies, model, end: here.0, restart, transactions: 0, fragmented: 0, cuts: 0 }
    }

    /// Publishes tables in another way, and copies them as they are then. False: a lock was in the way.
    pub fn publish(&mut self, engine: &Engine, tables: std::ops::Range<usize>, random: &mut Seeded) -> bool {
        let before = self.taken.clone();
        tables.clone().for_each(|table| self.taken[table] = another(&TABLES[table], random));
        let done = self.store();
        match done {
            true => tables.for_each(|table| self.copy(engine, table)),
            false => self.taken = before,
        }
        done
    }

    fn store(&self) -> bool {
        let schema = self.db.schema();
        let list = PUBLICATIONS.iter().enumerate().map(|(at, name)| {
            let mut tables: Vec<PublishedTable> = TABLES
                .iter()
                .zip(&self.taken)
                .filter_map(|(of, taken)| {
                    let (columns, filter) = taken[at]?;
                    let table = schema.tables.iter().find(|t| t.name == of.name).expect("it exists").oid;
                    let columns = of.columns[columns].map(|list| list.iter().map(|&c| c.to_owned()).collect());
                    Some(PublishedTable { table, columns, filter: of.filters[filter].map(str::to_owned) })
                })
                .collect();
            tables.sort_by_key(|of| of.table);
            let (number, name, options) = (at as u32 + 1, (*name).to_owned(), PublicationOptions::default());
            Publication { number, name, owner: 10, all_tables: false, options, tables }
        });
        let after = Publications { list: list.collect(), ..Publications::default() };
        let internal = |sql: &String| (sql.clone(), Report { ddl: true, internal: true, ..Report::default() });
        let all: Vec<_> = steps(&schema.publications, &after, |oid| oid - FIRST_OID).iter().map(internal).collect();
        self.change_schema(&all)
    }

    /// Runs schema changes as one transaction.
    pub fn change_schema(&self, all: &[(String, Report)]) -> bool {
        let options = WriteOptions { lock_timeout: Duration::from_millis(5), ..WriteOptions::default() };
        let Ok(mut txn) = self.db.begin_write_blocking(options) else { return false };
        for (sql, report) in all {
            let Ok(stmt) = block_on(txn.prepare(sql, report.clone())) else { return false };
            let ran = txn.execute_blocking(Step { stmt, params: Vec::new() }, Box::new(Collect::new()));
            if ran.and_then(|ran| ran.result).is_err() {
                return false;
            }
        }
        txn.commit_blocking(Box::new(Collect::new())).and_then(|done| done.result).is_ok()
    }

    /// The table is copied as it is now.
    pub fn copy(&mut self, engine: &Engine, table: usize) {
        let (at, rows) = (engine.trail().durable(), self.published(table));
        self.copies.push_back(Copied { at, table: TABLES[table].name, rows });
    }

    /// What is published of a table; `None`: it is in no publication.
    fn published(&self, table: usize) -> Option<Rows> {
        let of: &TableOf = &TABLES[table];
        let taken: Vec<(usize, usize)> = self.taken[table].iter().flatten().copied().collect();
        let &(columns, _) = taken.first()?;
        let schema = self.db.schema();
        let table = schema.tables.iter().find(|t| t.name == of.name).expect("it exists");
        let names: Vec<String> = match of.columns[columns] {
            Some(list) => list.iter().map(|&name| name.to_owned()).collect(),
            None => table.columns.iter().map(|column| column.name.clone()).collect(),
        };
        let conditions: Vec<&str> = taken.iter().map(|&(_, filter)| of.filters[filter].unwrap_or("true")).collect();
        let sql = format!("select {} from {} where {}", names.join(", "), of.name, conditions.join(" or "));
        let rows = query(&self.db, &sql).expect("it can be read");
        let named = rows.iter().map(|row| -> Row { names.iter().cloned().zip(row.iter().map(text)).collect() });
        // In the order of the table's columns, as messages have it.
        let keys = table.columns.iter().map(|c| c.name.as_str()).filter(|name| of.key.contains(name));
        let keys: Vec<&str> = keys.collect();
        Some(named.map(|row| (keys.iter().map(|&key| row[key].clone()).collect(), row)).collect())
    }

    /// Reads what the trail has, ending and beginning again at random, and compares.
    pub fn read(&mut self, engine: &Engine, scratch: &Path, random: &mut Seeded) {
        while !self.read_some(engine, scratch, random) {
            self.cuts += 1;
        }
        self.take_copies(Lsn(u64::MAX));
        engine.hold_feed(self.db.name(), self.restart.boxcar).expect("the trail is kept");
        for (table, of) in TABLES.iter().enumerate() {
            if let Some(published) = self.published(table) {
                let has = self.model.tables.remove(of.name).unwrap_or_default();
                assert_eq!(has, published, "database {}, table {}", self.db.name(), of.name);
                self.model.tables.insert(of.name.to_owned(), has);
            }
        }
    }

    fn take_copies(&mut self, up_to: Lsn) {
        while let Some(copied) = self.copies.pop_front_if(|copied| copied.at <= up_to) {
            match copied.rows {
                Some(rows) => _ = self.model.tables.insert(copied.table.to_owned(), rows),
                None => _ = self.model.tables.remove(copied.table),
            }
        }
    }

    /// One connection. True when it has read everything; else it has ended on the way, also in the middle of a transaction.
    fn read_some(&mut self, engine: &Engine, scratch: &Path, random: &mut Seeded) -> bool {
        let memory_bytes_max = [0, 5000, 1 << 20][random.below(3) as usize];
        let fragments = Fragments::new(Beyond { memory_bytes_max, scratch_dir: scratch.to_owned() });
        let mut assembly = Assembly::new(fragments, self.restart);
        let publications = PUBLICATIONS.iter().map(|&name| name.to_owned()).collect();
        let mut feed = Feed::new(Plain(self.db.clone()), publications, self.end);
        let mut messages = if random.one_in(3) { random.below(40) } else { u64::MAX };
        self.model.disconnected();
        let (shown, volume) = (engine.shown(), self.db.volume());
        for boxcar in engine.trail().read(self.restart.boxcar).expect("the trail is kept") {
            let boxcar = boxcar.expect("it can be read");
            if boxcar.end > shown {
                break;
            }
            assembly.begin_epoch(boxcar.epoch);
            let car = Car { lsn: boxcar.lsn, epoch: boxcar.epoch, body: &boxcar.body };
            for part in parts(car, |of| of == volume) {
                let Some(committed) = assembly.add(part.expect("a part")).expect("fragments") else { continue };
                self.take_copies(committed.start.boxcar);
                let is_new = committed.end.lsn().0 > feed.end();
                self.fragmented += u64::from(is_new && committed.pieces().count() > 2);
                let mut took = false;
                let sent = feed.transaction(&committed, &mut |message| {
                    messages = messages.checked_sub(1).ok_or(FeedError::Stopped)?;
                    took = self.model.take(message.body);
                    Ok(())
                });
                match sent {
                    Ok(begun) => assert_eq!(begun, took, "it ends with a commit"),
                    Err(FeedError::Stopped) => return false,
                    Err(error) => panic!("the feed of {} ends: {error}", self.db.name()),
                }
                self.transactions += u64::from(took);
                (self.end, self.restart) = (feed.end(), assembly.restart());
            }
        }
        true
    }
}
