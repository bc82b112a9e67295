//! One commit for a transaction that has changed several databases (RULE 31).
//!
//! Their writers are stopped one after the other, in the order of their volumes' numbers, so that two such commits
//! never wait for each other. Each writer makes every check of a commit. When all are ready all publish, and one append
//! takes the records of all: it is in the trail whole or not at all.
//!
//! Changes of roles that belong to the transaction are in the same append. They are checked when all writers are stopped
//! and the list of databases can no longer change, and made when they have passed the gate, like the data.
//!
//! Failure: as long as nothing is published all of them are backed out, and the client gets the reason. One that
//! published what the others could not, or what the trail did not take, ends the server: nothing of it is in the trail,
//! and no client was answered.

use crate::route::transaction::WriteTxn;
use crate::state::database::{DatabaseState, closed};
use crate::state::engine::EngineState;
use crate::state::queue::{Command, Participant, Published, Vote};
use crate::state::role_changes::CheckedChanges;
use crate::state::submission::{Completion, OnCompletion, Ticket};
use crossbeam_channel::{Receiver, Sender, unbounded};
use holdfast_trail::{Reservation, Span};
use holdfast_types::access::RoleChanges;
use holdfast_types::{Level, Sink, SqlError, SqlResult, SqlState};
use std::sync::Arc;

/// A writer that participates, seen from the coordinator.
struct Joined {
    database: Arc<DatabaseState>,
    commands: Sender<Command>,
    votes: Receiver<Vote>,
    bytes: u64,
}

/// A participant that has published.
struct Out {
    one: Joined,
    published: Published,
}

/// Commits transactions of several databases of one engine as one. The ticket reports when all of it is durable, or why
/// none of it was committed. At most one transaction of each database.
pub fn multi_database_commit(txns: Vec<WriteTxn>, sink: Box<dyn Sink>) -> SqlResult<Ticket> {
    commit_with_roles(txns, RoleChanges::default(), sink)
}

/// Commits transactions of one or several databases and changes of roles as one. There must be a transaction.
pub fn commit_with_roles(txns: Vec<WriteTxn>, changes: RoleChanges, sink: Box<dyn Sink>) -> SqlResult<Ticket> {
    let Some(engine) = txns.first().map(|txn| txn.state().engine.clone()) else {
        return Err(SqlError::internal("there is no transaction to commit with the roles"));
    };
    // Not only of those that change something: it is what the session has asked for.
    let level = txns.iter().map(WriteTxn::level).max().unwrap_or_default();
    let (done, ticket) = Ticket::new();
    let (mut changing, mut locking) = (Vec::new(), Vec::new());
    for mut txn in txns {
        if txn.changes() {
            changing.push(txn);
        } else {
            // What it has locked may protect what the others change.
            locking.extend(txn.into_locks());
        }
    }
    let done: OnCompletion = Box::new(move |result| {
        drop(locking);
        done(result);
    });
    changing.sort_by_key(|txn| txn.state().id);
    let same = |pair: &[WriteTxn]| pair[0].state().id == pair[1].state().id;
    if changing.windows(2).any(same) {
        return Err(SqlError::internal("two transactions of one database cannot be committed together"));
    }
    match (changing.len(), changes.is_empty()) {
        (0, true) => done(completed(sink)),
        (1, true) => changing.remove(0).commit_with(sink, done)?,
        _ => {
            let of = engine.clone();
            // `done` reports the task's end.
            drop(engine.tasks.spawn_blocking(move || coordinate(&of, changing, (changes, level), sink, done)));
        }
    }
    Ok(ticket)
}

fn completed(sink: Box<dyn Sink>) -> Completion {
    Completion { sink, result: Ok(()), failed_step: 0, last_insert_rowid: None, number: 0 }
}

/// Changes of roles that can be made, and space for their records.
struct Roles {
    checked: CheckedChanges,
    body: Vec<u8>,
    room: Reservation,
}

fn coordinate(
    engine: &Arc<EngineState>,
    txns: Vec<WriteTxn>,
    (changes, level): (RoleChanges, Level),
    sink: Box<dyn Sink>,
    done: OnCompletion,
) {
    let mut joined = Vec::new();
    for txn in txns {
        match join(txn) {
            Ok(Some(one)) => joined.push(one),
            Ok(None) => {}
            // Dropping the seats makes the others give up.
            Err(e) => {
                drop(joined);
                return done(Completion::failed(sink, e, 0));
            }
        }
    }
    // A thread that holds it waits for no writer; from here to the end the list of databases changes only here.
    let listing = (!changes.is_empty()).then(|| engine.cataloguing.lock());
    let roles = if listing.is_some() { check(engine, changes).map(Some) } else { Ok(None) };
    let checked = roles.and_then(|roles| {
        fits(&joined, roles.as_ref().map_or(0, |roles| roles.body.len() as u64))?;
        Ok(roles)
    });
    let roles = match checked {
        Ok(roles) => roles,
        Err(e) => {
            drop(joined);
            return done(Completion::failed(sink, e, 0));
        }
    };
    let out = match publish(joined) {
        Ok(out) => out,
        Err(e) => return done(Completion::failed(sink, e, 0)),
    };
    let Some(roles) = roles else { return log(engine, out, None, level, move || done(completed(sink))) };
    let change = engine.visible.change({
        let checked = roles.checked.clone();
        move |manifest| checked.apply(manifest)
    });
    let (passes, passed) = crossbeam_channel::bounded(1);
    let (durable, is_durable) = crossbeam_channel::bounded(1);
    let checked = roles.checked.clone();
    let of = change.clone();
    let then = move || {
        of.has_passed();
        passes.send(()).unwrap_or_default();
    };
    log(engine, out, Some((roles, durable)), level, then);
    // Without an answer the server is stopping, and the client learns that its outcome is unknown.
    if is_durable.recv().is_err() {
        return;
    }
    if let Err(e) = engine.change_list(|manifest| checked.apply(manifest)) {
        return engine.fail(&format!("changed roles cannot be listed: {e}"));
    }
    change.is_listed();
    drop(listing);
    if passed.recv().is_ok() {
        done(completed(sink));
    }
}

/// Checks changes of roles against the list of databases, and reserves space for them.
fn check(engine: &EngineState, changes: RoleChanges) -> SqlResult<Roles> {
    let checked = engine.catalog.lock().manifest.check_changes(changes)?;
    let body = checked.body();
    let room = engine.trail.reserve(body.len() as u64);
    let room = room.map_err(|e| SqlError::new(SqlState::DISK_FULL, e.to_string()))?;
    Ok(Roles { checked, body, room })
}

/// Stops the transaction's writer with every check made; `None` if there is nothing to commit.
fn join(txn: WriteTxn) -> SqlResult<Option<Joined>> {
    let (database, name) = (txn.state().clone(), txn.state().name.clone());
    let (commands, orders) = unbounded();
    let (cast, votes) = unbounded();
    txn.participate(Participant { images: None, lock_owner: None, author: None, commands: orders, votes: cast })?;
    match votes.recv() {
        Ok(Vote::Ready(bytes)) => Ok(Some(Joined { database, commands, votes, bytes })),
        Ok(Vote::Nothing) => Ok(None),
        Ok(Vote::Failed(e)) => Err(e),
        Ok(Vote::Published(_)) | Err(_) => Err(closed(&name)),
    }
}

fn fits(joined: &[Joined], of_roles: u64) -> SqlResult<()> {
    let Some(one) = joined.first() else { return Ok(()) };
    let (bytes, bytes_max) =
        (joined.iter().map(|s| s.bytes).sum::<u64>() + of_roles, one.database.engine.trail.body_bytes_max());
    if bytes <= bytes_max {
        return Ok(());
    }
    let message = format!("the transaction's records take {bytes} bytes over all databases; the limit is {bytes_max}");
    Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).with_hint("Change less in one transaction."))
}

/// Lets all of them publish. An error means that none has.
fn publish(joined: Vec<Joined>) -> SqlResult<Vec<Out>> {
    let mut out: Vec<Out> = Vec::new();
    // Read when all writers are stopped, so that it goes back in none of them. All records of the commit have it: a restore
    // that ends inside a boxcar takes all of them or none.
    let Some(clock) = joined.first().map(|one| one.database.engine.now()) else { return Ok(out) };
    for one in joined {
        let ordered = one.commands.send(Command::Commit(clock)).is_ok();
        let report = if ordered { one.votes.recv().ok() } else { None };
        let error = match report {
            Some(Vote::Published(published)) => {
                out.push(Out { one, published });
                continue;
            }
            Some(Vote::Failed(e)) => e,
            _ => closed(&one.database.name),
        };
        if !out.is_empty() {
            let why = format!("a transaction over several databases was published in part: {error}");
            one.database.engine.fail(&why);
        }
        return Err(error);
    }
    Ok(out)
}

/// Appends the records of all in one piece; `then` runs when they are durable and have reached the level.
fn log(
    engine: &Arc<EngineState>,
    out: Vec<Out>,
    roles: Option<(Roles, Sender<()>)>,
    level: Level,
    then: impl FnOnce() + Send + 'static,
) {
    let mut body = Vec::new();
    let mut room = None;
    let mut later: Vec<(Joined, Published, u64)> = Vec::new();
    for Out { one, mut published } in out {
        let bytes = published.body.len() as u64;
        body.append(&mut published.body);
        match (&mut room, published.reservation.take()) {
            (None, reservation) => room = reservation,
            (Some(room), Some(reservation)) => room.join(reservation),
            (Some(_), None) => {}
        }
        later.push((one, published, bytes));
    }
    let mut durable = None;
    if let Some((Roles { body: mut records, room: reservation, .. }, tell)) = roles {
        body.append(&mut records);
        durable = Some(tell);
        match &mut room {
            Some(room) => room.join(reservation),
            None => room = Some(reservation),
        }
    }
    if body.is_empty() {
        return then();
    }
    let commands: Vec<Sender<Command>> = later.iter().map(|(one, ..)| one.commands.clone()).collect();
    let gate = engine.clone();
    let on_durable = Box::new(move |span: Span| {
        for (Joined { database, .. }, p, bytes) in &later {
            database.redo.add_after_fragments(p.number, p.fragments, span.start, p.time_us, *bytes);
        }
        durable.iter().for_each(|tell| tell.send(()).unwrap_or_default());
        gate.redo.appended(span.start);
        let shown_by = gate.clone();
        gate.pass(span.end, level, move || {
            // All of it becomes visible before any session that waited for a part of it continues.
            shown_by.show(span.end, || {
                later.iter().for_each(|(Joined { database, .. }, p, _)| database.show_readers(p.number));
            });
            later.iter_mut().for_each(|(_, p, _)| p.lock_owner = None);
            later.iter().for_each(|(Joined { database, .. }, p, _)| database.now_visible(p.number));
            then();
        });
    });
    engine.stats.batch(1);
    let appended = match room {
        Some(reservation) => engine.trail.append(reservation, body, on_durable),
        None => engine.trail.append_kept(body, on_durable),
    };
    match appended {
        // A writer that has ended needs no command.
        Ok(()) => commands.iter().for_each(|o| o.send(Command::Continue).unwrap_or_default()),
        Err(e) => engine.fail(&format!("a published batch cannot be logged: {e}")),
    }
}
