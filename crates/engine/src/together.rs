//! One commit for a transaction that has changed several databases (RULE 31).
//!
//! Their MAINs are stopped one after the other, in the order of their volumes' numbers, so that two such commits never
//! wait for each other. Each makes every check a commit makes. When all are ready all publish, and one append takes the
//! records of all: it is in the trail whole or not at all, whatever happens.
//!
//! Failure: as long as nothing is published all of them are backed out, and the transaction is told why. One that
//! published what the others could not, or what the trail did not take, ends the server: nothing of it is in the trail,
//! and nobody was answered.

use crate::batch::{BatchDone, OnDone, Ticket};
use crate::database::Inner;
use crate::main_thread::{Order, Part, Published, Report};
use crate::write_txn::WriteTxn;
use crossbeam_channel::{Receiver, Sender, unbounded};
use holdfast_trail::Span;
use holdfast_types::{Level, Sink, SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// A MAIN that takes part, seen from here.
struct Seat {
    inner: Arc<Inner>,
    orders: Sender<Order>,
    reports: Receiver<Report>,
    bytes: u64,
}

/// A part played so far that others see it.
struct Out {
    seat: Seat,
    published: Published,
}

/// Commits transactions of several databases of one engine as one. The ticket says when all of it is durable, or why
/// none of it was committed. At most one transaction a database.
pub fn commit_together(txns: Vec<WriteTxn>, sink: Box<dyn Sink>) -> SqlResult<Ticket> {
    let (done, ticket) = Ticket::new();
    let (mut changing, mut locking) = (Vec::new(), Vec::new());
    for mut txn in txns {
        if txn.changes() {
            changing.push(txn);
        } else {
            // What it has locked may guard what the others change.
            locking.extend(txn.into_locks());
        }
    }
    let done: OnDone = Box::new(move |result| {
        drop(locking);
        done(result);
    });
    changing.sort_by_key(|txn| txn.inner().id);
    let same = |pair: &[WriteTxn]| pair[0].inner().id == pair[1].inner().id;
    if changing.windows(2).any(same) {
        return Err(SqlError::internal("two transactions of one database cannot be committed together"));
    }
    match changing.len() {
        0 => done(BatchDone { sink, result: Ok(()), failed_step: 0, last_insert_rowid: None, number: 0 }),
        1 => changing.remove(0).commit_with(sink, done)?,
        _ => {
            let shared = changing[0].inner().shared.clone();
            // The task's end is told by `done`.
            drop(shared.tasks.spawn_blocking(move || coordinate(changing, sink, done)));
        }
    }
    Ok(ticket)
}

fn coordinate(txns: Vec<WriteTxn>, sink: Box<dyn Sink>, done: OnDone) {
    let level = txns.iter().map(WriteTxn::level).max().unwrap_or_default();
    let mut seats = Vec::new();
    for txn in txns {
        match take_seat(txn) {
            Ok(Some(seat)) => seats.push(seat),
            Ok(None) => {}
            // Dropping the seats tells the others to give up.
            Err(e) => {
                drop(seats);
                return done(BatchDone::failed(sink, e, 0));
            }
        }
    }
    if let Err(e) = fits(&seats) {
        drop(seats);
        return done(BatchDone::failed(sink, e, 0));
    }
    match publish(seats) {
        Ok(out) => log(out, level, sink, done),
        Err(e) => done(BatchDone::failed(sink, e, 0)),
    }
}

/// Stops the transaction's MAIN with every check made; `None` where there is nothing to commit.
fn take_seat(txn: WriteTxn) -> SqlResult<Option<Seat>> {
    let (inner, name) = (txn.inner().clone(), txn.inner().name.clone());
    let (orders, told) = unbounded();
    let (tells, reports) = unbounded();
    txn.take_part(Part { images: None, presence: None, orders: told, reports: tells })?;
    match reports.recv() {
        Ok(Report::Ready(bytes)) => Ok(Some(Seat { inner, orders, reports, bytes })),
        Ok(Report::Nothing) => Ok(None),
        Ok(Report::Failed(e)) => Err(e),
        Ok(Report::Published(_)) | Err(_) => Err(crate::database::closed(&name)),
    }
}

fn fits(seats: &[Seat]) -> SqlResult<()> {
    let Some(seat) = seats.first() else { return Ok(()) };
    let (bytes, bytes_max) = (seats.iter().map(|s| s.bytes).sum::<u64>(), seat.inner.shared.trail.body_bytes_max());
    if bytes <= bytes_max {
        return Ok(());
    }
    let message = format!("the transaction's records take {bytes} bytes over all databases, more than {bytes_max}");
    Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).with_hint("Change less in one transaction."))
}

/// Lets all of them publish. An error means that none has.
fn publish(seats: Vec<Seat>) -> SqlResult<Vec<Out>> {
    let mut out: Vec<Out> = Vec::new();
    for seat in seats {
        let ordered = seat.orders.send(Order::Commit).is_ok();
        let report = if ordered { seat.reports.recv().ok() } else { None };
        let error = match report {
            Some(Report::Published(published)) => {
                out.push(Out { seat, published });
                continue;
            }
            Some(Report::Failed(e)) => e,
            _ => crate::database::closed(&seat.inner.name),
        };
        if !out.is_empty() {
            let why = format!("a transaction over several databases was published in part: {error}");
            seat.inner.shared.fail(&why);
        }
        return Err(error);
    }
    Ok(out)
}

/// Appends the records of all in one piece; the answer leaves when they are durable and have reached the level.
fn log(out: Vec<Out>, level: Level, sink: Box<dyn Sink>, done: OnDone) {
    let mut body = Vec::new();
    let mut room = None;
    let mut later: Vec<(Seat, Published, u64)> = Vec::new();
    for Out { seat, mut published } in out {
        let bytes = published.body.len() as u64;
        body.append(&mut published.body);
        match (&mut room, published.reservation.take()) {
            (None, reservation) => room = reservation,
            (Some(room), Some(reservation)) => room.join(reservation),
            (Some(_), None) => {}
        }
        later.push((seat, published, bytes));
    }
    let Some(shared) = later.first().map(|(seat, ..)| seat.inner.shared.clone()) else {
        return done(BatchDone { sink, result: Ok(()), failed_step: 0, last_insert_rowid: None, number: 0 });
    };
    let orders: Vec<Sender<Order>> = later.iter().map(|(seat, ..)| seat.orders.clone()).collect();
    let gate = shared.clone();
    let on_durable = Box::new(move |span: Span| {
        for (Seat { inner, .. }, p, bytes) in &later {
            inner.redo.add_after_fragments(p.number, p.fragments, span.start, p.time_us, *bytes);
        }
        gate.redo.tell(span.start);
        gate.pass(span.end, level, move || {
            // All of it becomes visible before anybody who waited for a part of it goes on.
            later.iter().for_each(|(Seat { inner, .. }, p, _)| inner.volume().store().set_durable(p.number));
            later.iter_mut().for_each(|(_, p, _)| p.presence = None);
            later.iter().for_each(|(Seat { inner, .. }, p, _)| inner.durable_reached(p.number));
            done(BatchDone { sink, result: Ok(()), failed_step: 0, last_insert_rowid: None, number: 0 });
        });
    });
    shared.stats.boxcar(1);
    let appended = match room {
        Some(reservation) => shared.trail.append(reservation, body, on_durable),
        None => shared.trail.append_kept(body, on_durable),
    };
    match appended {
        // A MAIN that is gone does not want to know.
        Ok(()) => orders.iter().for_each(|o| o.send(Order::GoOn).unwrap_or_default()),
        Err(e) => shared.fail(&format!("a published boxcar cannot be logged: {e}")),
    }
}
