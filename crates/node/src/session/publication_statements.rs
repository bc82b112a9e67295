//! Runs statements about publications: schema changes of the session's transaction, worked out as those on privileges are.

use super::failure::read_only;
use super::node_session::NodeSession;
use super::privilege_statements::TRIES_MAX;
use holdfast_sql::Context;
use holdfast_sql::publication_statement::PublicationStatement;
use holdfast_sql::publications::{Actor, work_out};
use holdfast_store::privileges::Row;
use holdfast_store::publications::steps;
use holdfast_store::schema_read::FIRST_OID;
use holdfast_types::access::acl::with_new_owner;
use holdfast_types::publication::Publications;
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlResult, Tag};
use holdfast_wire::{Client, Failure};

impl NodeSession {
    pub(super) async fn change_publications(
        &mut self,
        number: usize,
        statement: &PublicationStatement,
        verb: &'static str,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let notices = self.changed_publications(statement, verb).await.map_err(|e| Failure::at(number, e))?;
        client.reply().script_until(number);
        for (severity, notice) in &notices {
            client.reply().notice(severity, notice);
        }
        client.reply().complete(number, &Tag { verb, rows: None });
        Ok(())
    }

    async fn changed_publications(
        &mut self,
        statement: &PublicationStatement,
        verb: &'static str,
    ) -> SqlResult<Vec<(&'static str, SqlError)>> {
        self.begin_implicit();
        if let Some(block) = self.state.block() {
            block.queried = true;
            if block.read_only {
                return Err(read_only(verb));
            }
        }
        self.become_writer(false).await?;
        let mut tries = 1;
        loop {
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
            let outcome = work_out(statement, &actor, &context)?;
            let mut steps = steps(&schema.publications, &outcome.publications, |oid| oid - FIRST_OID);
            steps.extend(new_owners(&schema, &outcome.publications));
            match self.run_internal(&steps, Some(schema.permanent_epoch())).await {
                Err(e) if e.is_schema_changed() && tries < TRIES_MAX => tries += 1,
                Err(e) => return Err(e),
                Ok(()) => return Ok(outcome.notices),
            }
        }
    }
}

/// The schema changes by which the grants on a publication follow it to another owner.
fn new_owners(schema: &Schema, after: &Publications) -> Vec<String> {
    let mut steps = Vec::new();
    for publication in &after.list {
        let before = schema.publications.list.iter().find(|before| before.number == publication.number);
        let acl = schema.grants.publications.get(&publication.number);
        if let (Some(before), Some(acl)) = (before.filter(|before| before.owner != publication.owner), acl) {
            let acl = with_new_owner(acl, before.owner, publication.owner);
            steps.extend(Row::Publication { number: publication.number, acl: Some(&acl) }.steps());
        }
    }
    steps
}
