//! `holdfast trail undo`: the inverse of a committed transaction.
//!
//! The operations of a transaction are put together to one net effect for each row ([`net`]), so that a row needs one
//! statement: a row that was inserted is deleted, one that was deleted is inserted with all its columns, one that was changed
//! gets back the values of the changed columns. Each statement names the key and the values that the transaction left,
//! and must change one row ([`statements`]). All run in one transaction ([`apply`](mod@apply)), which commits only if it has
//! changed exactly these rows ([`made`]).
//!
//! | in the trail | what is done |
//! |---|---|
//! | rows that foreign keys or triggers changed | they have images of their own and are undone like others |
//! | a statement that another one has made unnecessary, as by ON UPDATE CASCADE | its row is as before: nothing is done |
//! | a later transaction changed one of the rows, and it is not as it was left | refused, with the row and the later transaction ([`later`]) |
//! | a foreign key or a trigger would change any other row, at whatever distance | refused, with the row |
//! | a table of the inverse has triggers | refused, unless it is allowed that they run |
//! | a schema change, or a table that was altered or dropped since | refused |
//! | counters of AUTOINCREMENT and serial columns | left, as in PostgreSQL |

pub mod apply;
mod later;
mod made;
mod net;
mod nets;
mod statements;

use crate::by::By;
use crate::conflict::Conflict;
use crate::error::FlashbackError;
use crate::events::{Behind, Commit as Committed, Event, Wanted, What, collect_whole, find_commit, ids_of};
use crate::row::Keys;
use crate::server::{Connect, Session};
use crate::source::{Range, Read, Source};
use crate::table::Table;
pub use apply::{Applied, apply};
use holdfast_types::record::{Op, TxnHead};
use holdfast_types::{Hlc, Lsn, TableId, TxnId, VolumeId};
use later::{Epochs, Rows, RowsOf, later};
use net::Effects;
use nets::Nets;
use serde::Serialize;
use statements::Statement;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Which transaction is undone.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    pub id: u64,
    /// Where it is, as `trail find` shows it: the trail in front of it need not be read.
    pub lsn: Option<u64>,
}

/// The inverse of a transaction.
#[derive(Serialize)]
pub struct Plan {
    pub transaction: u64,
    pub lsn: u64,
    pub unix_ms: u64,
    #[serde(flatten)]
    pub by: By,
    pub statements: Vec<Statement>,
    pub conflicts: Vec<Conflict>,
    /// Tables of the inverse with triggers, which would run.
    pub triggers: Vec<String>,
    pub read: Read,
    #[serde(skip)]
    than: Behind,
    /// The numbers of the schemas where the reading of the trail ended.
    #[serde(skip)]
    epochs: Epochs,
    #[serde(skip)]
    rows: RowsOf,
    /// What the transaction did.
    #[serde(skip)]
    nets: Nets,
}

impl Plan {
    /// Refuses where a schema change was made that was not seen in the trail. The session is in that database.
    fn check_schema(&self, session: &Session, volume: VolumeId, database: &str) -> Result<(), FlashbackError> {
        let epoch = session.rows("the number of the schema", "SHOW holdfast.schema_epoch")?;
        let epoch = epoch.first().and_then(|row| row.first()?.as_deref()?.parse::<u32>().ok());
        let epoch = epoch.ok_or(FlashbackError::Answer { what: "the number of the schema" })?;
        if self.epochs.get(&volume) == Some(&epoch) {
            return Ok(());
        }
        let why = match self.read.has_newest {
            true => format!("the schema of database {database} was changed meanwhile. Run the command again"),
            false => format!(
                "the schema of database {database} was changed by a transaction that is not archived yet. Run the \
                 command again when it is, or with --data; `SELECT pg_switch_wal()` makes the server archive it"
            ),
        };
        Err(FlashbackError::Refused { id: self.transaction, why })
    }

    /// The statements as one script.
    pub fn script(&self) -> String {
        let time = holdfast_dump::show_moment(self.unix_ms);
        let by = if self.by.session_user.is_some() { format!(" {}", self.by) } else { String::new() };
        let mut text = format!(
            "-- The inverse of transaction {}{by}, committed at {time}, LSN {}.\n\
             -- Each statement must change one row, and no other row may change with it; `--apply` checks that.\nBEGIN;\n",
            self.transaction, self.lsn
        );
        let mut database = None;
        for statement in &self.statements {
            if database != Some(&statement.database) {
                text.push_str(&format!("USE {};\n", holdfast_types::quoting::quote(&statement.database)));
                database = Some(&statement.database);
            }
            text.push_str(&format!("{};\n", statement.sql));
        }
        text + "COMMIT;\n"
    }
}

/// One commit, in all databases.
struct Commit {
    hlc: Hlc,
    ids: HashSet<TxnId>,
}

impl Wanted for Commit {
    fn volume(&self, _: VolumeId) -> bool {
        true
    }

    fn transaction(&self, _: Lsn, head: &TxnHead) -> bool {
        head.hlc == self.hlc
    }

    fn fragment(&self, txn: TxnId) -> bool {
        self.ids.contains(&txn)
    }

    fn row(&self, _: VolumeId, _: TableId, _: &Op<'_>) -> bool {
        true
    }

    fn schema(&self, _: VolumeId, _: &str) -> bool {
        true
    }
}

/// Makes the inverse of a transaction, and looks for what changed its rows since.
pub fn plan(source: &Source, connect: &Connect, database: &str, target: Target) -> Result<Plan, FlashbackError> {
    let id = target.id;
    let (mut found, mut read) = find_commit(source, target.lsn.map(Lsn), id)?;
    if found.is_none() && target.lsn.is_some() {
        (found, read) = find_commit(source, None, id)?;
    }
    let Committed { lsn, head, author } = found.ok_or(FlashbackError::NoTransaction { id, first: read.first_lsn })?;
    let commit = Commit { hlc: head.hlc, ids: ids_of(source, lsn, head.hlc)? };
    let (events, _) = collect_whole(source, Range { last: Some(lsn), ..Range::from(lsn) }, &commit)?;
    if let Some(sql) = events.iter().find_map(|event| match &event.what {
        What::Schema { sql } => Some(sql),
        What::Row { .. } => None,
    }) {
        let why = format!(
            "it changes the schema: {sql}. Restore the part that it changed: `holdfast restore --before-transaction {id}`"
        );
        return Err(FlashbackError::Refused { id, why });
    }
    let sessions = Sessions { connect, first: Session::open(connect, database)? };
    let mut tables = sessions.tables(id, &events)?;
    let (statements, nets) = inverse(id, &events, &mut tables)?;
    let than = Behind::commit(source, lsn, head.hlc)?;
    let (conflicts, read, epochs) = later(source, &than, &tables)?;
    let changed = |rows: &&Rows| statements.iter().any(|s| s.database == rows.database && s.table == rows.table.name);
    let mut triggers: Vec<String> = tables
        .values()
        .filter(changed)
        .filter(|rows| rows.table.has_triggers)
        .map(|rows| format!("{}: {}", rows.database, rows.table.name))
        .collect();
    triggers.sort();
    let unix_ms = head.hlc.unix_ms();
    let plan = Plan {
        transaction: id,
        lsn: lsn.0,
        unix_ms,
        by: By::of(author.as_deref()),
        statements,
        conflicts,
        triggers,
        read,
        than,
        epochs,
        rows: tables,
        nets,
    };
    let databases: BTreeMap<VolumeId, &String> =
        plan.rows.iter().map(|((volume, _), rows)| (*volume, &rows.database)).collect();
    for (volume, name) in databases {
        plan.check_schema(&Session::open(connect, name)?, volume, name)?;
    }
    Ok(plan)
}

/// Sessions with the server, one after the other.
struct Sessions<'a> {
    connect: &'a Connect,
    first: Session,
}

impl Sessions<'_> {
    /// The tables of a transaction, as they are now.
    fn tables(&self, id: u64, events: &[Event]) -> Result<RowsOf, FlashbackError> {
        let databases = self.first.databases()?;
        let mut of: HashMap<VolumeId, Vec<TableId>> = HashMap::new();
        for event in events {
            let What::Row { table, .. } = &event.what else { continue };
            let tables = of.entry(event.volume).or_default();
            if !tables.contains(table) {
                tables.push(*table);
            }
        }
        let mut rows = RowsOf::new();
        for (volume, tables) in of {
            let name =
                databases.iter().find(|database| database.volume == volume).map(|database| database.name.clone());
            let name = name.ok_or(FlashbackError::NoVolume(volume.0))?;
            let session = Session::open(self.connect, &name)?;
            let dialect = session.dialect();
            for number in tables {
                let table = Table::numbered(&session, dialect, number)?.ok_or_else(|| {
                    let why = format!(
                        "its table number {number} of database {name} does not exist now, or is the server's own, as that of prepared \
                         transactions. Restore the table: `holdfast restore --before-transaction {id}`"
                    );
                    FlashbackError::Refused { id, why }
                })?;
                let table = table.with_foreign_keys(&session)?;
                rows.insert((volume, number), Rows { database: name.clone(), table, keys: Keys::default() });
            }
        }
        Ok(rows)
    }
}

/// The statements, what the transaction did, and in `tables` the keys of the rows.
fn inverse(id: u64, events: &[Event], tables: &mut RowsOf) -> Result<(Vec<Statement>, Nets), FlashbackError> {
    let mut of: Vec<(VolumeId, Effects)> = Vec::new();
    for event in events {
        let What::Row { table, op, exact } = &event.what else { continue };
        let Some(rows) = tables.get_mut(&(event.volume, *table)) else { continue };
        if !exact {
            let why = format!("a text in table {} is not UTF-8, so no statement can contain it", rows.table.name);
            return Err(FlashbackError::Refused { id, why });
        }
        let place = of.iter().position(|(volume, _)| *volume == event.volume).unwrap_or_else(|| {
            of.push((event.volume, Effects::default()));
            of.len() - 1
        });
        if !of[place].1.add(*table, &rows.table.key, op) {
            let why = format!("the key of table {} is another one now", rows.table.name);
            return Err(FlashbackError::Refused { id, why });
        }
        for key in [op.old_key(&rows.table.key), op.new_key(&rows.table.key)].into_iter().flatten() {
            rows.keys.insert(&key);
        }
    }
    let (mut all, mut nets) = (Vec::new(), Nets::default());
    for (volume, effects) in of {
        let mut statements = Vec::new();
        for (table, net) in effects.backwards() {
            let Some(rows) = tables.get(&(volume, table)) else { continue };
            let statement = statements::of(&rows.database, &rows.table, &net);
            statements.push((table, statement.map_err(|why| FlashbackError::Refused { id, why })?));
            nets.put(volume, table, net);
        }
        let parents =
            |table: TableId| tables.get(&(volume, table)).map(|rows| rows.table.parents.clone()).unwrap_or_default();
        all.extend(statements::parents_first(statements, &parents));
    }
    Ok((all, nets))
}
