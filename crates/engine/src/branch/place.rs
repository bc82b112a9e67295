//! Where a branch's statement runs: on which connection, at which snapshot, and what becomes of it between two statements.
//!
//! A connection is left in its place with the pool, which may take it away; then the images are put on another one. It is
//! used again while its snapshot is good enough for the statement.

use super::connection::Connection;
use super::core::{Attempt, Core, Work};
use super::pin::{At, Pin};
use super::replay::replay;
use crate::temp::TempSpace;
use holdfast_types::{SqlError, SqlState};
use std::time::{Duration, Instant};

/// A snapshot older than this is given up at the next statement, so that it does not hold page versions for long.
const OLDER_SNAPSHOT_MAX: Duration = Duration::from_secs(5);

/// Between two looks whether MAIN has published a new schema.
const SCHEMA_PAUSE: Duration = Duration::from_micros(50);

impl Core {
    /// Takes back the connection that was left with the pool, if it is still there.
    pub(super) fn unpark(&mut self) {
        if self.connection.is_none()
            && let Some(kept) = self.inner.branches.kept(self.owner())
        {
            self.connection = Some(kept.connection);
            if !self.keeps_snapshot {
                self.pin = kept.pin;
            }
        }
    }

    /// Gives the connection back; the images are put on another one at the next statement.
    pub fn park(&mut self) {
        self.unpark();
        if let Some(mut connection) = self.connection.take() {
            let bytes = self.ops.len().max(connection.conn.capture().len());
            self.inner.branches.end(&self.inner, bytes, connection);
        }
        if !self.keeps_snapshot {
            self.pin = None;
        }
    }

    /// A connection on the snapshot that the next statement is to see, with the transaction's images on it.
    pub(super) fn connect(&mut self, temp: Option<&TempSpace>) -> Result<Connection, Attempt> {
        if let Some(connection) = self.current() {
            return Ok(connection);
        }
        self.park();
        let (mut connection, snapshot) = self.connection_on_a_snapshot()?;
        self.newest = false;
        let (owner, session) = (self.presence.owner(), self.presence.session());
        let begun = connection.begin(owner, session, snapshot, self.locks_max(), temp);
        let started = Instant::now();
        let replayed =
            begun.map_err(Attempt::Failed).and_then(|()| replay(&mut connection, &self.ops, self.own.as_ref()));
        self.size.replayed(started.elapsed());
        match replayed {
            Ok(()) => Ok(connection),
            Err(attempt) => {
                self.inner.branches.end(&self.inner, self.ops.len(), connection);
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
                    let durable = self.inner.volume().store().durable();
                    // A change of the schema that waits for its level is seen: the answer then waits with it.
                    let newest = self.newest || self.seen.max(self.inner.schema_number()) > durable;
                    let at = if newest { At::Newest } else { At::Durable };
                    self.pin.insert(Pin::new(&self.inner, at, self.presence.pid())).snapshot()
                }
            };
            let connection = self.inner.branches.take(&self.inner).map_err(Attempt::Failed)?;
            if self.inner.goes_with(connection.epoch(), snapshot) {
                return Ok((connection, snapshot));
            }
            self.inner.branches.give_back(connection);
            if self.keeps_snapshot {
                // Its lock of the schema should have kept changes away.
                return Err(Attempt::Failed(
                    SqlError::new(
                        SqlState::SERIALIZATION_FAILURE,
                        "the schema has changed since the transaction began",
                    )
                    .with_hint("Run the transaction again."),
                ));
            }
            self.pin = None;
            // MAIN is publishing a schema at this moment.
            std::thread::sleep(SCHEMA_PAUSE);
        }
    }

    /// A connection in the transaction, for what only looks at the schema.
    pub(super) fn any_connection(&mut self) -> Result<Connection, Attempt> {
        self.unpark();
        self.connect(None)
    }

    /// The same with temporary tables attached: not to be left in its place.
    pub(super) fn connection_with(&mut self, temp: &TempSpace) -> Result<Connection, Attempt> {
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
        self.inner.branches.keep(&self.inner, self.presence.owner(), images, connection, pin);
    }

    /// The connection kept from the last statement, if nothing has been committed since.
    fn current(&mut self) -> Option<Connection> {
        let pinned = self.pin.as_ref().map(Pin::snapshot)?;
        let durable = self.inner.volume().store().durable();
        let newest = durable.max(self.inner.schema_number());
        let current = self.keeps_snapshot || (!self.newest && pinned >= newest);
        let epoch = self.inner.map().epoch;
        self.connection.take_if(|c| current && (c.changed || c.epoch() == epoch))
    }

    /// A long transaction under foreign writes would put all its images on a new snapshot for every statement, so that
    /// its time grew with the square of its length. A statement that changes a row it names by its key, and looks at
    /// nothing else, may run on the snapshot the connection is on: if that row or key was changed since, the hook sees
    /// it (RULE 24).
    pub(super) fn older_but_good(&mut self, work: &Work) -> Option<Connection> {
        let age_max = match self.changes_schema_slowly() {
            true => Duration::MAX,
            false => OLDER_SNAPSHOT_MAX.max(self.size.snapshot_time()),
        };
        let pin = self.pin.as_ref().filter(|p| p.age() < age_max)?.snapshot();
        let older = !self.keeps_snapshot && !self.newest && pin < self.inner.volume().store().durable();
        let older = older && pin >= self.inner.schema_number();
        let epoch = self.inner.map().epoch;
        self.connection.take_if(|c| older && work.may_be_late() && (c.changed || c.epoch() == epoch))
    }
}
