//! Runs statements about subscriptions: schema changes of the session's transaction, worked out as those on publications are, and
//! what they do at the publisher.
//!
//! | statement | at the publisher | then |
//! |---|---|---|
//! | needs the publisher's tables | asked for them, before the transaction writes | worked out with the answer |
//! | creates a slot | the slot is created | the change is committed; where that fails the slot is dropped again |
//! | drops a slot | nothing | the change is made, the worker ends, the slot is dropped, the change is committed |
//!
//! No lock is held while the publisher is waited for, except while a slot is dropped. A cancel or `statement_timeout` ends each wait.
//!
//! Failure: PostgreSQL's errors; a publisher that cannot be reached is 08006, and nothing is changed then.

use super::failure::read_only;
use super::node_session::NodeSession;
use super::privilege_statements::TRIES_MAX;
use crate::subscriptions::publisher;
use holdfast_sql::Context;
use holdfast_sql::publications::Actor;
use holdfast_sql::subscription_statement::SubscriptionStatement;
use holdfast_sql::subscriptions::{AtPublisher, Outcome, Published, RemoteTable, work_out};
use holdfast_store::schema_read::FIRST_OID;
use holdfast_store::subscriptions::{copied, steps};
use holdfast_types::schema::Schema;
use holdfast_types::subscription::Subscription;
use holdfast_types::{SqlError, SqlResult, Tag};
use holdfast_wire::{Client, Failure};

impl NodeSession {
    pub(super) async fn change_subscriptions(
        &mut self,
        number: usize,
        statement: &SubscriptionStatement,
        verb: &'static str,
        is_sole: bool,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let at = |e| Failure::at(number, e);
        let in_block = !is_sole || !self.state.is_idle();
        self.begin_implicit();
        if let Some(block) = self.state.block() {
            block.queried = true;
            if block.read_only {
                return Err(at(read_only(verb)));
            }
        }
        let notices = self.changed_subscriptions(statement, in_block).await.map_err(at)?;
        client.reply().script_until(number);
        for (severity, notice) in &notices {
            client.reply().notice(severity, notice);
        }
        client.reply().complete(number, &Tag { verb, rows: None });
        Ok(())
    }

    async fn changed_subscriptions(
        &mut self,
        statement: &SubscriptionStatement,
        in_block: bool,
    ) -> SqlResult<Vec<(&'static str, SqlError)>> {
        let mut published = None;
        let mut outcome = self.worked_out_subscriptions(statement, in_block, None)?.1;
        if let Some(asked) = outcome.asked.take() {
            let answer = self.at_publisher(publisher::published_tables(&asked.connection, &asked.publications)).await?;
            published = Some(published_of(answer));
            outcome = self.worked_out_subscriptions(statement, in_block, published.as_ref())?.1;
        }
        let AtPublisher::CreateSlot { connection, slot } = &outcome.at_publisher else {
            return self.stored_subscriptions(statement, in_block, published.as_ref()).await;
        };
        self.at_publisher(publisher::create_slot(connection, slot)).await?;
        let stored = self.stored_subscriptions(statement, in_block, published.as_ref()).await;
        // Committed here, so that the slot goes where that fails.
        let stored = match stored {
            Ok(notices) => self.end_implicit().await.map(|()| notices).map_err(|failure| failure.error),
            failed => failed,
        };
        if stored.is_err()
            && let Err(error) = publisher::drop_slot(connection, slot).await
        {
            tracing::warn!(slot, %error, "the slot of a subscription that was not created stays at the publisher");
        }
        stored
    }

    /// Makes the changes, and drops the slot that the statement drops. Returns the notices.
    async fn stored_subscriptions(
        &mut self,
        statement: &SubscriptionStatement,
        in_block: bool,
        published: Option<&Published>,
    ) -> SqlResult<Vec<(&'static str, SqlError)>> {
        self.become_writer(false).await?;
        let mut tries = 1;
        let (schema, outcome) = loop {
            let (schema, outcome) = self.worked_out_subscriptions(statement, in_block, published)?;
            if outcome.asked.is_some() {
                return Err(SqlError::internal("the publisher was not asked for its tables"));
            }
            let id = |oid| oid - FIRST_OID;
            let mut steps = steps(&schema.subscriptions, &outcome.subscriptions, id);
            steps.extend(outcome.copied.iter().map(|(subscription, table)| copied(*subscription, id(*table))));
            match self.run_internal(&steps, Some(schema.permanent_epoch())).await {
                Err(e) if e.is_schema_changed() && tries < TRIES_MAX => tries += 1,
                Err(e) => return Err(e),
                Ok(()) => break (schema, outcome),
            }
        };
        if let AtPublisher::DropSlot { connection, slot } = &outcome.at_publisher {
            let is_gone = |s: &&Subscription| outcome.subscriptions.list.iter().all(|after| after.number != s.number);
            let gone = schema.subscriptions.list.iter().find(is_gone);
            self.drop_slots(gone.map_or(0, |gone| gone.number), connection, slot).await?;
        }
        self.subscriptions.changed();
        Ok(outcome.notices)
    }

    /// Drops the slot of a subscription, and those of its copies that are left. Its worker, which has them, is ended first.
    async fn drop_slots(&mut self, number: u32, connection: &str, slot: &str) -> SqlResult<()> {
        let (db, subscriptions) = (self.served.db.clone(), self.subscriptions.clone());
        let held = self.at_publisher(async { Ok(subscriptions.hold(db.volume(), number).await) }).await?;
        let copies = subscriptions.copy_slots(&db, number);
        let dropped = self.at_publisher(publisher::drop_slots(connection, slot, &copies)).await;
        dropped.map_err(|error| slot_not_dropped(slot, error))?;
        // Committed here, so that no worker looks for the slot meanwhile.
        self.end_implicit().await.map_err(|failure| failure.error)?;
        drop(held);
        Ok(())
    }

    /// The subscriptions after a statement, and the schema under which that is so.
    fn worked_out_subscriptions(
        &self,
        statement: &SubscriptionStatement,
        in_block: bool,
        published: Option<&Published>,
    ) -> SqlResult<(std::sync::Arc<Schema>, Outcome)> {
        let (schema, roles) = (self.schema(), self.roles());
        let actor = Actor {
            checker: self.checker(&roles, &schema),
            role: self.identity.current_role,
            session_role: self.identity.session_role,
            database: roles.database(self.served.db.oid()),
        };
        let context = Context {
            dialect: self.served.db.dialect(),
            schema: &schema,
            database: self.served.db.name(),
            user: &self.identity.user,
            param_types: &[],
            applies: false,
        };
        let outcome = work_out(statement, &actor, &context, in_block, published)?;
        Ok((schema, outcome))
    }

    /// Waits for the publisher.
    async fn at_publisher<T>(&self, work: impl Future<Output = SqlResult<T>>) -> SqlResult<T> {
        self.canceller.wait(self.settings.timeouts().statement, work).await?
    }
}

fn published_of((tables, unknown): (Vec<publisher::RemoteTable>, Vec<String>)) -> Published {
    let table = |publisher::RemoteTable { schema, name, columns, conditions }| RemoteTable {
        schema,
        name,
        columns,
        conditions,
    };
    Published { tables: tables.into_iter().map(table).collect(), unknown }
}

/// PostgreSQL's error where the publisher cannot be reached (class 08); any other as it is. The hint is the same: the
/// subscription can be dropped without its slot.
fn slot_not_dropped(slot: &str, error: SqlError) -> SqlError {
    let hint = "Use ALTER SUBSCRIPTION ... SET (slot_name = NONE) to disassociate the subscription from the slot.";
    if !error.state().0.starts_with("08") {
        return error.with_hint(hint);
    }
    let why = &error.parts().message;
    let message = format!("could not connect to publisher when attempting to drop replication slot \"{slot}\": {why}");
    SqlError::new(error.state(), message).with_hint(hint)
}
