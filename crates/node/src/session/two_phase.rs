//! PREPARE TRANSACTION, COMMIT PREPARED and ROLLBACK PREPARED.
//!
//! | state | command | next |
//! |---|---|---|
//! | block, explicit | PREPARE TRANSACTION | idle; the transaction is prepared, or was rolled back and the error says why |
//! | block, failed | PREPARE TRANSACTION | idle; rolled back, tag ROLLBACK, as PostgreSQL does |
//! | idle, or an implicit block | PREPARE TRANSACTION | as it was; a warning, tag ROLLBACK |
//! | idle | COMMIT PREPARED, ROLLBACK PREPARED | idle; the transaction is over |
//! | block | COMMIT PREPARED, ROLLBACK PREPARED | 25001 |

use super::multi_database::roll_back_writers;
use super::node_session::NodeSession;
use super::state::{Phase, State};
use super::temporary_statements::not_prepared;
use super::transaction::no_transaction;
use crate::cancel::terminated_in_commit;
use holdfast_engine::{Completion, Ticket};
use holdfast_types::{SqlError, SqlResult, SqlState};
use holdfast_wire::Client;

impl NodeSession {
    /// Runs PREPARE TRANSACTION and returns its command tag: ROLLBACK where a failed transaction was rolled back instead.
    pub(super) async fn prepare_transaction(
        &mut self,
        number: usize,
        gid: &str,
        client: &mut Client,
    ) -> SqlResult<&'static str> {
        if !matches!(&self.state, State::Block(b) if b.explicit) {
            client.reply().script_until(number);
            no_transaction(client);
            return Ok("ROLLBACK");
        }
        if self.state.has_failed() {
            self.roll_back().await;
            return Ok("ROLLBACK");
        }
        let prepared = self.try_prepare(gid).await;
        if let State::Block(mut block) = std::mem::take(&mut self.state) {
            roll_back_writers(block.take_writers()).await;
            if prepared.is_err() {
                self.go_back(block.began_in.take(), std::mem::take(&mut block.parked));
            }
            self.temporary.end_transaction(prepared.is_ok()).await;
            self.end_settings(std::mem::take(&mut block.undo), prepared.is_ok());
            self.cursors.end_transaction(prepared.is_ok());
        }
        prepared.map(|()| "PREPARE TRANSACTION")
    }

    /// Prepares the open transaction. Whatever the outcome, the session no longer owns it.
    async fn try_prepare(&mut self, gid: &str) -> SqlResult<()> {
        if self.cursors.will_be_held() {
            let message = "cannot PREPARE a transaction that has created a cursor WITH HOLD";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        if self.temporary.touched {
            return Err(not_prepared());
        }
        if self.state.block_ref().is_some_and(|block| !block.role_changes.is_empty()) {
            let message = "cannot PREPARE a transaction that has changed roles or access to databases";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        // A transaction that has only read is prepared as well, and finished like any other.
        self.become_writer(false).await?;
        let user = self.identity.user.clone();
        let Some(block) = self.state.block() else { return Err(SqlError::internal("no transaction is open")) };
        let elsewhere = block.parked.iter().any(|p| matches!(p.phase, Phase::Writing(_)));
        let mut writers = block.take_writers();
        if elsewhere {
            roll_back_writers(writers).await;
            let message = "PREPARE TRANSACTION is not supported for a transaction over several databases";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("Its COMMIT is atomic without being prepared."));
        }
        let Some(mut txn) = writers.pop() else { return Err(SqlError::internal("the transaction is not the writer")) };
        txn.set_level(self.settings.level());
        let ticket = txn.prepare_transaction(gid, &user)?;
        self.until_ended(ticket).await
    }

    /// Runs COMMIT PREPARED and ROLLBACK PREPARED.
    pub(super) async fn finish_prepared(&mut self, gid: &str, commit: bool) -> SqlResult<()> {
        if !self.state.is_idle() {
            let command = if commit { "COMMIT PREPARED" } else { "ROLLBACK PREPARED" };
            let message = format!("{command} cannot run inside a transaction block");
            return Err(SqlError::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
        }
        let ticket = self.served.db.finish_prepared(gid, commit, self.settings.level())?;
        self.until_ended(ticket).await
    }

    async fn until_ended(&self, ticket: Ticket) -> SqlResult<()> {
        let work = self.activity.until_durable(self.settings.level(), ended(ticket));
        self.canceller.until_committed(work).await.unwrap_or_else(|| Err(terminated_in_commit()))
    }
}

async fn ended(ticket: Ticket) -> SqlResult<()> {
    match ticket.await {
        Some(Completion { result, .. }) => result,
        None => Err(SqlError::new(
            SqlState::ADMIN_SHUTDOWN,
            "the server is stopping; whether this took effect is unknown until it runs again: see pg_prepared_xacts",
        )),
    }
}
