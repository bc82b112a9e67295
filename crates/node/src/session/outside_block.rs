//! Plain statements outside a transaction block: a part of the session's automatic transaction, or a transaction of their own.
//!
//! This is the only place where the way of a message meets automatic transactions, with one question: has the session one,
//! or does it want one ([`NodeSession::has_automatic`])?

use super::automatic::{AutomaticTransaction, Host};
use super::node_session::NodeSession;
use crate::automatic_stats::EndedBy;
use holdfast_engine::Step as EngineStep;
use holdfast_sql::{Isolation, Kind};
use holdfast_types::{SqlError, SqlResult, SqlState};
use holdfast_wire::{Client, Failure};

impl NodeSession {
    /// The session has an automatic transaction, or its next change outside a block begins one.
    fn has_automatic(&self) -> bool {
        !self.automatic.is_unused(self.wants_automatic())
    }

    /// Runs plain statements, whose results count from `first`: in the automatic transaction, or as a transaction of their own.
    pub(super) async fn run_plain(
        &mut self,
        first: usize,
        steps: Vec<EngineStep>,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let steps = match self.has_automatic() {
            false => steps,
            true => {
                let (automatic, host) = self.automatic();
                match automatic.run(host, first, steps, client).await? {
                    Some(steps) => steps,
                    None => return Ok(()),
                }
            }
        };
        self.run_own(first, steps, client).await
    }

    /// Runs plain statements, whose results count from `first`, as a transaction of their own.
    pub(super) async fn run_own(
        &mut self,
        first: usize,
        steps: Vec<EngineStep>,
        client: &mut Client,
    ) -> Result<(), Failure> {
        if steps.iter().all(|s| s.stmt.class.is_read()) {
            let reader = self.served.db.reader().map_err(|e| Failure::at(first, e))?;
            self.read(reader, first, steps, client).await.1
        } else {
            self.submit(first, steps, client).await
        }
    }

    /// Ends the automatic transaction, if there is one, before something that cannot be a part of it.
    pub(super) async fn end_automatic_unless(&mut self, joins: bool) -> SqlResult<()> {
        if joins || !self.has_automatic() {
            return Ok(());
        }
        let (automatic, host) = self.automatic();
        automatic.end(EndedBy::Commit, &host).await
    }

    /// Whether the settings want statements outside BEGIN to join an automatic transaction. An automatic transaction is READ
    /// COMMITTED and may write; in a session with other defaults each statement is its own transaction.
    pub(super) fn wants_automatic(&self) -> bool {
        self.settings.automatic().on
            && self.default_isolation() == Isolation::ReadCommitted
            && !self.default_read_only()
    }

    /// The automatic transaction, and what it uses of the session.
    pub(super) fn automatic(&mut self) -> (&mut AutomaticTransaction, Host<'_>) {
        let (wanted, context) = (self.wants_automatic(), self.context());
        let host = Host {
            db: &self.served.db,
            settings: &self.settings,
            canceller: &self.canceller,
            locks: &self.locks,
            user: &self.identity.user,
            author: &self.identity.author,
            context,
            last_id: &mut self.last_id,
            wanted,
        };
        (&mut self.automatic, host)
    }

    /// The database refuses changes outside a transaction (`require_transaction`), and this session begins none by itself.
    pub(super) fn requires_block(&self) -> bool {
        self.served.requires_transaction() && !self.wants_automatic()
    }

    /// 25P01 for a change outside a transaction where the database refuses those.
    pub(super) fn check_required(&mut self, kind: &Kind, verb: &str) -> SqlResult<()> {
        let changes = matches!(
            kind,
            Kind::Insert
                | Kind::Update
                | Kind::Delete
                | Kind::CopyIn(_)
                | Kind::Ddl
                | Kind::Privileges(_)
                | Kind::Publication(_)
                | Kind::Subscription(_)
        );
        if !changes || !self.requires_block() || self.state.block().is_some_and(|b| b.explicit) {
            return Ok(());
        }
        let command = verb.trim_end_matches(" 0");
        let message = format!("{command} is refused outside a transaction in this database");
        Err(SqlError::new(SqlState::NO_ACTIVE_SQL_TRANSACTION, message)
            .with_detail("require_transaction is on.")
            .with_hint("Begin a transaction with BEGIN, or SET auto_transaction = on."))
    }
}
