//! BEGIN, COMMIT, ROLLBACK, savepoints, and the end of implicit transactions.

use super::multi_database::{commit_writers, roll_back_writers};
use super::node_session::NodeSession;
use super::state::{Block, Left, Phase, Savepoint, State};
use crate::cancel::terminated_in_commit;
use crate::settings::Undo;
use holdfast_engine::WriteTxn;
use holdfast_sql::{Isolation, TransactionModes};
use holdfast_types::access::RoleChanges;
use holdfast_types::{SqlError, SqlResult, SqlState, Tag};
use holdfast_wire::{Client, Failure};

fn warning(client: &mut Client, state: SqlState, message: &str) {
    client.reply().notice("WARNING", &SqlError::new(state, message));
}

pub(super) fn no_transaction(client: &mut Client) {
    warning(client, SqlState::NO_ACTIVE_SQL_TRANSACTION, "there is no transaction in progress");
}

impl NodeSession {
    /// Begins an implicit transaction where none is open: for a statement that is not the only one in its message.
    pub(super) fn begin_implicit(&mut self) {
        if self.state.is_idle() {
            let block = Block::new(false, self.default_isolation(), self.default_read_only());
            self.state = State::Block(Box::new(block));
        }
    }

    pub(super) fn begin(&mut self, modes: TransactionModes, client: &mut Client) -> SqlResult<()> {
        self.begin_implicit();
        let Some(block) = self.state.block() else { return Ok(()) };
        if std::mem::replace(&mut block.explicit, true) {
            let message = "there is already a transaction in progress";
            warning(client, SqlState::ACTIVE_SQL_TRANSACTION, message);
            return Ok(());
        }
        self.set_modes(modes)
    }

    /// SET TRANSACTION, and the modes of BEGIN.
    pub(super) fn set_modes(&mut self, modes: TransactionModes) -> SqlResult<()> {
        let standby = self.standby;
        let Some(block) = self.state.block() else { return Ok(()) };
        if let Some(isolation) = modes.isolation
            && isolation != block.isolation
        {
            if block.queried {
                let message = "SET TRANSACTION ISOLATION LEVEL must be called before any query";
                return Err(SqlError::new(SqlState::ACTIVE_SQL_TRANSACTION, message));
            }
            // READ UNCOMMITTED behaves like READ COMMITTED in PostgreSQL, too.
            block.isolation = match isolation {
                Isolation::ReadUncommitted => Isolation::ReadCommitted,
                other => other,
            };
        }
        match modes.read_only {
            Some(false) if standby => {
                let message = "cannot set transaction read-write mode during recovery";
                Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
            }
            Some(false) if block.read_only && block.queried => {
                let message = "transaction read-write mode must be set before any query";
                Err(SqlError::new(SqlState::ACTIVE_SQL_TRANSACTION, message))
            }
            Some(read_only) => {
                block.read_only = read_only;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// COMMIT and END.
    pub(super) async fn commit(&mut self, number: usize, chain: bool, client: &mut Client) -> Result<(), Failure> {
        let explicit = self.state.block().is_some_and(|b| b.explicit);
        if !explicit {
            if chain {
                return Err(Failure::at(number, chain_needs_block("COMMIT AND CHAIN")));
            }
            client.reply().script_until(number);
            // In automatic transactions a bound may have committed before this COMMIT: no reason for a warning.
            if !self.wants_automatic() {
                no_transaction(client);
            }
        }
        let failed = self.state.has_failed();
        let modes = self.current_modes();
        if failed {
            self.roll_back().await;
        } else {
            self.end_transaction().await.map_err(|f| Failure { step: Some(number), ..f })?;
        }
        self.chain(chain, modes);
        let verb = if failed { "ROLLBACK" } else { "COMMIT" };
        client.reply().complete(number, &Tag { verb, rows: None });
        Ok(())
    }

    /// ROLLBACK and ABORT.
    pub(super) async fn rollback(&mut self, number: usize, chain: bool, client: &mut Client) -> Result<(), Failure> {
        let explicit = self.state.block().is_some_and(|b| b.explicit);
        if !explicit {
            if chain {
                return Err(Failure::at(number, chain_needs_block("ROLLBACK AND CHAIN")));
            }
            client.reply().script_until(number);
            no_transaction(client);
        }
        let modes = self.current_modes();
        self.roll_back().await;
        self.chain(chain, modes);
        client.reply().complete(number, &Tag { verb: "ROLLBACK", rows: None });
        Ok(())
    }

    fn current_modes(&mut self) -> Option<(Isolation, bool)> {
        self.state.block().map(|b| (b.isolation, b.read_only))
    }

    fn chain(&mut self, chain: bool, modes: Option<(Isolation, bool)>) {
        if let (true, Some((isolation, read_only))) = (chain, modes) {
            self.transaction_us = self.statement_us;
            self.state = State::Block(Box::new(Block::new(true, isolation, read_only)));
        }
    }

    /// The end of a message or batch: an implicit transaction is committed.
    pub(super) async fn end_implicit(&mut self) -> Result<(), Failure> {
        match &self.state {
            State::Block(block) if !block.explicit => self.end_transaction().await,
            _ => Ok(()),
        }
    }

    /// Commits the open transaction, if any. The transaction is over, whatever the outcome.
    async fn end_transaction(&mut self) -> Result<(), Failure> {
        let State::Block(block) = std::mem::take(&mut self.state) else { return Ok(()) };
        let mut block = *block;
        let failed = matches!(block.phase, Phase::Failed(_));
        let mut writers = block.take_writers();
        writers.iter_mut().for_each(|txn| txn.set_level(self.settings.level()));
        let Block { parked, began_in, undo, role_changes, .. } = block;
        let temporary = if failed { Ok(()) } else { self.temporary.before_commit().await };
        let committed = match temporary {
            Ok(()) if !failed => self.commit_all(writers, role_changes).await,
            other => {
                roll_back_writers(writers).await;
                other
            }
        };
        match committed {
            Ok(()) if !failed => self.done.commits += 1,
            _ => self.done.rollbacks += 1,
        }
        self.temporary.end_transaction(committed.is_ok() && !failed).await;
        if committed.is_err() {
            self.go_back(began_in, parked);
        }
        self.end_settings(undo, committed.is_ok());
        self.cursors.end_transaction(committed.is_ok());
        committed.map_err(Failure::from)
    }

    /// Commits what a transaction has changed, in one append to the trail: data, roles, access to databases.
    async fn commit_all(&mut self, writers: Vec<WriteTxn>, role_changes: RoleChanges) -> SqlResult<()> {
        match writers.is_empty() {
            true if !role_changes.is_empty() => self.change_roles(role_changes).await,
            _ => {
                let commit = commit_writers(writers, role_changes);
                let commit = self.activity.until_durable(self.settings.level(), commit);
                self.canceller.until_committed(commit).await.unwrap_or_else(|| Err(terminated_in_commit()))
            }
        }
    }

    /// The settings after a transaction, and the roles that they name.
    pub(super) fn end_settings(&mut self, undo: Vec<Undo>, committed: bool) {
        if !undo.is_empty() {
            self.settings.end_transaction(undo, committed);
            self.identity.follow(&self.settings);
        }
    }

    /// Rolls back the open transaction, if any.
    pub(super) async fn roll_back(&mut self) {
        let State::Block(block) = std::mem::take(&mut self.state) else { return };
        let mut block = *block;
        roll_back_writers(block.take_writers()).await;
        self.done.rollbacks += 1;
        self.temporary.end_transaction(false).await;
        let Block { parked, began_in, undo, .. } = block;
        self.go_back(began_in, parked);
        self.end_settings(undo, false);
        self.cursors.end_transaction(false);
    }

    /// A statement failed.
    pub(super) async fn fail_statement(&mut self) {
        let (unused, undone) = match &mut self.state {
            State::Idle => return,
            State::Block(block) if block.explicit => {
                // As in PostgreSQL the settings go back now, to the last savepoint, and not when the block ends.
                let kept = block.savepoints.last().map_or(0, |savepoint| savepoint.undo_len);
                (block.fail(), block.undo.split_off(kept.min(block.undo.len())))
            }
            State::Block(_) => return self.roll_back().await,
        };
        self.end_settings(undone, false);
        roll_back_writers(unused).await;
    }

    fn explicit_block(&mut self, command: &str) -> SqlResult<&mut Block> {
        match &mut self.state {
            State::Block(block) if block.explicit => Ok(block),
            _ => Err(SqlError::new(
                SqlState::NO_ACTIVE_SQL_TRANSACTION,
                format!("{command} can only be used in transaction blocks"),
            )),
        }
    }

    pub(super) async fn savepoint(&mut self, name: &str) -> SqlResult<()> {
        let block = self.explicit_block("SAVEPOINT")?;
        for txn in block.writers() {
            txn.savepoint(name).await?;
        }
        block.savepoints.push(Savepoint {
            name: name.to_owned(),
            undo_len: block.undo.len(),
            role_changes: block.role_changes.clone(),
        });
        self.temporary.savepoint();
        Ok(())
    }

    pub(super) async fn release(&mut self, name: &str) -> SqlResult<()> {
        let block = self.explicit_block("RELEASE SAVEPOINT")?;
        let at = block.savepoint(name).ok_or_else(|| no_savepoint(name))?;
        for txn in block.writers() {
            txn.release(name).await?;
        }
        block.savepoints.truncate(at);
        self.temporary.release(at);
        self.cursors.release(at);
        Ok(())
    }

    pub(super) async fn rollback_to(&mut self, name: &str) -> SqlResult<()> {
        let block = self.explicit_block("ROLLBACK TO SAVEPOINT")?;
        let at = block.savepoint(name).ok_or_else(|| no_savepoint(name))?;
        if block.is_lost() {
            let message = "the transaction was rolled back as a whole, commands are ignored until its end";
            return Err(SqlError::new(SqlState::IN_FAILED_SQL_TRANSACTION, message).with_hint("ROLLBACK ends it."));
        }
        if let Err(e) = go_back_to(block, name).await {
            // The rest of it must never be committed.
            roll_back_writers(block.take_writers()).await;
            return Err(e);
        }
        block.savepoints.truncate(at + 1);
        let undone = block.undo.split_off(block.savepoints[at].undo_len);
        block.role_changes = block.savepoints[at].role_changes.clone();
        self.end_settings(undone, false);
        self.temporary.roll_back_to(at).await;
        self.cursors.roll_back_to(at);
        Ok(())
    }
}

async fn go_back_to(block: &mut Block, name: &str) -> SqlResult<()> {
    for phase in block.phases() {
        *phase = match std::mem::replace(phase, Phase::Failed(Left::Nothing)) {
            Phase::Writing(mut txn) | Phase::Failed(Left::Writer(mut txn)) => {
                txn.rollback_to(name).await?;
                Phase::Writing(txn)
            }
            Phase::Reading(reader) | Phase::Failed(Left::Reader(reader)) => Phase::Reading(reader),
            Phase::Failed(Left::Nothing) => return Err(SqlError::internal("a part of the transaction is lost")),
        };
    }
    Ok(())
}

fn no_savepoint(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_SAVEPOINT_SPECIFICATION, format!("savepoint \"{name}\" does not exist"))
}

fn chain_needs_block(command: &str) -> SqlError {
    SqlError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, format!("{command} can only be used in transaction blocks"))
}
