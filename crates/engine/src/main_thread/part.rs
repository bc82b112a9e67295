//! MAIN's part in a transaction over several databases.
//!
//! | state | order | next |
//! |---|---|---|
//! | backed out, the reason told | none | MAIN is free |
//! | backed out, it has changed nothing | none | MAIN is free |
//! | ready: all checks made, nothing published | commit | published, the record told; or backed out, the error told |
//! | ready | none, the others could not | backed out; MAIN is free |
//! | published | go on: one append took the records of all | MAIN is free |
//! | published | none | broken: nothing may be written from here on |

use super::exec::Main;
use crate::branch::Presence;
use crossbeam_channel::{Receiver, Sender};
use holdfast_trail::Reservation;
use holdfast_types::record::BatchBuilder;
use holdfast_types::{SqlError, SqlResult};
use std::time::Instant;

/// What MAIN is asked to take part with.
pub struct Part {
    /// What was done on a branch; `None` for a transaction that is on MAIN already.
    pub images: Option<Vec<u8>>,
    /// Its locks, which go when it is published or undone.
    pub presence: Option<Presence>,
    pub orders: Receiver<Order>,
    pub reports: Sender<Report>,
}

/// What MAIN is told. No order at all, the sender gone, is an order to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Commit,
    GoOn,
}

/// What MAIN tells.
pub enum Report {
    /// Every check is made; bytes of its record so far.
    Ready(u64),
    Published(Published),
    /// It has changed nothing here and is over.
    Nothing,
    /// Backed out.
    Failed(SqlError),
}

/// A boxcar that others see and the trail has yet to take.
pub struct Published {
    pub number: u64,
    pub body: Vec<u8>,
    pub reservation: Option<Reservation>,
    /// Fragments that were sent ahead.
    pub fragments: Option<u64>,
    pub time_us: u64,
    /// Its locks, which go when all parts are published: another part may be what they guard.
    pub presence: Option<Presence>,
}

impl Main {
    /// Plays the part to its end.
    pub(crate) fn take_part(&mut self, part: Part) {
        let Part { images, presence, orders, reports } = part;
        let started = Instant::now();
        // The coordinator waits for every report it asked for; it never goes away before.
        let tell = |report| drop(reports.send(report));
        let record = match self.get_ready(images, presence.as_ref()) {
            Ok(Some(record)) => record,
            nothing => {
                self.back_out();
                drop(presence);
                return tell(nothing.map_or_else(Report::Failed, |_| Report::Nothing));
            }
        };
        tell(Report::Ready(self.conn.capture().len() as u64));
        if orders.recv() != Ok(Order::Commit) {
            return self.back_out();
        }
        let number = self.number();
        let body = match self.publish(record) {
            Ok(body) => body,
            Err(e) => {
                let error = self.sql_error(&e);
                self.back_out();
                return tell(Report::Failed(error));
            }
        };
        let (reservation, fragments) = (self.reserved.take(), self.ahead.take().map(|ahead| ahead.txn.0));
        let time_us = started.elapsed().as_micros() as u64;
        tell(Report::Published(Published { number, body, reservation, fragments, time_us, presence }));
        if orders.recv() != Ok(Order::GoOn) {
            self.break_off("a transaction over several databases was published and could not be logged".into());
        }
    }

    fn get_ready(&mut self, images: Option<Vec<u8>>, presence: Option<&Presence>) -> SqlResult<Option<BatchBuilder>> {
        if let Some(ops) = images {
            self.begin()?;
            self.changes_are_of(presence.map(Presence::owner));
            self.merge_alone(&ops)?;
        }
        self.finish_alone()?;
        if self.conn.capture().ops() == 0 && self.conn.capture().unchanged() == 0 {
            return Ok(None);
        }
        let content = std::mem::take(self.conn.capture().buffer());
        self.records(&content).map(Some)
    }
}
