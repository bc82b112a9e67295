//! Several databases in one session: USE, or SET database, goes to another one, in the midst of a transaction too.
//!
//! | state | event | next |
//! |---|---|---|
//! | idle | USE | idle, in the other database |
//! | block | USE of a database it has not been in | the part so far is laid aside; reading in the other |
//! | block | USE of one it has been in | its part is taken up again |
//! | block | COMMIT | all parts are committed as one; the session stays where it is |
//! | block | ROLLBACK, or a failure without a savepoint | all parts are rolled back; at ROLLBACK the session goes back to where the block began |
//! | block | SAVEPOINT, RELEASE, ROLLBACK TO | in all parts |
//!
//! Each part has its own snapshot under REPEATABLE READ, taken when it first reads.

use super::state::{Parked, Phase, State};
use super::{NodeSession, blocking};
use holdfast_engine::{Collect, WriteTxn, commit_together};
use holdfast_types::{SqlError, SqlResult, SqlState};

/// The parameter that USE sets.
pub(super) const PARAMETER: &str = "database";

impl NodeSession {
    /// USE, SET database; without a name back to the database of the connection.
    pub(super) async fn use_database(&mut self, name: Option<&str>) -> SqlResult<()> {
        let name = name.unwrap_or(&self.home).to_owned();
        if self.served.db.name() == name {
            return Ok(());
        }
        if let Some(parked) = self.take_parked(&name) {
            self.go_to(parked);
            return Ok(());
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
        self.activity.set_database(to.served.db.name(), to.served.db.oid());
        let served = std::mem::replace(&mut self.served, to.served);
        if let State::Block(block) = &mut self.state {
            block.began_in.get_or_insert_with(|| served.db.name().to_owned());
            let phase = std::mem::replace(&mut block.phase, to.phase);
            block.parked.push(Parked { served, phase });
        }
    }

    /// A transaction that began elsewhere was rolled back, and with it the way here.
    pub(super) fn go_back(&mut self, began_in: Option<String>, parked: Vec<Parked>) {
        let back = |p: &Parked| Some(p.served.db.name()) == began_in.as_deref();
        if let Some(p) = parked.into_iter().find(back) {
            self.identity.database = p.served.db.name().to_owned();
            self.activity.set_database(p.served.db.name(), p.served.db.oid());
            self.served = p.served;
        }
    }
}

/// Commits all parts as one and waits until that is durable.
pub(super) async fn commit_writers(mut txns: Vec<WriteTxn>) -> SqlResult<()> {
    let sink = Box::new(Collect::new());
    let ticket = match txns.len() {
        0 => return Ok(()),
        1 => txns.remove(0).commit(sink)?,
        _ => commit_together(txns, sink)?,
    };
    match ticket.await {
        Some(done) => done.result,
        None => Err(SqlError::new(
            SqlState::ADMIN_SHUTDOWN,
            "the server is stopping; whether the transaction took effect is unknown",
        )),
    }
}

pub(super) async fn roll_back_writers(txns: Vec<WriteTxn>) {
    for txn in txns {
        // An error means that the engine has backed it out already.
        let _ = txn.rollback().await;
    }
}
