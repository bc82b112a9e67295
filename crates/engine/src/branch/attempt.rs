//! One attempt at a statement on a branch, without ever waiting.
//!
//! | frame | decides |
//! |---|---|
//! | [`BranchState::attempt`] | whether the branch may grow for it, and which locks stay |
//! | `on_a_snapshot` | on which snapshot it runs, and whether again on a newer one |
//! | `on_connection` | what becomes of the connection and of the images |
//! | `outcome` | how the statement ended |
//! | [`execute`] | how a statement of its kind is run |

use super::execute::execute;
use super::replay::duplicate_of_another;
use super::state::BranchState;
use super::work::{Attempt, Work};
use crate::branch::temp::keep_on_branch;
use crate::state::branch_connection::Connection;
use crate::state::interruption::Interruption;
use crate::state::pin::Pin;
use crate::statement::run::{FRESH_SNAPSHOTS_MAX, ended_by_itself, not_captured};
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::time::Instant;

impl BranchState {
    /// Runs the work once. Afterwards the transaction is where it was, or where the work leads. A cancel reaches the
    /// statement through `interruption` meanwhile.
    pub fn attempt(&mut self, work: &mut Work, interruption: &Interruption) -> Attempt {
        let mark = self.database.engine.locks.mark(self.owner());
        let mut ended = self.on_a_snapshot(work, interruption);
        if matches!(ended, Attempt::NeedsExclusive) && self.overflowed && self.size.grow(&self.database.engine) {
            work.reset();
            ended = self.on_a_snapshot(work, interruption);
        }
        if self.keeps_snapshot && matches!(ended, Attempt::Stale(_)) {
            ended = Attempt::Failed(
                SqlError::new(SqlState::SERIALIZATION_FAILURE, "could not serialize access due to concurrent update")
                    .with_hint("Run the transaction again."),
            );
        }
        // A statement that failed for good releases its locks; one that is retried keeps them.
        if matches!(ended, Attempt::Failed(_) | Attempt::NeedsExclusive) {
            self.database.engine.locks.release_to(self.owner(), mark);
        }
        ended
    }

    /// Runs the work on the snapshot of its connection if that is good enough, otherwise on the one that the statement
    /// must see.
    fn on_a_snapshot(&mut self, work: &mut Work, interruption: &Interruption) -> Attempt {
        self.unpark();
        if work.temp().is_some() {
            // Temporary tables are attached to a connection that has not begun.
            self.park();
        }
        if let Some(connection) = self.older_but_good(work) {
            let (ended, changed) = self.on_connection(connection, work, interruption);
            // It may have failed, or found nothing to change, only because it did not see the newest snapshot.
            let visible = self.database.volume().store().visible();
            let again = match ended {
                Attempt::Failed(_) => true,
                Attempt::Done => !changed,
                Attempt::Stale(number) => number <= visible,
                Attempt::Blocked(..) | Attempt::NeedsExclusive => false,
            };
            if !again {
                return ended;
            }
            self.park();
            work.reset();
        }
        let mut tries = 0;
        loop {
            let ended = match self.connect(work.temp().map(|t| &*t.tables)) {
                Ok(connection) => self.on_connection(connection, work, interruption).0,
                Err(attempt) => attempt,
            };
            // Scratch space was full and the snapshot was dropped: only a transaction that must keep it fails.
            let given_up = matches!(&ended, Attempt::Failed(e) if e.state() == SqlState::SNAPSHOT_TOO_OLD);
            if !given_up || self.keeps_snapshot || tries == FRESH_SNAPSHOTS_MAX {
                return ended;
            }
            tries += 1;
            self.park();
            work.reset();
        }
    }

    /// Runs the work on the connection, and keeps or parks the connection; also returns whether a row was changed.
    fn on_connection(
        &mut self,
        mut connection: Connection,
        work: &mut Work,
        interruption: &Interruption,
    ) -> (Attempt, bool) {
        interruption.interrupts(Some(connection.interrupt.clone()));
        connection.running.lock().granted = self.granted.take();
        let started = Instant::now();
        let ended = match work.temp().filter(|t| t.writes).map(|t| t.tables.clone()) {
            None => self.outcome(&mut connection, work),
            Some(tables) => keep_on_branch(
                &tables,
                &mut connection,
                |c| match self.outcome(c, work) {
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
        interruption.interrupts(None);
        let (unused, advisory) = {
            let mut running = connection.running.lock();
            (running.granted.take(), std::mem::take(&mut running.advisory))
        };
        self.lock_owner.ends_with_it(advisory);
        match ended {
            Attempt::Blocked(..) | Attempt::Stale(_) => self.granted = unused,
            // The statement has ended without the lock that it waited for, for example because the schema has changed.
            _ => self.return_advisory(unused),
        }
        self.last_insert_rowid = connection.conn.last_insert_rowid();
        // An error, too, may depend on what it saw.
        let locks = &self.database.engine.locks;
        let behind = locks.behind(self.database.id, [self.owner()].into_iter().chain(self.lock_owner.advisory_owner()));
        self.seen = self.seen.max(self.pin.as_ref().map_or(0, Pin::snapshot)).max(behind);
        if matches!(ended, Attempt::Done) {
            let ops = connection.conn.capture().ops() as usize;
            if let Work::Statement { sink, .. } = work {
                sink.recorded(connection.conn.capture().len() as u64, ops as u64);
            }
            self.ops.extend_from_slice(&connection.conn.capture().take());
            self.count += ops;
            self.has_changed_schema(connection.own.clone());
        }
        // A failed schema change leaves traces. Temporary tables are attached to this connection only.
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

    /// Executes the work in a savepoint and determines how it ended: what the hook found takes precedence over SQLite's
    /// own result.
    fn outcome(&mut self, c: &mut Connection, work: &mut Work) -> Attempt {
        c.listen();
        c.set_bytes_max(self.size.bytes_max);
        self.overflowed = false;
        if let Err(e) = c.run(c.control.savepoint) {
            return Attempt::Failed(e);
        }
        let bounds = match work {
            Work::Statement { step, .. } if self.on_a_network_thread => Some(step.bounds_on_a_network_thread()),
            _ => None,
        };
        c.conn.set_bounds(bounds);
        let ran = execute(&self.database, c, self.schema(), work, self.on_a_network_thread).and_then(|()| check(c));
        c.conn.set_bounds(None);
        let found = c.found();
        self.overflowed = c.conn.capture().overflowed();
        match (found.blocked, found.needs_exclusive, found.stale, ran) {
            (Some((id, mode)), ..) => Attempt::Blocked(id, mode),
            (_, true, ..) => Attempt::NeedsExclusive,
            (_, _, Some(number), _) => Attempt::Stale(number),
            (.., Err(e)) => match duplicate_of_another(c, || self.schema(), work, &e) {
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
                    // Its changes are still there; the next statement begins on a connection without them.
                    c.end();
                    Attempt::Failed(e)
                }
            },
        }
    }
}

fn check(c: &mut Connection) -> SqlResult<()> {
    c.conn.capture().check().map_err(not_captured)
}

/// Takes back what a failed statement did. SQLite may have rolled everything back already; the next statement then
/// begins again.
fn undo(c: &mut Connection) {
    if c.conn.autocommit() || c.run(c.control.rollback_to).and_then(|()| c.run(c.control.release)).is_err() {
        c.end();
    }
    c.conn.capture().take();
}
