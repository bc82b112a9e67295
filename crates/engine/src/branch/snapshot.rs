//! Where a branch's statement runs: on which connection, at which snapshot, and what happens to the connection between
//! two statements.
//!
//! A connection is left in place with the pool, which may reclaim it; then another one replays the images. It is used
//! again while its snapshot is good enough for the statement.

use super::replay::replay;
use super::state::BranchState;
use super::work::{Attempt, Work};
use crate::state::branch_connection::Connection;
use crate::state::pin::{At, Pin};
use crate::statement::temp::tables::TempTables;
use holdfast_types::{SqlError, SqlState};
use std::time::{Duration, Instant};

/// A snapshot older than this is dropped at the next statement, so that it does not hold page versions for long.
const OLDER_SNAPSHOT_MAX: Duration = Duration::from_secs(5);

/// Time between two checks whether the writer has published a new schema.
const SCHEMA_PAUSE: Duration = Duration::from_micros(50);

impl BranchState {
    /// Takes the connection that was left with the pool, if it is still there.
    pub(super) fn unpark(&mut self) {
        if self.connection.is_none()
            && let Some(kept) = self.database.branches.kept(self.owner())
        {
            self.connection = Some(kept.connection);
            if !self.keeps_snapshot {
                self.pin = kept.pin;
            }
        }
    }

    /// Returns the connection; another one replays the images for the next statement.
    pub fn park(&mut self) {
        self.unpark();
        if let Some(mut connection) = self.connection.take() {
            let bytes = self.ops.len().max(connection.conn.capture().len());
            self.database.branches.end(&self.database, bytes, connection);
        }
        if !self.keeps_snapshot {
            self.pin = None;
        }
    }

    /// A connection on the snapshot that the next statement must see, with the transaction's images replayed.
    pub(super) fn connect(&mut self, temp: Option<&TempTables>) -> Result<Connection, Attempt> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        self.park();
        let (mut connection, snapshot) = self.connection_on_a_snapshot()?;
        self.newest = false;
        let (owner, session) = (self.lock_owner.id(), self.lock_owner.advisory_owner());
        let begun = connection.begin(owner, session, snapshot, self.locks_max(), temp);
        let started = Instant::now();
        let replayed =
            begun.map_err(Attempt::Failed).and_then(|()| replay(&mut connection, &self.ops, self.own.as_ref()));
        self.size.replayed(started.elapsed());
        match replayed {
            Ok(()) => Ok(connection),
            Err(attempt) => {
                self.database.branches.end(&self.database, self.ops.len(), connection);
                Err(attempt)
            }
        }
    }

    /// A connection and a snapshot of the same schema.
    fn connection_on_a_snapshot(&mut self) -> Result<(Connection, u64), Attempt> {
        loop {
            let snapshot = match &self.pin {
                Some(pin) => pin.snapshot(),
                None => {
                    let visible = self.database.volume().store().visible();
                    // A schema change that waits for its level is visible: the answer then waits with it.
                    let newest = self.newest || self.seen.max(self.database.schema_number()) > visible;
                    let at = if newest { At::Newest } else { At::ForWriting };
                    self.pin.insert(self.database.pin(at, self.lock_owner.pid())).snapshot()
                }
            };
            let connection = self.database.branches.take(&self.database).map_err(Attempt::Failed)?;
            if self.database.goes_with(connection.epoch(), snapshot) {
                return Ok((connection, snapshot));
            }
            self.database.branches.give_back(connection);
            if self.keeps_snapshot {
                // Its lock of the schema should have prevented changes.
                return Err(Attempt::Failed(
                    SqlError::new(
                        SqlState::SERIALIZATION_FAILURE,
                        "the schema has changed since the transaction began",
                    )
                    .with_hint("Run the transaction again."),
                ));
            }
            self.pin = None;
            // The writer is publishing a schema at this moment.
            std::thread::sleep(SCHEMA_PAUSE);
        }
    }

    /// A connection in the transaction, for work that only reads the schema.
    pub(super) fn any_connection(&mut self) -> Result<Connection, Attempt> {
        self.unpark();
        self.connect(None)
    }

    /// A connection in the transaction with temporary tables attached: not to be left in its place.
    pub(super) fn connection_with(&mut self, temp: &TempTables) -> Result<Connection, Attempt> {
        self.park();
        self.connect(Some(temp))
    }

    /// Leaves the connection with the pool, for the next statement.
    pub(super) fn leave_in_place(&mut self, connection: Connection) {
        if self.changes_schema_slowly() {
            self.connection = Some(connection);
            return;
        }
        let pin = if self.keeps_snapshot { None } else { self.pin.take() };
        let images = (self.count, self.ops.len());
        self.database.branches.keep(&self.database, self.lock_owner.id(), images, connection, pin);
    }

    /// The connection kept from the last statement, if nothing has been committed since.
    fn current(&mut self) -> Option<Connection> {
        let pinned = self.pin.as_ref().map(Pin::snapshot)?;
        let visible = self.database.volume().store().visible();
        let newest = visible.max(self.database.schema_number());
        let current = self.keeps_snapshot || (!self.newest && pinned >= newest);
        let epoch = self.database.map().epoch;
        self.connection.take_if(|c| current && (c.changed || c.epoch() == epoch))
    }

    /// A long transaction under writes of other sessions would replay all its images on a new snapshot for every
    /// statement, so that its time grew with the square of its length. A statement that changes a row which it names by
    /// its key, and reads nothing else, may run on the connection's snapshot: if that row or key was changed since, the
    /// hook sees it (RULE 24).
    pub(super) fn older_but_good(&mut self, work: &Work) -> Option<Connection> {
        let age_max = match self.changes_schema_slowly() {
            true => Duration::MAX,
            false => OLDER_SNAPSHOT_MAX.max(self.size.snapshot_time()),
        };
        let pin = self.pin.as_ref().filter(|p| p.age() < age_max)?.snapshot();
        let older = !self.keeps_snapshot && !self.newest && pin < self.database.volume().store().visible();
        let older = older && pin >= self.database.schema_number();
        let epoch = self.database.map().epoch;
        self.connection.take_if(|c| older && work.may_be_late() && (c.changed || c.epoch() == epoch))
    }
}
