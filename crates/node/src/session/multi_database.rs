//! Several databases in one session: USE, or SET database, switches to another one, inside a transaction too.
//!
//! | state | event | next |
//! |---|---|---|
//! | idle | USE | idle, in the other database |
//! | block | USE of a database that the block has not used yet | the present part is parked; reading in the other |
//! | block | USE of a database that the block has used | its parked part continues |
//! | block | COMMIT | all parts are committed as one; the session stays where it is |
//! | block | ROLLBACK, or a failure without a savepoint | all parts are rolled back; at ROLLBACK the session returns to the database in which the block began |
//! | block | SAVEPOINT, RELEASE, ROLLBACK TO | in all parts |
//!
//! Each part has its own snapshot under REPEATABLE READ, taken when it first reads. A SERIALIZABLE transaction that may write is the
//! exclusive writer of each database from its first statement there, and of the first one when it leaves that.

use super::blocking::blocking;
use super::node_session::NodeSession;
use super::state::{Parked, Phase, State};
use crate::roles::check_connect;
use holdfast_engine::{Collect, WriteTxn, commit_with_roles, multi_database_commit};
use holdfast_types::access::RoleChanges;
use holdfast_types::{SqlError, SqlResult, SqlState};

impl NodeSession {
    /// Runs USE and SET database; without a name it returns to the database of the connection.
    pub(super) async fn use_database(&mut self, name: Option<&str>) -> SqlResult<()> {
        let name = name.unwrap_or(&self.home).to_owned();
        if self.served.db.name() == name {
            return Ok(());
        }
        if let Some(block) = self.state.block()
            && block.may_write_serializable()
            && block.queried
        {
            // What it has read here is compared with the database only now: see `Block::writes_from_the_start`.
            self.become_writer(false).await?;
        }
        if let Some(parked) = self.take_parked(&name) {
            self.go_to(parked);
            return Ok(());
        }
        if let Some(listed) = self.databases.listed().into_iter().find(|d| d.name == name) {
            check_connect(&self.roles(), self.identity.session_role, listed.oid, &name)?;
        }
        let served = match self.databases.enter_open(&name) {
            Some(served) => served,
            None => {
                let (databases, name) = (self.databases.clone(), name);
                blocking(move || databases.enter(&name)).await?
            }
        };
        self.go_to(Parked { served, phase: Phase::Reading(None) });
        Ok(())
    }

    fn take_parked(&mut self, name: &str) -> Option<Parked> {
        let block = self.state.block()?;
        let at = block.parked.iter().position(|p| p.served.db.name() == name)?;
        Some(block.parked.swap_remove(at))
    }

    fn go_to(&mut self, to: Parked) {
        self.identity.database = to.served.db.name().to_owned();
        self.activity.move_to(to.served.db.name(), to.served.db.oid());
        let served = std::mem::replace(&mut self.served, to.served);
        if let State::Block(block) = &mut self.state {
            block.began_in.get_or_insert_with(|| served.db.name().to_owned());
            let phase = std::mem::replace(&mut block.phase, to.phase);
            block.parked.push(Parked { served, phase });
        }
    }

    /// After a rollback: returns to the database in which the transaction began.
    pub(super) fn go_back(&mut self, began_in: Option<String>, parked: Vec<Parked>) {
        let back = |p: &Parked| Some(p.served.db.name()) == began_in.as_deref();
        if let Some(p) = parked.into_iter().find(back) {
            self.identity.database = p.served.db.name().to_owned();
            self.activity.move_to(p.served.db.name(), p.served.db.oid());
            self.served = p.served;
        }
    }
}

/// Commits all parts atomically and waits until that is durable.
pub(super) async fn commit_writers(mut txns: Vec<WriteTxn>, role_changes: RoleChanges) -> SqlResult<()> {
    let sink = Box::new(Collect::new());
    let ticket = match txns.len() {
        0 => return Ok(()),
        _ if !role_changes.is_empty() => commit_with_roles(txns, role_changes, sink)?,
        1 => txns.remove(0).commit(sink)?,
        _ => multi_database_commit(txns, sink)?,
    };
    match ticket.await {
        Some(done) => done.result,
        None => Err(SqlError::new(
            SqlState::ADMIN_SHUTDOWN,
            "the server is stopping; whether the transaction took effect is unknown",
        )),
    }
}

/// Rolls back all parts.
pub(super) async fn roll_back_writers(txns: Vec<WriteTxn>) {
    for txn in txns {
        // An error means that the engine has rolled it back already.
        let _ = txn.rollback().await;
    }
}
