//! The initial copy of a subscriber whose role has publications of a table and not the table: a COPY that is refused for the role's
//! privileges is answered from the publications' definitions ([`holdfast_sql::published_copy`]).
//!
//! | session, role | then |
//! |---|---|
//! | without `replication=database`, or the role has lost REPLICATION | refused as before |
//! | the role has SELECT on the table | as any other COPY; this module does nothing |
//! | it may follow publications that have the table | their rows and columns |
//!
//! Each execution is decided by roles and publications as they are then: nothing of it is kept, so a REVOKE counts at the next.
//!
//! Failure: the error that the statement has failed with; a condition that fails for a row ends the COPY with an error that shows
//! no value, because the row may be outside of the publication.

use super::node_session::NodeSession;
use super::source::Source;
use super::statement::uncached;
use crate::database::report_under;
use crate::plan::Extra;
use holdfast_sql::{Entry, Translated, published_copy};
use holdfast_types::access::{Need, Privileges, TableNeed};
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlResult, SqlState};
use holdfast_wire::Failure;
use std::sync::Arc;

/// Classes of errors that do not come from the values of rows: connection, transaction, resources, operator, system; and damage.
const WITHOUT_VALUES: [&str; 8] = ["08", "25", "40", "53", "55", "57", "58", "XX001"];

impl NodeSession {
    /// What answers a statement that was `refused`, where publications do; else that error.
    pub(super) fn published_copy(
        &self,
        source: &Source<'_>,
        schema: &Schema,
        refused: SqlError,
    ) -> SqlResult<Arc<Entry<Extra>>> {
        // A subscriber sends simple messages, and changes nothing in its transaction.
        let Source::Piece(piece, _) = source else { return Err(refused) };
        if !self.replication || self.writes_in_block() {
            return Err(refused);
        }
        let Some(translated) = self.of_publications(piece.text(), schema) else { return Err(refused) };
        let statement = self.served.db.prepare(&translated.steps[0].sql, report_under(&translated, schema))?;
        Ok(uncached(piece, schema.epoch, translated, Some(statement)))
    }

    /// The statement that answers a COPY from the publications that the role may follow.
    fn of_publications(&self, text: &str, schema: &Schema) -> Option<Translated> {
        let wanted = published_copy::wanted(text)?;
        let table = schema.tables.iter().find(|table| !table.temp && table.name == wanted.table)?;
        self.check_publisher().ok()?;
        let roles = self.roles();
        let checker = self.checker(&roles, schema);
        let acting = checker.acting(self.identity.current_role);
        if checker.on_table(&acting, table.oid).contains(Privileges::SELECT) {
            return None;
        }
        // The schema's privilege stays needed.
        let need = Need::Table(TableNeed { table: table.oid, privileges: Privileges::NONE, ..TableNeed::default() });
        checker.check(acting.role, [&need]).ok()?;
        let may_follow = schema.publications.list.iter().filter(|p| !checker.on_publication(&acting, p).is_empty());
        published_copy::answer(&wanted, table, may_follow, self.served.db.dialect())
    }
}

/// An error without what it may show of rows that are not published.
pub(super) fn without_values(failure: Failure) -> Failure {
    let SqlState(cause) = failure.error.state();
    if WITHOUT_VALUES.iter().any(|class| cause.starts_with(class)) {
        return failure;
    }
    let error = SqlError::new(SqlState("22000"), "a row of a published table cannot be copied")
        .with_detail(format!("The cause, {cause}, is not shown, because the row may be outside of the publication."))
        .with_hint("Check that the publication's WHERE condition can be computed for every row.");
    Failure { error, ..failure }
}
