//! The schema as a transaction has changed it: prepares statements against it, and drops what is undone.

use super::state::BranchState;
use super::work::Attempt;
use crate::branch::temp::TempSpace;
use crate::state::branch_connection::OwnSchema;
use crate::statement::describe::describe;
use crate::statement::model::{Report, Statement};
use crate::statement::run::to_sql;
use crate::statement::temp::uses::describe_with;
use holdfast_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;

impl BranchState {
    /// Prepares a statement against the transaction's own schema, and the temporary tables of its session.
    pub fn prepare(&mut self, sql: &str, report: Report, temp: Option<&Arc<TempSpace>>) -> SqlResult<Arc<Statement>> {
        let failed = |attempt| match attempt {
            Attempt::Failed(e) => e,
            _ => SqlError::new(SqlState::SERIALIZATION_FAILURE, "could not serialize access due to concurrent update")
                .with_hint("Run the transaction again."),
        };
        if let Some(temp) = temp {
            let mut connection = self.connection_with(temp).map_err(failed)?;
            let described = describe_with(&temp.tables, &mut connection.conn, &self.schema(), sql, report);
            self.database.branches.give_back(connection);
            self.park();
            return described;
        }
        let mut connection = self.any_connection().map_err(failed)?;
        let described = describe(&mut connection.conn, sql, report);
        self.leave_in_place(connection);
        let schema = self.own.as_ref().map(|own| own.schema.clone()).unwrap_or_default();
        described.map(Arc::new).map_err(|e| to_sql(&e, sql, &schema))
    }

    /// A statement may have changed the schema: ids of tables that came or went with it are forgotten.
    pub(super) fn has_changed_schema(&mut self, own: Option<OwnSchema>) {
        if let Some(now) = &own {
            let before = self.own.as_ref().map_or_else(|| self.database.map(), |own| own.map.clone());
            if before.epoch != now.map.epoch {
                self.database.ids.schema_changed(&before, &now.map);
            }
        }
        self.own = own;
    }

    /// Some of its schema changes, or all, are not to be: ids of tables that never were are forgotten.
    pub(super) fn back_to_schema(&mut self, own: Option<OwnSchema>) {
        if let Some(gone) = std::mem::replace(&mut self.own, own) {
            let now = self.own.as_ref().map_or_else(|| self.database.map(), |own| own.map.clone());
            self.database.ids.schema_changed(&gone.map, &now);
        }
    }
}
