//! The fast path: statements that are all known before the first one runs are submitted as a whole, as a transaction of their own or
//! as part of the session's automatic transaction. A single statement is the commonest case.
//!
//! What does not go this way runs one by one, with what was resolved.
//!
//! Failure: where another session changes the schema meanwhile, nothing was changed or sent, and the statements are resolved again.

use super::long_text::is_long;
use super::node_session::NodeSession;
use super::source::{Known, Source};
use super::state::{Block, Left, Phase, State};
use crate::plan::Extra;
use holdfast_engine::Step as EngineStep;
use holdfast_sql::{Entry, Isolation, Kind, Scan, TransactionModes, Translated};
use holdfast_types::{SqlError, Tag};
use holdfast_wire::{Client, Failure};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Outcome = Result<(), Failure>;

/// A statement that is about to run: where it comes from, and its translation.
pub(super) type Resolved<'a> = (Source<'a>, Arc<Entry<Extra>>);

/// Why statements did not run as a whole. They have changed and sent nothing.
pub(super) enum Missed {
    /// They have to run one by one.
    Unfit,
    /// Another session has changed the schema since they were translated.
    Outdated,
}

/// Whether the statement's whole effect is one prepared SQLite statement. What a statement sets and its notices come between those of
/// others.
fn is_plain(entry: &Entry<Extra>, is_sole: bool) -> bool {
    let translated = &entry.translated;
    entry.extra.as_ref().is_some_and(|stmt| stmt.temp.is_none())
        && translated.temp.is_none()
        && !translated.temporary
        && (is_sole || (translated.notices.is_empty() && !translated.settings))
        && matches!(translated.kind, Kind::Query | Kind::Insert | Kind::Update | Kind::Delete)
}

fn reads(entry: &Entry<Extra>) -> bool {
    entry.extra.as_ref().is_some_and(|s| s.class.is_read())
}

/// Sends the notices of statement `number`.
pub(super) fn give_notices(number: usize, translated: &Translated, client: &mut Client) {
    if translated.notices.is_empty() {
        return;
    }
    client.reply().script_until(number);
    for notice in &translated.notices {
        client.reply().notice(notice.severity, &SqlError::new(notice.state, notice.message.as_str()));
    }
}

/// Which of the statements are the transaction's body: all of them, or those between BEGIN and COMMIT. `None`: the message
/// does not qualify.
///
/// A message that changes something qualifies only at READ COMMITTED: where it meets a lock, the engine continues it as such a
/// transaction. For a single statement that makes no difference up to REPEATABLE READ.
fn body(statements: &[Resolved<'_>], default: Isolation) -> Option<Range<usize>> {
    let kind = |i: usize| &statements[i].1.translated.kind;
    let count = statements.len();
    let begun = match kind(0) {
        Kind::Begin(TransactionModes { read_only: None | Some(false), isolation, .. }) => {
            Some(isolation.unwrap_or(default))
        }
        _ => None,
    };
    let wrapped = count > 2 && begun.is_some() && matches!(kind(count - 1), Kind::Commit { chain: false });
    let body = if wrapped { 1..count - 1 } else { 0..count };
    let fits = match begun.unwrap_or(default) {
        Isolation::ReadCommitted | Isolation::ReadUncommitted => true,
        Isolation::RepeatableRead => count == 1,
        Isolation::Serializable => false,
    };
    let mut of_body = statements[body.clone()].iter();
    of_body.all(|(_, entry)| is_plain(entry, count == 1) && (fits || reads(entry))).then_some(body)
}

impl NodeSession {
    /// Translates the statements of a simple message in order, up to the first that cannot be translated yet: that one may need what
    /// an earlier one creates.
    pub(super) async fn known_of(&self, scan: &Scan<'_>) -> Vec<Known> {
        if !self.state.is_idle() || self.default_read_only() || self.temporary.any() || scan.pieces().len() < 2 {
            return Vec::new();
        }
        let schema = self.served.db.schema();
        let entries = match is_long(scan.text()) {
            true => self.resolve_elsewhere(scan.text(), &schema, &[]).await.unwrap_or_default(),
            false => {
                let resolve = |piece| self.served.resolve(&piece, &schema, &[], &self.identity.user).ok();
                scan.pieces().map_while(resolve).collect()
            }
        };
        entries.into_iter().map(|entry| Known { schema: schema.clone(), entry }).collect()
    }

    /// Runs the several statements of a message, up to its end or Sync, as a whole; `None` when they have to run one by one.
    pub(super) async fn try_several<'a>(&mut self, sources: &[Source<'a>], client: &mut Client) -> Option<Outcome> {
        if sources.len() < 2 || !self.state.is_idle() {
            return None;
        }
        let schema = self.schema();
        let known = |source: &Source<'a>| Some((*source, source.known_under(&schema)?.clone()));
        let statements: Vec<Resolved<'a>> = sources.iter().map_while(known).collect();
        // What is refused or has to wait is reported statement by statement.
        let refused =
            |entry: &Entry<Extra>| self.must_wait_for_schema(entry) || self.check_access(entry, &schema).is_err();
        if statements.len() < sources.len() || statements.iter().any(|(_, entry)| refused(entry)) {
            return None;
        }
        let begun = Instant::now();
        let outcome = self.try_whole(0, &statements, client).await.ok()?;
        let begins = matches!(statements[0].1.translated.kind, Kind::Begin(_));
        for (i, (source, entry)) in statements.iter().enumerate() {
            let commit = if begins && i > 0 { begun.elapsed() } else { Duration::ZERO };
            self.count_statement(i, entry, source.text(), commit, client);
        }
        Some(outcome)
    }

    /// Runs the statements as a whole, whose results count from `first`. They were resolved under the schema in force, and are
    /// allowed. The one fast path.
    pub(super) async fn try_whole(
        &mut self,
        first: usize,
        statements: &[Resolved<'_>],
        client: &mut Client,
    ) -> Result<Outcome, Missed> {
        if !self.state.is_idle() || self.default_read_only() {
            return Err(Missed::Unfit);
        }
        let body = body(statements, self.default_isolation()).ok_or(Missed::Unfit)?;
        let wrapped = body.len() < statements.len();
        let reads = statements[body.clone()].iter().all(|(_, entry)| reads(entry));
        if !wrapped && !reads && self.requires_block() {
            return Err(Missed::Unfit);
        }
        let mut steps = Vec::with_capacity(body.len());
        for (i, (source, entry)) in statements.iter().enumerate().take(body.end).skip(body.start) {
            let Some(stmt) = entry.extra.clone() else { return Err(Missed::Unfit) };
            match source.bind(entry, &self.values()) {
                Ok(params) => steps.push(EngineStep { stmt, params }),
                // A value that does not convert fails when its statement runs, after the statements before it.
                Err(_) if i > 0 => return Err(Missed::Unfit),
                Err(error) => return Ok(Err(Failure::at(first, error))),
            }
        }
        let (at, end) = (first + body.start, first + body.end);
        // A message of reads may have sent results of its first statements, and an automatic transaction keeps their effects.
        let is_one = (wrapped || !self.wants_automatic()) && !reads;
        let (entry, position) = (&statements[0].1, client.reply().position());
        give_notices(first, &entry.translated, client);
        let outcome = match wrapped {
            false => self.run_plain(at, steps, client).await,
            true => {
                if let Err(e) = self.end_automatic_unless(false).await {
                    return Ok(Err(Failure::at(first, e)));
                }
                client.reply().complete(first, &Tag { verb: entry.translated.verb, rows: None });
                self.run_own(at, steps, client).await
            }
        };
        match &outcome {
            Err(e) if (is_one || e.step == Some(at)) && self.is_outdated(&e.error, entry.epoch()) => {
                client.reply().back_to(position);
                return Err(Missed::Outdated);
            }
            Ok(()) if wrapped => client.reply().complete(end, &Tag { verb: "COMMIT", rows: None }),
            // The client's COMMIT was not reached: the transaction that it began is open and has failed.
            Err(_) if wrapped => {
                let mut block = Block::new(true, self.default_isolation(), false);
                block.phase = Phase::Failed(Left::Nothing);
                self.state = State::Block(Box::new(block));
            }
            _ => {}
        }
        Ok(outcome)
    }
}
