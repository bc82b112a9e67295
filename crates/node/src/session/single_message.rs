//! One-message transactions: all statements are known before the first one runs, so they are submitted as a whole.

use super::long_text::is_long;
use super::node_session::NodeSession;
use super::state::{Block, Left, Phase, State};
use crate::plan::{Extra, Plan};
use holdfast_engine::Step as EngineStep;
use holdfast_sql::{Entry, Isolation, Kind, Scan, TransactionModes};
use holdfast_types::{SqlResult, Tag};
use holdfast_wire::{Client, Failure, Step};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

type Outcome = Result<(), Failure>;

/// Whether the statement's whole effect is one prepared SQLite statement.
fn is_plain(entry: &Entry<Extra>) -> bool {
    entry.extra.as_ref().is_some_and(|stmt| stmt.temp.is_none())
        && entry.translated.notices.is_empty()
        && !entry.translated.settings
        && matches!(entry.translated.kind, Kind::Query | Kind::Insert | Kind::Update | Kind::Delete)
}

/// Which of the statements are the transaction's body: all of them, or those between BEGIN and COMMIT. `None`: the message
/// does not qualify.
///
/// A message that changes something qualifies only at READ COMMITTED: where it meets a lock, the engine continues it as such a
/// transaction.
fn body<'e>(count: usize, default: Isolation, entry: impl Fn(usize) -> &'e Entry<Extra>) -> Option<Range<usize>> {
    let is_committed = |level| matches!(level, Isolation::ReadCommitted | Isolation::ReadUncommitted);
    let begins = |kind: &Kind| match kind {
        Kind::Begin(TransactionModes { read_only: None | Some(false), isolation, .. }) => {
            Some(isolation.unwrap_or(default))
        }
        _ => None,
    };
    let begun = if count == 0 { None } else { begins(&entry(0).translated.kind) };
    let wrapped =
        count > 2 && begun.is_some() && matches!(entry(count - 1).translated.kind, Kind::Commit { chain: false });
    let body = if wrapped { 1..count - 1 } else { 0..count };
    let reads = |i| entry(i).extra.as_ref().is_some_and(|s| s.class.is_read());
    if !is_committed(begun.unwrap_or(default)) && !body.clone().all(reads) {
        return None;
    }
    (!body.is_empty() && body.clone().all(|i| is_plain(entry(i)))).then_some(body)
}

impl NodeSession {
    /// Runs a pipeline up to its Sync as a whole; `None` when it has to be run statement by statement.
    pub(super) async fn try_pipeline(
        &mut self,
        steps: &mut Vec<Step<Arc<Plan>>>,
        client: &mut Client,
    ) -> Option<Outcome> {
        let schema = self.schema();
        let fresh = |s: &Step<Arc<Plan>>| Arc::ptr_eq(&s.prepared.schema, &schema) && s.prepared.entry.is_some();
        if self.default_read_only() || !steps.iter().all(fresh) {
            return None;
        }
        fn entry(step: &Step<Arc<Plan>>) -> &Entry<Extra> {
            step.prepared.entry.as_deref().expect("all have one, checked above")
        }
        let body = body(steps.len(), self.default_isolation(), |i| entry(&steps[i]))?;
        if steps.iter().any(|s| self.must_wait_for_schema(entry(s))) {
            return None;
        }
        if body.len() == steps.len() && self.requires_block() {
            return None;
        }
        // What is refused is reported statement by statement.
        if steps.iter().any(|s| self.check_access(entry(s), &schema).is_err()) {
            return None;
        }
        let verb = entry(&steps[0]).translated.verb;
        let mut bound = Vec::with_capacity(body.len());
        for step in &steps[body.clone()] {
            // A value that does not convert fails when its statement runs, after the statements before it.
            let params = step.prepared.bind(entry(step), &step.params, &self.values()).ok()?;
            bound.push(EngineStep { stmt: entry(step).extra.clone()?, params });
        }
        let wrapped = body.len() < steps.len();
        let begun = Instant::now();
        let outcome = self.run_single_message(bound, wrapped, verb, schema.epoch, client).await?;
        for (i, step) in steps.iter().enumerate() {
            let commit = if wrapped && i > 0 { begun.elapsed() } else { Duration::ZERO };
            self.count_statement(i, entry(step), &step.prepared.text, commit, client);
        }
        steps.clear();
        Some(outcome)
    }

    /// Runs a simple message as a whole; `None` when it has to be run statement by statement.
    pub(super) async fn try_message(&mut self, scan: &Scan<'_>, client: &mut Client) -> Option<Outcome> {
        if self.default_read_only() || self.temporary.any() {
            return None;
        }
        let schema = self.served.db.schema();
        let resolve = |piece| self.served.resolve(&piece, &schema, &[], &self.identity.user);
        // A statement that cannot be resolved yet may need what an earlier one creates.
        let entries = match is_long(scan.text()) {
            true => self.resolve_elsewhere(scan.text(), &schema, &[]).await.ok()?,
            false => scan.pieces().map(resolve).collect::<SqlResult<Vec<Arc<Entry<Extra>>>>>().ok()?,
        };
        let body = body(entries.len(), self.default_isolation(), |i| &entries[i])?;
        if entries.iter().any(|e| self.must_wait_for_schema(e)) {
            return None;
        }
        if body.len() == entries.len() && self.requires_block() {
            return None;
        }
        if entries.iter().any(|e| self.check_access(e, &schema).is_err()) {
            return None;
        }
        let mut bound = Vec::with_capacity(body.len());
        for (piece, entry) in scan.pieces().zip(&entries).take(body.end).skip(body.start) {
            let params = entry.translated.bind(&piece.literals(), &[], &self.values()).ok()?;
            bound.push(EngineStep { stmt: entry.extra.clone()?, params });
        }
        let wrapped = body.len() < entries.len();
        let begun = Instant::now();
        let outcome = self.run_single_message(bound, wrapped, entries[0].translated.verb, schema.epoch, client).await?;
        for (i, (piece, entry)) in scan.pieces().zip(&entries).enumerate() {
            let commit = if wrapped && i > 0 { begun.elapsed() } else { Duration::ZERO };
            self.count_statement(i, entry, piece.text(), commit, client);
        }
        Some(outcome)
    }

    /// Submits the steps. `None` when another session has changed the schema since they were translated under that of `epoch`:
    /// nothing was changed or sent then, and they have to be translated again, statement by statement.
    async fn run_single_message(
        &mut self,
        steps: Vec<EngineStep>,
        wrapped: bool,
        begin_verb: &'static str,
        epoch: u32,
        client: &mut Client,
    ) -> Option<Outcome> {
        let (first, end) = (usize::from(wrapped), usize::from(wrapped) + steps.len());
        // A message of reads may have sent results of its first statements, and an automatic transaction keeps their effects.
        let is_one = (wrapped || !self.wants_automatic()) && !steps.iter().all(|s| s.stmt.class.is_read());
        let position = client.reply().position();
        if wrapped {
            if let Err(e) = self.end_automatic_unless(false).await {
                return Some(Err(Failure::at(0, e)));
            }
            client.reply().complete(0, &Tag { verb: begin_verb, rows: None });
        }
        let outcome = match wrapped {
            true => self.run_own(first, steps, client).await,
            false => self.run_plain(first, steps, client).await,
        };
        if let Err(e) = &outcome
            && (is_one || e.step == Some(first))
            && self.is_outdated(&e.error, epoch)
        {
            client.reply().back_to(position);
            return None;
        }
        if wrapped {
            match &outcome {
                Ok(()) => client.reply().complete(end, &Tag { verb: "COMMIT", rows: None }),
                // The client's COMMIT was not reached: the transaction that it began is open and has failed.
                Err(_) => {
                    let mut block = Block::new(true, self.default_isolation(), false);
                    block.phase = Phase::Failed(Left::Nothing);
                    self.state = State::Block(Box::new(block));
                }
            }
        }
        Some(outcome)
    }
}
