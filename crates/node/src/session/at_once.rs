//! One-message transactions: everything is known before anything runs, so it is handed over as a whole.

use super::NodeSession;
use super::state::{Block, Left, Phase, State};
use crate::automatic_stats::EndedBy;
use crate::plan::{Extra, Plan};
use holdfast_engine::Step as EngineStep;
use holdfast_sql::{Entry, Isolation, Kind, Scan, TransactionModes};
use holdfast_types::{SqlResult, Tag};
use holdfast_wire::{Client, Failure, Step};
use std::ops::Range;
use std::sync::Arc;

type Outcome = Result<(), Failure>;

/// One statement whose whole effect is one prepared SQLite statement.
fn is_plain(entry: &Entry<Extra>) -> bool {
    entry.extra.as_ref().is_some_and(|stmt| stmt.temp.is_none())
        && entry.translated.notices.is_empty()
        && matches!(entry.translated.kind, Kind::Query | Kind::Insert | Kind::Update | Kind::Delete)
}

/// Which of the statements are the transaction's body: all of them, or those between BEGIN and COMMIT.
///
/// Only at READ COMMITTED where something is changed: what meets a lock goes on as such a transaction.
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
    /// A pipeline up to its Sync; `None` when it has to be run statement by statement.
    pub(super) async fn try_steps_at_once(
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
        if body.len() == steps.len() && self.asks_for_transactions() {
            return None;
        }
        let verb = entry(&steps[0]).translated.verb;
        let mut bound = Vec::with_capacity(body.len());
        for step in &steps[body.clone()] {
            // A value that does not convert fails in its turn, after what comes before it.
            let params = step.prepared.bind(entry(step), &step.params, &self.values()).ok()?;
            bound.push(EngineStep { stmt: entry(step).extra.clone()?, params });
        }
        let wrapped = body.len() < steps.len();
        let outcome = self.at_once(bound, wrapped, verb, schema.epoch, client).await?;
        steps.clear();
        Some(outcome)
    }

    /// A simple message; `None` when it has to be run statement by statement.
    pub(super) async fn try_pieces_at_once(&mut self, scan: &Scan<'_>, client: &mut Client) -> Option<Outcome> {
        if self.default_read_only() || self.temporary.any() {
            return None;
        }
        // An error will be found again, and told, by the statement itself.
        self.served.db.readable().await.ok()?;
        let schema = self.served.db.schema();
        let resolve = |piece| self.served.resolve(&piece, &schema, &[], &self.identity.user);
        // A statement that cannot be resolved yet may need what the ones before it do.
        let entries = scan.pieces().map(resolve).collect::<SqlResult<Vec<Arc<Entry<Extra>>>>>().ok()?;
        let body = body(entries.len(), self.default_isolation(), |i| &entries[i])?;
        if body.len() == entries.len() && self.asks_for_transactions() {
            return None;
        }
        let mut bound = Vec::with_capacity(body.len());
        for (piece, entry) in scan.pieces().zip(&entries).take(body.end).skip(body.start) {
            let params = entry.translated.bind(&piece.literals(), &[], &self.values()).ok()?;
            bound.push(EngineStep { stmt: entry.extra.clone()?, params });
        }
        let wrapped = body.len() < entries.len();
        self.at_once(bound, wrapped, entries[0].translated.verb, schema.epoch, client).await
    }

    /// `None` when somebody has changed the schema of that epoch since it was translated: nothing has been done then, nor
    /// told, and it has to be translated again, statement by statement.
    async fn at_once(
        &mut self,
        steps: Vec<EngineStep>,
        wrapped: bool,
        begin_verb: &'static str,
        epoch: u32,
        client: &mut Client,
    ) -> Option<Outcome> {
        let (first, end) = (usize::from(wrapped), usize::from(wrapped) + steps.len());
        // What only reads may have told of its first statements, and an automatic transaction keeps them.
        let is_one = (wrapped || !self.is_automatic()) && !steps.iter().all(|s| s.stmt.class.is_read());
        let place = client.reply().place();
        if wrapped {
            if let Err(e) = self.end_automatic(EndedBy::Commit).await {
                return Some(Err(Failure::at(0, e)));
            }
            client.reply().complete(0, &Tag { verb: begin_verb, rows: None });
        }
        let outcome = match wrapped {
            true => self.run_alone(first, steps, client).await,
            false => self.run_steps(first, steps, client).await,
        };
        if let Err(e) = &outcome
            && (is_one || e.step == Some(first))
            && self.is_outdated(&e.error, epoch)
        {
            client.reply().back_to(place);
            return None;
        }
        if wrapped {
            match &outcome {
                Ok(()) => client.reply().complete(end, &Tag { verb: "COMMIT", rows: None }),
                // The client's COMMIT was not reached: it finds itself in the failed transaction it began.
                Err(_) => {
                    let mut block = Block::new(true, self.default_isolation(), false);
                    block.phase = Phase::Failed(Left::Nothing);
                    self.state = State::Block(Box::new(block));
                }
            }
        }
        Some(outcome)
    }

    /// A transaction of its own of plain statements, whose results count from `first`.
    pub(super) async fn run_alone(&mut self, first: usize, steps: Vec<EngineStep>, client: &mut Client) -> Outcome {
        if steps.iter().all(|s| s.stmt.class.is_read()) {
            self.served.db.readable().await.map_err(|e| Failure::at(first, e))?;
            let reader = self.served.db.reader().map_err(|e| Failure::at(first, e))?;
            self.read(reader, first, steps, client).await.1
        } else {
            self.submit(first, steps, client).await
        }
    }
}
