//! Cursors declared in SQL: DECLARE, FETCH, MOVE, CLOSE.
//!
//! A cursor's result is insensitive, so DECLARE runs the query, all of it, in whatever way a query runs at that point of
//! the session, into a [`spool`]; FETCH and MOVE only read that ([`movement`] says which rows). Nothing of the
//! transaction is held for a cursor, so WITH HOLD is a matter of keeping the spool for longer.
//!
//! | event | cursors that end |
//! |---|---|
//! | CLOSE, DISCARD ALL, end of the session | those named, or all |
//! | COMMIT | those without HOLD |
//! | ROLLBACK, failed COMMIT | those without HOLD, and those that the transaction declared |
//! | ROLLBACK TO a savepoint | those declared since |
//!
//! Failure: the query's errors come from DECLARE, where PostgreSQL has some of them come from FETCH.

mod movement;
mod spool;

use super::state::State;
use super::statement::Source;
use super::{NodeSession, shifted};
use crate::cancel::{Target, canceled, with_reason};
use crate::plan::Extra;
use holdfast_engine::Step as EngineStep;
use holdfast_sql::{Entry, FetchDirection, Kind, Scan, Translated};
use holdfast_types::{Sink, SqlError, SqlResult, SqlState, StatementDesc, Tag, Value};
use holdfast_wire::{Client, Failure, Reply};
use movement::{Movement, Span, Standing};
pub use spool::Scratch;
use spool::{Spool, SpoolWriter};
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Open cursors of one session.
const CURSORS_MAX: usize = 1_000;

/// Rows that a FETCH takes out of memory on the worker's own thread; more are taken beside it.
const ROWS_AT_ONCE_MAX: u64 = 1_000;

struct Cursor {
    desc: Arc<StatementDesc>,
    spool: Arc<Spool>,
    place: u64,
    scroll: bool,
    hold: bool,
    /// Savepoints set before it in the transaction that declared it; `None` once that is committed.
    savepoints: Option<usize>,
}

/// A session's cursors by name.
#[derive(Default)]
pub struct Cursors(HashMap<String, Cursor>);

impl Cursors {
    /// What FETCH from it returns.
    pub fn desc(&self, name: &str) -> Option<&Arc<StatementDesc>> {
        self.0.get(name).map(|c| &c.desc)
    }

    fn get(&mut self, name: &str) -> SqlResult<&mut Cursor> {
        self.0.get_mut(name).ok_or_else(|| unknown(name))
    }

    fn may_add(&self, name: &str) -> SqlResult<()> {
        if self.0.contains_key(name) {
            return Err(SqlError::new(SqlState("42P03"), format!("cursor \"{name}\" already exists")));
        }
        if self.0.len() >= CURSORS_MAX {
            let message = format!("cursors_max ({CURSORS_MAX}) reached");
            return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message).with_hint("Close some."));
        }
        Ok(())
    }

    /// CLOSE; `None` is all of them.
    pub fn close(&mut self, name: Option<&str>) -> SqlResult<()> {
        match name {
            None => self.0.clear(),
            Some(name) => _ = self.0.remove(name).ok_or_else(|| unknown(name))?,
        }
        Ok(())
    }

    /// Whether one is to outlive the open transaction.
    pub fn will_be_held(&self) -> bool {
        self.0.values().any(|c| c.hold && c.savepoints.is_some())
    }

    /// The open transaction has ended.
    pub fn end_transaction(&mut self, committed: bool) {
        self.0.retain(|_, c| c.savepoints.is_none() || (c.hold && committed));
        self.0.values_mut().for_each(|c| c.savepoints = None);
    }

    /// It went back to its savepoint number `at`, from 0.
    pub fn roll_back_to(&mut self, at: usize) {
        self.0.retain(|_, c| c.savepoints.is_none_or(|before| before <= at));
    }

    /// Its savepoint number `at` and those after it were released.
    pub fn release(&mut self, at: usize) {
        self.0.values_mut().for_each(|c| c.savepoints = c.savepoints.map(|before| before.min(at)));
    }
}

/// 34000.
fn unknown(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("cursor \"{name}\" does not exist"))
}

/// What DECLARE says beside the query.
struct Declared<'a> {
    name: &'a str,
    hold: bool,
    scroll: Option<bool>,
    /// It stands in a message with other statements, which makes that a transaction block.
    among_others: bool,
}

/// Is the query one that such a cursor may have?
fn check(declared: &Declared<'_>, query: &Translated) -> SqlResult<()> {
    if query.kind != Kind::Query {
        return Err(SqlError::unsupported("a cursor for anything but a query"));
    }
    let Some(lock) = query.row_locks.first() else { return Ok(()) };
    let refused = |form: &str, detail: &str| {
        let clause = lock.strength.words();
        Err(SqlError::unsupported(format!("{form} ... {clause}")).with_detail(detail))
    };
    if declared.hold {
        return refused("DECLARE CURSOR WITH HOLD", "Holdable cursors must be READ ONLY.");
    }
    match declared.scroll {
        Some(true) => refused("DECLARE SCROLL CURSOR", "Scrollable cursors must be READ ONLY."),
        _ => Ok(()),
    }
}

impl NodeSession {
    /// DECLARE.
    pub(super) async fn declare(
        &mut self,
        number: usize,
        source: Source<'_>,
        translated: &Translated,
        alone: bool,
    ) -> Result<(), Failure> {
        let at = |e| Failure::at(number, e);
        let Kind::DeclareCursor { name, hold, scroll, query } = &translated.kind else {
            return Err(at(SqlError::internal("not a DECLARE")));
        };
        let declared = |among_others| Declared { name, hold: *hold, scroll: *scroll, among_others };
        let no_query = || at(SqlError::internal("a cursor without its query"));
        match source {
            Source::Plan(plan, params) => {
                let query = plan.query.as_ref().ok_or_else(no_query)?;
                self.open(number, declared(false), Source::Plan(query, params)).await
            }
            Source::Piece(piece) => {
                let scan = Scan::new(query, self.served.db.dialect()).map_err(at)?;
                let inner = scan.pieces().next().ok_or_else(no_query)?;
                let before = piece.text().len() - query.len();
                let opened = self.open(number, declared(!alone), Source::Piece(inner)).await;
                opened.map_err(|f| Failure { error: shifted(f.error, piece.text(), before), ..f })
            }
        }
    }

    /// Runs the query of a new cursor.
    async fn open(&mut self, number: usize, declared: Declared<'_>, source: Source<'_>) -> Result<(), Failure> {
        let at = |e| Failure::at(number, e);
        let entry = self.entry(&source).await.map_err(at)?;
        let entry = entry.ok_or_else(|| at(SqlError::internal("a cursor without its query")))?;
        check(&declared, &entry.translated).map_err(at)?;
        let in_block = declared.among_others || matches!(&self.state, State::Block(b) if b.explicit);
        if !declared.hold && !in_block {
            let message = "DECLARE CURSOR can only be used in transaction blocks";
            return Err(at(SqlError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message)));
        }
        self.cursors.may_add(declared.name).map_err(at)?;
        let entry = self.join_transaction(&source, entry).await.map_err(at)?;
        let params = source.bind(&entry, self).map_err(at)?;
        let spool = self.spool(&entry, params).await.map_err(|f| Failure { step: f.step.map(|_| number), ..f })?;
        let cursor = Cursor {
            desc: Arc::new(StatementDesc { params: Vec::new(), columns: entry.translated.desc.columns.clone() }),
            spool: Arc::new(spool.finish().map_err(at)?),
            place: 0,
            scroll: declared.scroll.unwrap_or(entry.translated.row_locks.is_empty()),
            hold: declared.hold,
            savepoints: Some(self.state.block().map_or(0, |b| b.savepoints.len())),
        };
        self.cursors.0.insert(declared.name.to_owned(), cursor);
        Ok(())
    }

    /// Runs a query in the open transaction and keeps its rows. A failure's step is 0 or none.
    async fn spool(&mut self, entry: &Entry<Extra>, params: Vec<Value>) -> Result<SpoolWriter, Failure> {
        let at = |e| Failure::at(0, e);
        let mut writer = SpoolWriter::new(self.scratch.clone());
        if let Some(stmt) = &entry.extra {
            writer = match self.read_temporary_into(stmt, &params, writer).await.map_err(at)? {
                Ok(filled) => return Ok(filled),
                Err(unused) => unused,
            };
        }
        if let (true, Some(stmt)) = (self.is_reading(), &entry.extra) {
            self.served.db.readable().await.map_err(at)?;
            let reader = self.block_reader().map_err(at)?;
            let step = EngineStep { stmt: stmt.clone(), params };
            let (reader, outcome) = self.read_into(reader, step, writer).await;
            self.keep_reader(reader);
            return outcome.map_err(at);
        }
        let stmt = self.prepare_on_writer(entry).await.map_err(at)?;
        let executed = self.execute(EngineStep { stmt, params }, Box::new(writer)).await;
        let (result, sink) = executed.map_err(|error| Failure { step: None, error, fatal: true })?;
        result.map_err(at)?;
        let sink: Box<dyn Any> = sink;
        match sink.downcast::<SpoolWriter>() {
            Ok(writer) => Ok(*writer),
            Err(_) => Err(at(SqlError::internal("a cursor's rows came back as something else"))),
        }
    }

    /// FETCH and MOVE. `described` is what the client was told of the rows, where it has been.
    pub(super) async fn fetch(
        &mut self,
        number: usize,
        (name, direction, moves): (&str, FetchDirection, bool),
        described: Option<&StatementDesc>,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let at = |e| Failure::at(number, e);
        let cursor = self.cursors.get(name).map_err(at)?;
        let standing = Standing { place: cursor.place, rows: cursor.spool.rows(), scroll: cursor.scroll };
        let Movement { span, place } = standing.go(direction, moves).map_err(at)?;
        if moves {
            cursor.place = place;
            client.reply().complete(number, &Tag { verb: "MOVE", rows: Some(span.count) });
            return Ok(());
        }
        let types = |desc: &StatementDesc| desc.columns.iter().map(|c| c.type_oid).collect::<Vec<_>>();
        if described.is_some_and(|d| types(d) != types(&cursor.desc)) {
            let message = "cached plan must not change result type";
            return Err(at(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)));
        }
        let rows = Rows { desc: cursor.desc.clone(), spool: cursor.spool.clone(), span };
        client.reply().start_at(number);
        if rows.spool.is_in_memory() && span.count <= ROWS_AT_ONCE_MAX {
            rows.send(client.reply(), &AtomicBool::new(false)).map_err(at)?;
        } else {
            let stop = Arc::new(AtomicBool::new(false));
            let target = Target::Work(stop.clone());
            let (sent, timed_out) = self.beside(target, client, move |reply| rows.send(reply, &stop)).await?;
            sent.map_err(|e| at(with_reason(e, timed_out)))?;
        }
        self.cursors.get(name).map_err(at)?.place = place;
        Ok(())
    }
}

/// What a FETCH returns.
struct Rows {
    desc: Arc<StatementDesc>,
    spool: Arc<Spool>,
    span: Span,
}

impl Rows {
    fn send(&self, reply: &mut Reply, stop: &AtomicBool) -> SqlResult<()> {
        reply.begin(0, &self.desc);
        self.spool.read(self.span, &mut |row| match stop.load(Ordering::Relaxed) {
            true => Err(canceled(false)),
            false => reply.row(row),
        })?;
        reply.end(&Tag { verb: "FETCH", rows: Some(self.span.count) });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursors(declared: &[(&str, bool, Option<usize>)]) -> Cursors {
        let scratch = Arc::new(Scratch { dir: std::env::temp_dir(), bytes_max: 0 });
        let cursor = |(name, hold, savepoints): &(&str, bool, Option<usize>)| {
            let spool = SpoolWriter::new(scratch.clone()).finish().unwrap();
            let (hold, savepoints) = (*hold, *savepoints);
            let cursor =
                Cursor { desc: Arc::default(), spool: Arc::new(spool), place: 0, scroll: true, hold, savepoints };
            ((*name).to_owned(), cursor)
        };
        Cursors(declared.iter().map(cursor).collect())
    }

    fn names(cursors: &Cursors) -> Vec<&str> {
        let mut names: Vec<&str> = cursors.0.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    const ALL: &[(&str, bool, Option<usize>)] =
        &[("earlier", true, None), ("held", true, Some(0)), ("in_second", false, Some(2)), ("plain", false, Some(0))];

    #[test]
    fn a_transaction_takes_its_cursors_with_it() {
        let mut c = cursors(ALL);
        c.end_transaction(true);
        assert_eq!(names(&c), ["earlier", "held"]);
        c.end_transaction(false);
        assert_eq!(names(&c), ["earlier", "held"], "committed by then");
        let mut c = cursors(ALL);
        c.end_transaction(false);
        assert_eq!(names(&c), ["earlier"]);
    }

    #[test]
    fn a_savepoint_takes_the_cursors_declared_since() {
        let mut c = cursors(ALL);
        c.roll_back_to(2);
        assert_eq!(names(&c).len(), 4, "the third savepoint came after all of them");
        c.release(1);
        c.roll_back_to(1);
        assert_eq!(names(&c).len(), 4, "released into the first savepoint");
        c.roll_back_to(0);
        assert_eq!(names(&c), ["earlier", "held", "plain"]);
    }

    #[test]
    fn names_are_taken_once_and_closed_once() {
        let mut c = cursors(ALL);
        assert_eq!(c.may_add("held").unwrap_err().state().0, "42P03");
        assert_eq!(c.close(Some("held")), Ok(()));
        assert_eq!(c.close(Some("held")).unwrap_err().state().0, "34000");
        assert_eq!(c.may_add("held"), Ok(()));
        assert_eq!(c.close(None), Ok(()));
        assert!(names(&c).is_empty());
    }
}
