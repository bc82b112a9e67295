//! Runs GRANT, REVOKE and the other statements on owners and privileges, and stores the owners of new objects.
//!
//! They are schema changes of the session's transaction: they are worked out under the schema that it sees, and again
//! where another session changes the schema first.

use super::failure::read_only;
use super::node_session::NodeSession;
use crate::privilege_change::{Changes, Draft, of_created};
use holdfast_engine::{Collect, Report, Step as EngineStep};
use holdfast_sql::privilege_statement::PrivilegeStatement;
use holdfast_types::access::needs::Creates;
use holdfast_types::{SqlError, SqlResult, Tag};
use holdfast_wire::{Client, Failure};

/// How often a statement is worked out again because other sessions change the schema.
pub(super) const TRIES_MAX: usize = 10;

impl NodeSession {
    pub(super) async fn change_privileges(
        &mut self,
        number: usize,
        statement: &PrivilegeStatement,
        verb: &'static str,
        client: &mut Client,
    ) -> Result<(), Failure> {
        let mut changes = self.worked_out(statement, verb).await.map_err(|e| Failure::at(number, e))?;
        if let Some(block) = self.state.block() {
            block.role_changes.append(std::mem::take(&mut changes.on_databases));
        }
        client.reply().script_until(number);
        for notice in &changes.notices {
            client.reply().notice(notice.severity, &SqlError::new(notice.state, notice.message.as_str()));
        }
        client.reply().complete(number, &Tag { verb, rows: None });
        Ok(())
    }

    async fn worked_out(&mut self, statement: &PrivilegeStatement, verb: &'static str) -> SqlResult<Changes> {
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
            let schema = self.schema();
            let roles = self.roles();
            let draft =
                Draft::new(self.checker(&roles, &schema), self.identity.current_role, self.identity.session_role);
            let changes = draft.work_out(statement)?;
            match self.run_internal(&changes.steps, Some(schema.permanent_epoch())).await {
                Err(e) if e.is_schema_changed() && tries < TRIES_MAX => tries += 1,
                Err(e) => return Err(e),
                Ok(()) => break Ok(changes),
            }
        }
    }

    /// Stores owner and grants of what a statement of the open transaction has created.
    pub(super) async fn store_owner(&mut self, creates: &Creates) -> SqlResult<()> {
        let (schema, roles) = (self.schema(), self.roles());
        let steps = of_created(&self.checker(&roles, &schema), self.identity.current_role, creates);
        self.run_internal(&steps, None).await
    }

    /// Runs schema changes of an internal table. `epoch`: the schema that they were worked out under.
    pub(super) async fn run_internal(&mut self, steps: &[String], mut epoch: Option<u32>) -> SqlResult<()> {
        for sql in steps {
            let report = Report { epoch: epoch.take(), ddl: true, internal: true, ..Report::default() };
            let stmt = self.writer()?.prepare(sql, report).await?;
            self.execute(EngineStep { stmt, params: Vec::new() }, Box::new(Collect::new())).await?.0?;
        }
        Ok(())
    }
}
