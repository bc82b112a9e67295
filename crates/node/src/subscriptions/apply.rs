//! Makes the publisher's transactions transactions of this database: the changed rows and the subscription's position together.
//!
//! Several small ones become one, in their order: a reader here sees each of them whole or not at all. Where such a group fails its
//! transactions run one by one, so that those before the one that fails are kept. A large one runs on a branch while it arrives.
//!
//! | change | where the row is | then |
//! |---|---|---|
//! | insert | not here | inserted |
//! | insert | here | 23505: the subscription stops |
//! | update, delete | here | changed, removed |
//! | update, delete | not here | counted in `rows_missing`, as PostgreSQL does |
//! | any, of a table that the subscription does not write | | left out |
//! | any, in front of the place at which the table was copied | | left out: the copy has it |
//!
//! Failure: an error names the change, the table, the row's key and the transaction; nothing of the transaction stays.

use super::positions::Positions;
use super::progress::Progress;
use super::target::Target;
use crate::clock::now_us;
use holdfast_engine::{Collect, Database, Step, Submission, Ticket, WriteOptions, WriteTxn};
use holdfast_sites::pgoutput::Cell;
use holdfast_sites::received::RemoteRelation;
use holdfast_types::lsn::lsn_text;
use holdfast_types::record::Author;
use holdfast_types::schema::Schema;
use holdfast_types::subscription::Subscription;
use holdfast_types::{Level, SqlError, SqlResult, SqlState};
use std::collections::HashMap;
use std::sync::Arc;

/// How often a transaction runs again that met a schema change or another conflict that passes.
const TRIES_MAX: usize = 10;

/// A change of one row, or of whole tables.
#[derive(Clone, Debug)]
pub struct Change {
    pub relation: Arc<RemoteRelation>,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    Insert(Vec<Cell>),
    /// The key before, where it changes, and the row.
    Update(Option<Vec<Cell>>, Vec<Cell>),
    Delete(Vec<Cell>),
    Truncate,
}

impl Change {
    /// It changes a row that must be here.
    fn needs_row(&self) -> bool {
        matches!(self.what, What::Update(..) | What::Delete(_))
    }
}

/// A transaction of the publisher.
#[derive(Clone, Debug, Default)]
pub struct Foreign {
    /// The LSN by which errors and SKIP name it, and the place behind it.
    pub start: u64,
    pub end: u64,
    pub unix_us: i64,
    pub changes: Vec<Change>,
}

impl Foreign {
    /// The same transaction without its changes.
    pub fn head(&self) -> Foreign {
        Foreign { changes: Vec::new(), ..*self }
    }
}

/// See the module.
pub struct Applier {
    pub db: Database,
    pub positions: Positions,
    pub level: Level,
    /// Whom the trail names for what is applied.
    author: Arc<Author>,
    /// The OIDs of the tables that the subscription writes.
    pub subscribed: Vec<u32>,
    /// The transaction that is left out; 0: none.
    pub skip: u64,
    targets: Targets,
}

/// The tables that the publisher has described, by its OID.
#[derive(Default)]
struct Targets(HashMap<u32, Described>);

struct Described {
    relation: Arc<RemoteRelation>,
    /// The epoch of the schema for which `target` holds.
    epoch: u32,
    /// `None`: the subscription does not write it.
    target: Option<Target>,
}

impl Targets {
    fn of(
        &mut self,
        db: &Database,
        schema: &Schema,
        relation: &Arc<RemoteRelation>,
        subscribed: &[u32],
    ) -> SqlResult<Option<&mut Target>> {
        let is_current = self.0.get(&relation.oid).is_some_and(|known| {
            (Arc::ptr_eq(&known.relation, relation) || known.relation == *relation) && known.epoch == schema.epoch
        });
        if !is_current {
            let target = Target::of(db, schema, relation, subscribed)?;
            self.0.insert(relation.oid, Described { relation: relation.clone(), epoch: schema.epoch, target });
        }
        Ok(self.0.get_mut(&relation.oid).and_then(|known| known.target.as_mut()))
    }
}

/// What one step of a group does: its transaction's place in the group, and its change.
#[derive(Clone, Copy)]
struct StepOf {
    transaction: usize,
    change: usize,
}

/// A group that has been handed to the writer.
pub struct Submitted {
    pub group: Vec<Foreign>,
    steps: Vec<StepOf>,
    rows: Collect,
    ticket: Ticket,
    tries: usize,
}

/// How a group ended.
pub enum Applied {
    /// Everything below this LSN is applied.
    Done(u64),
    /// It has to run again, in smaller groups.
    Again(Vec<Foreign>),
}

impl Applier {
    pub fn new(db: &Database, positions: Positions, level: Level, of: &Subscription) -> Applier {
        let name = format!("subscription {}", of.name);
        let (author, subscribed) = (Arc::new(Author::new(&name, &name)), of.tables.clone());
        Applier { db: db.clone(), positions, level, author, subscribed, skip: of.skip, targets: Targets::default() }
    }

    /// Hands a group to the writer.
    pub fn submit(&mut self, group: Vec<Foreign>) -> SqlResult<Submitted> {
        self.submit_again(group, 1)
    }

    fn submit_again(&mut self, group: Vec<Foreign>, tries: usize) -> SqlResult<Submitted> {
        let schema = self.db.schema();
        // First: where the position is another, that is the error, and not what the changes meet.
        let mut steps = vec![self.positions.moved(group.last().map_or(0, |last| last.end))];
        let mut of = Vec::new();
        let skip = self.skip;
        for (transaction, foreign) in group.iter().enumerate().filter(|(_, f)| f.start != skip || skip == 0) {
            for (change, one) in foreign.changes.iter().enumerate() {
                let step = self.step(&schema, foreign.start, one).map_err(|e| named(e, foreign, one, None))?;
                if let Some(step) = step {
                    steps.push(step);
                    of.push(StepOf { transaction, change });
                }
            }
        }
        let rows = Collect::new();
        let submission = Submission::new(steps, Box::new(rows.clone()));
        let ticket = self.db.submit(Submission {
            level: self.level,
            any_order: true,
            author: Some(self.author.clone()),
            ..submission
        })?;
        Ok(Submitted { group, steps: of, rows, ticket, tries })
    }

    /// The step that makes a change; `None`: it is left out.
    fn step(&mut self, schema: &Schema, at: u64, change: &Change) -> SqlResult<Option<Step>> {
        let (db, positions) = (&self.db, &self.positions);
        let Some(target) = self.targets.of(db, schema, &change.relation, &self.subscribed)? else { return Ok(None) };
        if positions.copied.get(&target.oid).is_none_or(|copied| at < *copied) {
            return Ok(None);
        }
        if !matches!(change.what, What::Insert(_) | What::Truncate)
            && let Some(table) = schema.by_oid(target.oid)
        {
            target.check_key(table, &change.relation)?;
        }
        match &change.what {
            What::Insert(row) => target.insert(db, schema, row).map(Some),
            What::Update(old, new) => target.update(db, schema, old.as_deref(), new),
            What::Delete(old) => target.delete(db, schema, old).map(Some),
            What::Truncate => target.truncate(db, schema).map(Some),
        }
    }

    /// Waits until a group is committed, at the level of this server; a commit that was not answered is not noted as applied.
    pub async fn finish(&mut self, submitted: &mut Submitted, progress: &Progress) -> SqlResult<Applied> {
        let done = (&mut submitted.ticket).await.ok_or_else(SqlError::shutting_down)?;
        let group = std::mem::take(&mut submitted.group);
        match done.result {
            Ok(()) => {
                self.count(&group, submitted, progress);
                Ok(Applied::Done(group.last().map_or(0, |last| last.end)))
            }
            Err(error) if passes(&error) && submitted.tries < TRIES_MAX => {
                self.targets.0.clear();
                *submitted = self.submit_again(group, submitted.tries + 1)?;
                Box::pin(self.finish(submitted, progress)).await
            }
            Err(error) if done.failed_step == 0 => Err(moved_by_another(error)),
            Err(_) if group.len() > 1 => Ok(Applied::Again(group)),
            // The first step is the position's.
            Err(error) => Err(match (submitted.steps.get(done.failed_step - 1), group.first()) {
                (Some(step), Some(foreign)) => {
                    let change = &foreign.changes[step.change];
                    let key = self.key_of(change);
                    named(error, foreign, change, key)
                }
                _ => error,
            }),
        }
    }

    fn key_of(&self, change: &Change) -> Option<String> {
        let target = &self.targets.0.get(&change.relation.oid)?.target;
        let row = match &change.what {
            What::Insert(row) | What::Delete(row) => row,
            What::Update(old, new) => old.as_ref().unwrap_or(new),
            What::Truncate => return None,
        };
        Some(target.as_ref()?.key_text(row))
    }

    fn count(&mut self, group: &[Foreign], submitted: &Submitted, progress: &Progress) {
        let outcomes = submitted.rows.outcomes();
        let mut missing = 0;
        for (step, outcome) in submitted.steps.iter().zip(outcomes.iter().skip(1)) {
            let change = &group[step.transaction].changes[step.change];
            missing += u64::from(outcome.count == 0 && change.needs_row());
        }
        let changes = submitted.steps.len() as u64;
        self.note(group.len() as u64, changes, missing, group.last(), progress);
    }

    fn note(&mut self, transactions: u64, changes: u64, missing: u64, last: Option<&Foreign>, progress: &Progress) {
        let Some(last) = last else { return };
        self.positions.applied = last.end;
        if missing > 0 {
            tracing::debug!(missing, "rows that the publisher changed are not here");
        }
        progress.change(|figures| {
            figures.applied = last.end;
            figures.committed_us = last.unix_us;
            // The publisher may name any time.
            figures.lag_us = now_us().saturating_sub(last.unix_us).max(0);
            figures.transactions += transactions;
            figures.changes += changes;
            figures.rows_missing += missing;
        });
    }

    /// Begins a transaction of several requests. Its first step is one of the positions: an earlier worker's commit that is still
    /// under way is waited for, and where it has moved them that is the error, and not the key of a row that it has brought.
    pub async fn begin(&self, first: Step) -> SqlResult<WriteTxn> {
        let options = WriteOptions { level: self.level, author: Some(self.author.clone()), ..WriteOptions::default() };
        let mut txn = self.db.begin_write(options).await?;
        let done = txn.execute(first, Box::new(Collect::new())).await.and_then(|done| done.result);
        match done {
            Ok(_) => Ok(txn),
            Err(error) => {
                txn.rollback().await?;
                Err(moved_by_another(error))
            }
        }
    }

    /// Begins a transaction that is applied while it arrives.
    pub async fn begin_large(&self) -> SqlResult<WriteTxn> {
        self.begin(self.positions.moved(self.positions.applied)).await
    }

    /// Runs a part of a large transaction. Returns how many changes were made, and how many of them found no row.
    pub async fn run_part(&mut self, txn: &mut WriteTxn, part: &Foreign) -> SqlResult<(u64, u64)> {
        let schema = self.db.schema();
        let (mut ran, mut missing) = (0, 0);
        if self.skip != 0 && part.start == self.skip {
            return Ok((ran, missing));
        }
        for change in &part.changes {
            let step = self.step(&schema, part.start, change).map_err(|e| named(e, part, change, None))?;
            let Some(step) = step else { continue };
            let found = Collect::new();
            let result = txn.execute(step, Box::new(found.clone())).await.and_then(|done| done.result);
            result.map_err(|e| named(e, part, change, self.key_of(change)))?;
            ran += 1;
            missing += u64::from(change.needs_row() && found.outcomes().iter().all(|outcome| outcome.count == 0));
        }
        Ok((ran, missing))
    }

    /// Commits a large transaction, of which `last` has the place.
    pub async fn finish_large(
        &mut self,
        mut txn: WriteTxn,
        last: &Foreign,
        (changes, missing): (u64, u64),
        progress: &Progress,
    ) -> SqlResult<()> {
        txn.execute(self.positions.moved(last.end), Box::new(Collect::new()))
            .await?
            .result
            .map_err(moved_by_another)?;
        let done = txn.commit(Box::new(Collect::new()))?.await;
        done.ok_or_else(SqlError::shutting_down)?.result?;
        self.note(1, changes, missing, Some(last), progress);
        Ok(())
    }
}

/// Whether the same transaction may succeed when it runs again.
fn passes(error: &SqlError) -> bool {
    matches!(error.state(), SqlState::SERIALIZATION_FAILURE | SqlState::DEADLOCK_DETECTED)
}

/// The error of the position's step.
fn moved_by_another(error: SqlError) -> SqlError {
    match Positions::is_other(&error) {
        true => SqlError::new(SqlState::OBJECT_IN_USE, "the subscription's position has changed, and is read again"),
        false => error,
    }
}

/// The error with what it happened to.
fn named(error: SqlError, foreign: &Foreign, change: &Change, key: Option<String>) -> SqlError {
    let verb = match change.what {
        What::Insert(_) => "INSERT",
        What::Update(..) => "UPDATE",
        What::Delete(_) => "DELETE",
        What::Truncate => "TRUNCATE",
    };
    let RemoteRelation { schema, name, .. } = &*change.relation;
    let key = key.map(|key| format!(", key {key}")).unwrap_or_default();
    let parts = error.parts();
    let detail = parts.detail.as_ref().map(|detail| format!(" {detail}")).unwrap_or_default();
    let message = format!(
        "{verb} of \"{schema}.{name}\"{key}, in the transaction that finished at {}: {}.{detail}",
        lsn_text(foreign.start),
        parts.message
    );
    let named = SqlError::new(error.state(), message);
    match &parts.hint {
        Some(hint) => named.with_hint(hint.clone()),
        None => named,
    }
}
