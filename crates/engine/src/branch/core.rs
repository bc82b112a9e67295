//! One attempt at a statement on a branch, without ever waiting.

use super::connection::Connection;
use super::locking_read::RowLocker;
use super::pin::{Pin, Presence};
use super::schema::{Own, SCHEMA_CHANGES_TIME_MAX, change_schema};
use super::size::Size;
use crate::collect::Ignore;
use crate::database::Inner;
use crate::locks::{LockId, LockMode, Mark, OwnerId, Target};
use crate::main_thread::Images;
use crate::run::{ended_by_itself, run_step, run_step_visiting};
use crate::statement::{Class, Statement, Step};
use crate::temp::{Shown, TempUse};
use holdfast_store::schema_map::TableMap;
use holdfast_store::sqlite::InterruptHandle;
use holdfast_types::schema::Schema;
use holdfast_types::{Row, Sink, SqlError, SqlResult, SqlState, Value};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many times more locks may be held under a kept snapshot.
const LOCKS_AT_SNAPSHOT: usize = 4;

/// How often a statement is run again because its snapshot was given up under it.
const FRESH_SNAPSHOTS_MAX: usize = 20;

/// What to run.
pub enum Work {
    Statement {
        number: usize,
        step: Step,
        sink: Box<dyn Sink>,
    },
    /// One statement for many rows of parameters, which take effect together or not at all. Its results are dropped.
    Rows {
        stmt: Arc<Statement>,
        rows: Vec<Vec<Value>>,
        /// The row that failed, from 0.
        failed: usize,
    },
}

impl Work {
    /// Forgets what the statement has returned so far.
    pub fn reset(&mut self) {
        if let Work::Statement { sink, .. } = self {
            sink.reset();
        }
    }

    fn is_ddl(&self) -> bool {
        matches!(self, Work::Statement { step, .. } if step.stmt.class == Class::Ddl)
    }

    /// How it uses temporary tables.
    fn temp(&self) -> Option<&TempUse> {
        match self {
            Work::Statement { step, .. } => step.stmt.temp.as_ref(),
            Work::Rows { stmt, .. } => stmt.temp.as_ref(),
        }
    }

    /// The epoch of the schema it was translated under, where that matters.
    fn epoch(&self) -> Option<u32> {
        match self {
            Work::Statement { step, .. } => step.stmt.report.epoch,
            Work::Rows { stmt, .. } => stmt.report.epoch,
        }
    }

    /// It may run on an older snapshot: what it does is checked, or is done again by MAIN.
    pub(super) fn may_be_late(&self) -> bool {
        match self {
            Work::Statement { step, .. } if step.stmt.class == Class::Ddl => true,
            Work::Statement { step, .. } => step.stmt.names_its_rows,
            Work::Rows { stmt, .. } => stmt.names_its_rows,
        }
    }
}

/// How an attempt ended.
pub enum Attempt {
    Done,
    /// The statement is undone.
    Failed(SqlError),
    /// Undone; it can be tried again when this lock is granted.
    Blocked(LockId, LockMode),
    /// Undone; it has to be tried again on a snapshot that shows this boxcar.
    Stale(u64),
    /// Undone; only MAIN can run it.
    Alone,
}

/// A savepoint of the client.
struct Savepoint {
    name: String,
    ops: usize,
    count: usize,
    locks: Mark,
    own: Option<Own>,
}

/// A transaction on a branch, between statements.
pub struct Core {
    pub inner: Arc<Inner>,
    pub presence: Presence,
    /// One snapshot for the whole transaction (REPEATABLE READ).
    pub keeps_snapshot: bool,
    /// Everything it has changed, in order: operations of the trail's format.
    pub(super) ops: Vec<u8>,
    /// With more images than this allows it has to leave its branch.
    pub size: Size,
    /// The last attempt was stopped at that.
    overflowed: bool,
    pub(super) count: usize,
    savepoints: Vec<Savepoint>,
    /// REPEATABLE READ: the transaction's snapshot. Else that of the connection, while it is here.
    pub(super) pin: Option<Pin>,
    /// In a transaction at the pinned snapshot, with all images on it. Between statements it is left with the pool.
    pub(super) connection: Option<Connection>,
    /// Newest snapshot that a statement has seen: the next sees no older one.
    pub seen: u64,
    /// A lock wait is over: the next attempt sees everything published.
    pub newest: bool,
    pub last_insert_rowid: i64,
    /// The schema as it has changed it.
    pub(super) own: Option<Own>,
    /// How long its schema changes have taken.
    schema_changes_time: Duration,
    /// An advisory lock that was waited for.
    granted: Option<(LockId, LockMode)>,
}

impl Core {
    pub fn new(inner: Arc<Inner>, presence: Presence) -> Core {
        Core {
            inner,
            presence,
            keeps_snapshot: false,
            ops: Vec::new(),
            size: Size::new(),
            overflowed: false,
            count: 0,
            savepoints: Vec::new(),
            pin: None,
            connection: None,
            seen: 0,
            newest: false,
            last_insert_rowid: 0,
            own: None,
            schema_changes_time: Duration::ZERO,
            granted: None,
        }
    }

    pub fn owner(&self) -> OwnerId {
        self.presence.owner()
    }

    /// The lock it waited for is granted: advisory ones are taken up by the statement.
    pub fn got(&mut self, id: LockId, mode: LockMode) {
        self.granted = matches!(id.target, Target::Advisory { .. }).then_some((id, mode));
    }

    /// Who waits for such a lock.
    pub fn waits_as(&self, id: LockId) -> OwnerId {
        match (id.target, self.presence.session()) {
            (Target::Advisory { .. }, Some(session)) => session,
            _ => self.owner(),
        }
    }

    pub fn ops_bytes(&self) -> usize {
        self.ops.len()
    }

    /// Whether it has to leave its branch.
    pub fn is_too_large(&mut self) -> bool {
        let fits = |core: &Core| core.ops.len() <= core.size.bytes_max;
        let fits = fits(self) || (self.size.grow(&self.inner.shared) && fits(self));
        // On MAIN one that keeps its snapshot could not go on if anything was committed since; nor does it need new ones.
        !fits || (!self.keeps_snapshot && self.size.replays_too_much())
    }

    /// Whether its schema changes take long to be made again: then it keeps its connection.
    pub(super) fn changes_schema_slowly(&self) -> bool {
        self.schema_changes_time > SCHEMA_CHANGES_TIME_MAX
    }

    /// With more row and key locks it has to leave its branch.
    pub(super) fn locks_max(&self) -> usize {
        let max = self.inner.shared.options.branch_locks_max;
        // On MAIN one that keeps its snapshot could not go on if anything was committed since.
        if self.keeps_snapshot { max.saturating_mul(LOCKS_AT_SNAPSHOT) } else { max }
    }

    /// The snapshot that the transaction keeps.
    pub fn kept_snapshot(&self) -> Option<u64> {
        self.pin.as_ref().filter(|_| self.keeps_snapshot).map(Pin::snapshot)
    }

    /// The schema as the transaction sees it.
    pub fn schema(&self) -> Arc<Schema> {
        self.own.as_ref().map_or_else(|| self.inner.schema.read().clone(), |own| own.schema.clone())
    }

    /// The tables as the transaction sees them.
    pub fn map(&self) -> Arc<TableMap> {
        self.own.as_ref().map_or_else(|| self.inner.map(), |own| own.map.clone())
    }

    /// Whether it has changed the schema.
    pub fn changes_schema(&self) -> bool {
        self.own.is_some()
    }

    /// The transaction leaves its branch: its images and its locks.
    pub fn leave(mut self) -> (Images, Presence) {
        self.park();
        self.own = None;
        let mut first = std::mem::take(&mut self.ops);
        let savepoints = std::mem::take(&mut self.savepoints);
        let mut after: Vec<(String, Vec<u8>)> =
            savepoints.into_iter().rev().map(|s| (s.name, first.split_off(s.ops))).collect();
        after.reverse();
        (Images { first, after }, self.presence)
    }

    /// One snapshot for all statements from now on.
    pub fn keep(&mut self, snapshot: Pin) {
        self.keeps_snapshot = true;
        self.pin = Some(snapshot);
    }

    /// Runs the work once. Whatever the outcome, the transaction is where it was or where the work leads. `running` is
    /// told what a cancel may interrupt meanwhile.
    pub fn attempt(&mut self, work: &mut Work, running: impl Fn(Option<Arc<InterruptHandle>>)) -> Attempt {
        let mark = self.inner.shared.locks.mark(self.owner());
        let mut ended = self.attempt_as_it_is(work, &running);
        if matches!(ended, Attempt::Alone) && self.overflowed && self.size.grow(&self.inner.shared) {
            work.reset();
            ended = self.attempt_as_it_is(work, &running);
        }
        self.kept_locks(ended, mark)
    }

    /// The same, no larger than it may be now, and without giving locks back.
    fn attempt_as_it_is(&mut self, work: &mut Work, running: &impl Fn(Option<Arc<InterruptHandle>>)) -> Attempt {
        self.unpark();
        if work.temp().is_some() {
            // They are attached to a connection that has not begun.
            self.park();
        }
        if let Some(connection) = self.older_but_good(work) {
            let (ended, changed) = self.run_once(connection, work, running);
            // It may have failed, or found nothing to change, only because it did not see the newest.
            let durable = self.inner.volume().store().durable();
            let again = match ended {
                Attempt::Failed(_) => true,
                Attempt::Done => !changed,
                Attempt::Stale(number) => number <= durable,
                Attempt::Blocked(..) | Attempt::Alone => false,
            };
            if !again {
                return ended;
            }
            self.park();
            work.reset();
        }
        let mut ended = self.on_a_fresh_snapshot(work, running);
        for _ in 0..FRESH_SNAPSHOTS_MAX {
            // Scratch space is scarce and the snapshot was given up: only who must keep it is told.
            let given_up = matches!(&ended, Attempt::Failed(e) if e.state() == SqlState::SNAPSHOT_TOO_OLD);
            if !given_up || self.keeps_snapshot {
                break;
            }
            self.park();
            work.reset();
            ended = self.on_a_fresh_snapshot(work, running);
        }
        ended
    }

    fn on_a_fresh_snapshot(&mut self, work: &mut Work, running: &impl Fn(Option<Arc<InterruptHandle>>)) -> Attempt {
        match self.connect(work.temp().map(|t| &*t.space)) {
            Ok(connection) => self.run_once(connection, work, running).0,
            Err(attempt) => attempt,
        }
    }

    /// What came of it, and whether a row was changed.
    fn run_once(
        &mut self,
        mut connection: Connection,
        work: &mut Work,
        running: &impl Fn(Option<Arc<InterruptHandle>>),
    ) -> (Attempt, bool) {
        running(Some(connection.interrupt.clone()));
        connection.running.lock().granted = self.granted.take();
        let started = Instant::now();
        let ended = match work.temp().filter(|t| t.writes).map(|t| t.space.clone()) {
            None => self.run_on(&mut connection, work),
            Some(space) => space.on_branch(
                &mut connection,
                |c| match self.run_on(c, work) {
                    Attempt::Done => Ok(Attempt::Done),
                    other => Err(other),
                },
                Attempt::Failed,
            ),
        };
        if work.is_ddl() {
            self.schema_changes_time += started.elapsed();
        }
        let changed = work.is_ddl() || connection.conn.changes() > 0;
        running(None);
        self.presence.ends_with_it(std::mem::take(&mut connection.running.lock().advisory));
        self.last_insert_rowid = connection.conn.last_insert_rowid();
        // An error, too, may tell of what it saw.
        self.seen = self.seen.max(self.pin.as_ref().map_or(0, Pin::snapshot));
        if matches!(ended, Attempt::Done) {
            let ops = connection.conn.capture().ops() as usize;
            self.ops.extend_from_slice(&connection.conn.capture().take());
            self.count += ops;
            self.has_changed_schema(connection.own.clone());
        }
        // A schema change that failed has left its traces. Temporary tables are attached to this connection only.
        let as_it_was = matches!(ended, Attempt::Failed(_)) && !work.is_ddl();
        let stays = work.temp().is_none() && !connection.conn.autocommit();
        if stays && (as_it_was || matches!(ended, Attempt::Done)) {
            self.leave_in_place(connection);
        } else {
            self.connection = Some(connection);
            self.park();
        }
        (ended, changed)
    }

    /// A statement that failed for good gives its locks back; one that is tried again keeps them.
    fn kept_locks(&mut self, attempt: Attempt, mark: Mark) -> Attempt {
        let attempt = match attempt {
            Attempt::Stale(_) if self.keeps_snapshot => Attempt::Failed(
                SqlError::new(SqlState::SERIALIZATION_FAILURE, "could not serialize access due to concurrent update")
                    .with_hint("Run the transaction again."),
            ),
            other => other,
        };
        if matches!(attempt, Attempt::Failed(_) | Attempt::Alone) {
            self.inner.shared.locks.release_to(self.owner(), mark);
        }
        attempt
    }

    fn run_on(&mut self, c: &mut Connection, work: &mut Work) -> Attempt {
        c.listen();
        c.set_bytes_max(self.size.bytes_max);
        self.overflowed = false;
        if let Err(e) = c.run(c.control.savepoint) {
            return Attempt::Failed(e);
        }
        let ran = run_work(&self.inner, c, self.schema(), work).and_then(|()| check(c));
        let found = c.found();
        self.overflowed = c.conn.capture().overflowed();
        match (found.blocked, found.alone, found.stale, ran) {
            (Some((id, mode)), ..) => Attempt::Blocked(id, mode),
            (_, true, ..) => Attempt::Alone,
            (_, _, Some(number), _) => Attempt::Stale(number),
            (.., Err(e)) => match super::replay::duplicate_of_another(self, c, work, &e) {
                Some(attempt) => attempt,
                None => {
                    undo(c);
                    Attempt::Failed(e)
                }
            },
            (.., Ok(())) if c.conn.autocommit() => {
                c.end();
                Attempt::Failed(ended_by_itself(SqlError::internal("the transaction ended by itself")))
            }
            (.., Ok(())) => match c.run(c.control.release) {
                Ok(()) => Attempt::Done,
                Err(e) => {
                    // What it changed is still there; the next statement begins on a connection without it.
                    c.end();
                    Attempt::Failed(e)
                }
            },
        }
    }

    pub fn set_savepoint(&mut self, name: &str) {
        let locks = self.inner.shared.locks.mark(self.owner());
        let (ops, count, own) = (self.ops.len(), self.count, self.own.clone());
        self.savepoints.push(Savepoint { name: name.to_owned(), ops, count, locks, own });
    }

    fn find(&self, name: &str) -> SqlResult<usize> {
        self.savepoints.iter().rposition(|s| s.name == name).ok_or_else(|| {
            SqlError::new(SqlState::INVALID_SAVEPOINT_SPECIFICATION, format!("savepoint \"{name}\" does not exist"))
        })
    }

    pub fn release(&mut self, name: &str) -> SqlResult<()> {
        let at = self.find(name)?;
        self.savepoints.truncate(at);
        Ok(())
    }

    /// A statement has failed and nothing but a return to a savepoint may follow: what came after the last one is of no
    /// more use, nor are its locks.
    pub fn fail(&mut self) {
        if let Some(name) = self.savepoints.last().map(|s| s.name.clone()) {
            // The savepoint is there, so this cannot fail.
            self.rollback_to(&name).unwrap_or_default();
        }
    }

    /// Forgets what came after the savepoint; the savepoint stays.
    pub fn rollback_to(&mut self, name: &str) -> SqlResult<()> {
        let at = self.find(name)?;
        self.savepoints.truncate(at + 1);
        let (ops, count, locks) = (self.savepoints[at].ops, self.savepoints[at].count, self.savepoints[at].locks);
        if self.ops.len() > ops {
            self.ops.truncate(ops);
            self.count = count;
            let own = self.savepoints[at].own.clone();
            self.back_to_schema(own);
            self.park();
        }
        self.inner.shared.locks.release_to(self.owner(), locks);
        Ok(())
    }
}

fn run_work(inner: &Arc<Inner>, c: &mut Connection, mut schema: Arc<Schema>, work: &mut Work) -> SqlResult<()> {
    if work.epoch().is_some_and(|epoch| epoch != c.own.as_ref().map_or(c.epoch(), |own| own.map.epoch)) {
        return Err(SqlError::schema_changed());
    }
    let shown = work.temp().map(|t| t.space.schema(&schema));
    let cache = if shown.is_some() { &mut c.temp_cache } else { &mut c.cache };
    if let Some(temporary) = shown.as_ref().filter(|_| work.temp().is_some_and(|t| !t.changes_main)) {
        schema = temporary.clone();
    }
    let _shown = shown.map(Shown::new);
    match work {
        Work::Statement { number, step, sink } if step.stmt.class == Class::Ddl => {
            change_schema(c, &schema, *number, step, &mut **sink)
        }
        Work::Statement { number, step, sink } if step.stmt.report.row_locks.is_empty() => {
            run_step(&mut c.conn, cache, &schema, *number, step, &mut **sink)
        }
        Work::Statement { number, step, sink } => {
            let locks = &step.stmt.report.row_locks;
            let mut locker = RowLocker { inner, running: &c.running, locks, granted: 0 };
            let mut visit = |row: &dyn Row| locker.visit(row);
            run_step_visiting(&mut c.conn, cache, &schema, *number, step, &mut **sink, &mut visit)
        }
        Work::Rows { stmt, rows, failed } => {
            for (i, params) in rows.iter().enumerate() {
                *failed = i;
                let step = Step { stmt: stmt.clone(), params: params.clone() };
                run_step(&mut c.conn, cache, &schema, 0, &step, &mut Ignore)?;
                if c.running.lock().found.blocked.is_some() {
                    break;
                }
            }
            Ok(())
        }
    }
}

fn check(c: &mut Connection) -> SqlResult<()> {
    c.conn.capture().check().map_err(|e| SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, e.to_string()))
}

/// Takes back what a failed statement did. SQLite may have rolled everything back already; the next statement then
/// begins anew.
fn undo(c: &mut Connection) {
    if c.conn.autocommit() || c.run(c.control.rollback_to).and_then(|()| c.run(c.control.release)).is_err() {
        c.end();
    }
    c.conn.capture().take();
}
