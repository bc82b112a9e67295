//! A message's statements in the open automatic transaction: all of them take effect, or none.

use super::counted_reply::CountedReply;
use super::{AutomaticTransaction, Host, State};
use crate::automatic_stats::EndedBy;
use crate::cancel::{Target, with_reason};
use crate::session::failure::fatal;
use crate::session::reply_sink::reclaim;
use holdfast_engine::{Step as EngineStep, WriteTxn};
use holdfast_types::{SqlError, SqlState};
use holdfast_wire::{Client, Failure};
use std::time::{Duration, Instant};

/// The savepoint around the statements of a message, which fail as one. No client can use the name: clients set no
/// savepoints outside BEGIN.
const MESSAGE: &str = "holdfast_message";

/// How a message's statements went in the open transaction.
pub(super) enum Ran {
    Done,
    /// They are undone; the transaction before them is unchanged.
    Failed(Failure),
    /// They are undone. They may succeed once the transaction before them has been committed, for this reason.
    Blocked(EndedBy, Failure),
}

/// How one statement went.
enum One {
    /// It has changed this many rows.
    Done(u64),
    /// It is undone. With a reason: the transaction before it may have blocked it and is to be ended.
    Failed(SqlError, Option<EndedBy>),
}

impl AutomaticTransaction {
    /// Runs a message's statements in the open transaction. With `left` they may take at most that long: then what came
    /// before them has to be committed. An error means that the transaction is gone.
    pub(super) async fn attempt(
        &mut self,
        first: usize,
        steps: &[EngineStep],
        left: Option<Duration>,
        host: &mut Host<'_>,
        client: &mut Client,
    ) -> Result<Ran, Failure> {
        let until = left.map(|left| Instant::now() + left);
        let has_several = steps.len() > 1;
        if has_several {
            self.open_txn()?.savepoint(MESSAGE).await.map_err(fatal)?;
        }
        let mut ran = Ran::Done;
        let mut rows = 0;
        for (i, step) in steps.iter().enumerate() {
            client.reply().start_at(first + i);
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            match self.attempt_one(step.clone(), left, host, client).await? {
                One::Done(changed) => rows += changed,
                One::Failed(error, blocked) => {
                    let failure = Failure::at(first + i, error);
                    ran = match blocked {
                        Some(by) => Ran::Blocked(by, failure),
                        None => Ran::Failed(failure),
                    };
                    break;
                }
            }
        }
        if has_several {
            let txn = self.open_txn()?;
            if !matches!(ran, Ran::Done) {
                txn.rollback_to(MESSAGE).await.map_err(fatal)?;
                rows = 0;
            }
            txn.release(MESSAGE).await.map_err(fatal)?;
        }
        if let State::Open(open) = &mut self.state {
            open.rows += rows;
        }
        Ok(ran)
    }

    async fn attempt_one(
        &mut self,
        step: EngineStep,
        left: Option<Duration>,
        host: &mut Host<'_>,
        client: &mut Client,
    ) -> Result<One, Failure> {
        let timeouts = host.settings.timeouts();
        // With no time left it is interrupted at once: a timeout of 0 would mean none.
        let left = left.map(|left| left.max(Duration::from_micros(1)));
        let own = Some(timeouts.statement).filter(|t| !t.is_zero());
        let is_bounded = left.is_some_and(|left| own.is_none_or(|own| left < own));
        let timeout = if is_bounded { left } else { own }.unwrap_or_default();
        let txn = self.open_txn()?;
        txn.set_lock_timeout(timeouts.lock);
        let target = Target::Writer(host.db.clone(), txn.id());
        let sink = Box::new(CountedReply::new(client.lend_reply()));
        let (ran, timed_out) =
            host.canceller.during(target, timeout, txn.execute_for(host.context.clone(), step, sink)).await;
        let ran = match ran {
            Ok(ran) => ran,
            Err(error) => {
                client.replace_reply();
                // The engine has given the transaction up.
                self.state = State::Closed;
                return Err(fatal(self.not_committed(error, host)));
            }
        };
        let Some(rows) = reclaim::<CountedReply>(ran.sink, client) else {
            return Err(fatal(SqlError::internal("an answer came back as something else")));
        };
        let Err(error) = ran.result else {
            *host.last_id = Some(ran.last_insert_rowid).filter(|id| *id != 0).or(*host.last_id);
            return Ok(One::Done(rows));
        };
        let blocked = match error.state() {
            SqlState::QUERY_CANCELED if timed_out && is_bounded => Some(EndedBy::Time),
            state if left.is_some() && state.0.starts_with("40") => Some(EndedBy::Commit),
            _ => None,
        };
        Ok(One::Failed(with_reason(error, timed_out), blocked))
    }

    fn open_txn(&mut self) -> Result<&mut WriteTxn, Failure> {
        match &mut self.state {
            State::Open(open) => Ok(&mut open.txn),
            _ => Err(fatal(SqlError::internal("no automatic transaction is open"))),
        }
    }
}
