//! The proof that an undo does what its plan says, and nothing else.
//!
//! After its last statement and before COMMIT the server is asked for every row that the transaction has changed, also by
//! foreign keys and triggers (`SHOW holdfast.transaction_changes`). From then on it is the exclusive writer, so that is what
//! the commit writes. Its net effects have to be the inverse of those of the transaction that is undone.
//!
//! | a row that differs | what is done |
//! |---|---|
//! | without `--run-triggers` | everything is rolled back, and the row is named |
//! | with it, in a table that foreign keys reach from a key that the inverse changes or deletes | the same: it may be their doing |
//! | with it, in any other table | it is the triggers' doing, which was allowed; it is reported |
//!
//! In the same way the schema is asked for its number, which has to be the one with which the trail was read: a table that was
//! altered since has other columns under the same numbers.
//!
//! Failure: an answer that cannot be read rolls everything back.

use super::Plan;
use super::net::{Effects, Net};
use super::nets::{Difference, Nets};
use crate::error::FlashbackError;
use crate::find::key_shown;
use crate::row::RowOp;
use crate::server::{Connect, Session};
use crate::table::Table;
use holdfast_types::quoting::quote;
use holdfast_types::record::{Op, Ops};
use holdfast_types::{TableId, VolumeId};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

/// The server ends an only writer that is idle for `only_writer_idle_timeout_ms`, 5 s by default: a large inverse takes longer to
/// look at, so the session says in between that it is at work.
const SIGN_EVERY: Duration = Duration::from_secs(1);
/// Rows between two looks at the clock.
const SIGN_ROWS: usize = 1024;

/// The tables with changes, as they are now.
pub struct Made<'a> {
    connect: &'a Connect,
    plan: &'a Plan,
    databases: BTreeMap<VolumeId, String>,
    tables: HashMap<(VolumeId, TableId), Table>,
}

impl<'a> Made<'a> {
    pub fn new(connect: &'a Connect, plan: &'a Plan) -> Made<'a> {
        let of_plan =
            |((volume, table), rows): (&(VolumeId, TableId), &super::Rows)| ((*volume, *table), rows.table.clone());
        let databases = plan.rows.iter().map(|((volume, _), rows)| (*volume, rows.database.clone()));
        let has_statements =
            |(_, name): &(VolumeId, String)| plan.statements.iter().any(|statement| statement.database == *name);
        let databases = databases.filter(has_statements).collect();
        Made { connect, plan, databases, tables: plan.rows.iter().map(of_plan).collect() }
    }

    /// Checks the open transaction of the session; the rows that triggers have changed as well.
    pub fn check(&mut self, session: &Session, run_triggers: bool) -> Result<Vec<String>, FlashbackError> {
        let planned = self.plan.nets.inverse();
        let done = self.done(session)?;
        session.run("a sign that the undo is at work", "SELECT 1")?;
        let differences = planned.differences(&done);
        if differences.is_empty() {
            return Ok(Vec::new());
        }
        let reached = if run_triggers { self.reached(&planned)? } else { HashSet::new() };
        let is_refused = |d: &Difference| !run_triggers || reached.contains(&(d.volume, d.table));
        let refused: Vec<String> = differences.iter().filter(|d| is_refused(d)).map(|d| self.shown(d)).collect();
        match refused.is_empty() {
            true => Ok(differences.iter().map(|d| self.shown(d)).collect()),
            false => Err(FlashbackError::Unplanned { id: self.plan.transaction, rows: refused }),
        }
    }

    /// What the transaction has changed.
    fn done(&mut self, session: &Session) -> Result<Nets, FlashbackError> {
        let unknown = || FlashbackError::Answer { what: "the changes of the transaction" };
        let mut nets = Nets::default();
        for (volume, name) in self.databases.clone() {
            session.run("USE", &format!("USE {}", quote(&name)))?;
            let changes = session.transaction_changes()?;
            self.plan.check_schema(session, volume, &name)?;
            let mut effects = Effects::default();
            let mut signed = Instant::now();
            for (index, op) in Ops::new(&changes).enumerate() {
                if index % SIGN_ROWS == 0 && signed.elapsed() >= SIGN_EVERY {
                    session.run("a sign that the undo is at work", "SELECT 1")?;
                    signed = Instant::now();
                }
                let op = op.map_err(|_| unknown())?;
                if let Some((number, row)) = RowOp::of(&op) {
                    let table = self.table(volume, number)?;
                    if !effects.add(number, &table.key, &row) {
                        return Err(unknown());
                    }
                } else if !matches!(op, Op::Sequence { .. }) {
                    return Err(unknown());
                }
            }
            nets.add(volume, effects);
        }
        Ok(nets)
    }

    /// A table, with its foreign keys. It is asked for in a session of its own: that of the undo is in its transaction.
    fn table(&mut self, volume: VolumeId, number: TableId) -> Result<&Table, FlashbackError> {
        if !self.tables.contains_key(&(volume, number)) {
            let name = self.databases.get(&volume).ok_or(FlashbackError::NoVolume(volume.0))?;
            let session = Session::open(self.connect, name)?;
            let table = Table::numbered(&session, session.dialect(), number)?;
            let table = table.ok_or(FlashbackError::Answer { what: "the list of tables" })?;
            self.tables.insert((volume, number), table.with_foreign_keys(&session)?);
        }
        self.tables.get(&(volume, number)).ok_or(FlashbackError::Answer { what: "the list of tables" })
    }

    /// The tables whose rows foreign keys may change when these net effects are made.
    fn reached(&mut self, planned: &Nets) -> Result<HashSet<(VolumeId, TableId)>, FlashbackError> {
        let mut reached = HashSet::new();
        let mut next: Vec<(VolumeId, TableId)> = Vec::new();
        for ((volume, number), rows) in &self.plan.rows {
            let acts = |referring: &&crate::table::Referring| {
                planned.of(*volume, *number).any(|net| match net {
                    Net::Inserted { .. } => false,
                    Net::Deleted { .. } => referring.on_delete,
                    Net::Updated { changes, .. } => {
                        let mut names = changes.iter().map(|(position, ..)| rows.table.column_name(*position));
                        let is_key = |name: &String| referring.columns.iter().any(|(_, here)| here == name);
                        (referring.on_update || referring.follows) && names.any(|name| is_key(&name))
                    }
                })
            };
            next.extend(rows.table.referring.iter().filter(acts).map(|referring| (*volume, referring.id)));
        }
        while let Some((volume, number)) = next.pop() {
            if reached.insert((volume, number)) {
                let table = self.table(volume, number)?;
                next.extend(table.referring.iter().map(|referring| (volume, referring.id)));
            }
        }
        Ok(reached)
    }

    fn shown(&self, difference: &Difference) -> String {
        let Difference { volume, table, key, done } = difference;
        let database = self.databases.get(volume).map_or("?", String::as_str);
        let done = done.unwrap_or("it would not be as before the transaction");
        match self.tables.get(&(*volume, *table)) {
            Some(table) => format!("{database}: {} {}: {done}", table.name, key_shown(table, key)),
            None => format!("{database}: table number {table}: {done}"),
        }
    }
}
