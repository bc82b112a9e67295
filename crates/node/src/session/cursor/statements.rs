//! DECLARE, FETCH and MOVE.

use super::movement::{CursorPosition, Movement, Span};
use super::set::Cursor;
use super::spool::{Spool, SpoolWriter};
use crate::cancel::{Target, canceled, with_reason};
use crate::plan::Extra;
use crate::session::failure::shifted;
use crate::session::node_session::NodeSession;
use crate::session::source::Source;
use crate::session::state::State;
use holdfast_engine::Step as EngineStep;
use holdfast_sql::{Entry, FetchDirection, Kind, Scan, Translated};
use holdfast_types::{Sink, SqlError, SqlResult, SqlState, StatementDesc, Tag, Value};
use holdfast_wire::{Client, Failure, Reply};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rows that a FETCH reads from memory on the worker's own thread; more are read on another thread.
const ROWS_AT_ONCE_MAX: u64 = 1_000;

/// The options of DECLARE.
struct Declared<'a> {
    name: &'a str,
    hold: bool,
    scroll: Option<bool>,
    /// The message has other statements, which makes it a transaction block.
    among_others: bool,
}

/// Whether a cursor with these options may have this query.
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
    /// Runs DECLARE.
    pub(in crate::session) async fn declare(
        &mut self,
        number: usize,
        source: Source<'_>,
        translated: &Translated,
        is_sole: bool,
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
            Source::Piece(piece, _) => {
                let scan = Scan::new(query, self.served.db.dialect()).map_err(at)?;
                let inner = scan.pieces().next().ok_or_else(no_query)?;
                let before = piece.text().len() - query.len();
                let opened = self.open(number, declared(!is_sole), Source::Piece(inner, None)).await;
                opened.map_err(|f| Failure { error: shifted(f.error, piece.text(), before), ..f })
            }
        }
    }

    /// Runs the query of a new cursor and adds the cursor.
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
        let params = source.bind(&entry, &self.values()).map_err(at)?;
        let spool =
            self.spool_apart(&entry, params).await.map_err(|f| Failure { step: f.step.map(|_| number), ..f })?;
        let cursor = Cursor {
            desc: Arc::new(StatementDesc {
                params: Vec::new(),
                columns: entry.translated.desc.columns.clone(),
                empty_rows: entry.translated.desc.empty_rows,
            }),
            spool: Arc::new(spool.finish().map_err(at)?),
            place: 0,
            scroll: declared.scroll.unwrap_or(entry.translated.row_locks.is_empty()),
            hold: declared.hold,
            savepoints: Some(self.state.block().map_or(0, |b| b.savepoints.len())),
        };
        self.cursors.0.insert(declared.name.to_owned(), cursor);
        Ok(())
    }

    /// [`NodeSession::spool`] with parameters of the query's own. What it sets is refused: the rows are made now and read later.
    async fn spool_apart(&mut self, entry: &Entry<Extra>, params: Vec<Value>) -> Result<SpoolWriter, Failure> {
        let own = self.settings_for(entry);
        let outer = std::mem::replace(&mut self.statement_settings, own);
        let spooled = self.spool(entry, params).await;
        self.statement_settings = outer;
        spooled
    }

    /// Runs a query in the open transaction into a spool. A failure's step is 0 or none.
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

    /// Runs FETCH and MOVE. `described`: the columns as they were described to the client, if they were.
    pub(in crate::session) async fn fetch(
        &mut self,
        number: usize,
        (name, direction, moves): (&str, FetchDirection, bool),
        described: Option<&StatementDesc>,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let at = |e| Failure::at(number, e);
        let cursor = self.cursors.get(name).map_err(at)?;
        let position = CursorPosition { place: cursor.place, rows: cursor.spool.rows(), scroll: cursor.scroll };
        let Movement { span, place } = position.go(direction, moves).map_err(at)?;
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
            let (sent, timed_out) = self.on_thread(target, client, move |reply| rows.send(reply, &stop)).await?;
            sent.map_err(|e| at(with_reason(e, timed_out)))?;
        }
        self.cursors.get(name).map_err(at)?.place = place;
        Ok(())
    }
}

/// The rows that a FETCH returns.
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
