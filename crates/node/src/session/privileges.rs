//! Checks the privileges of a statement before it runs.
//!
//! A statement that has passed for a role is not checked again for it until the roles change: its translation belongs to
//! one epoch of the schema, and a GRANT raises that.
//!
//! Failure: 42501 in PostgreSQL's words; nothing has run then.

use super::node_session::NodeSession;
use crate::access;
use crate::plan::Extra;
use holdfast_engine::Statement;
use holdfast_sql::Entry;
use holdfast_types::SqlResult;
use holdfast_types::access::{Access, Checker, Need, Roles};
use holdfast_types::schema::Schema;

impl NodeSession {
    /// 42501 unless the current role has what the statement needs. `schema`: the one that it was translated under.
    pub(super) fn check_access(&self, entry: &Entry<Extra>, schema: &Schema) -> SqlResult<()> {
        let role = self.identity.current_role;
        let version = self.roles_version();
        if entry.has_passed(role, version) {
            return Ok(());
        }
        let needs = access::needs(entry, schema);
        self.check_needs(&needs, schema)?;
        entry.pass(role, version);
        Ok(())
    }

    /// 42501 unless the current role has all of `needs`.
    pub(super) fn check_needs(&self, needs: &[Need], schema: &Schema) -> SqlResult<()> {
        if needs.is_empty() {
            return Ok(());
        }
        let roles = self.roles();
        self.checker(&roles, schema).check(self.identity.current_role, needs)
    }

    /// Checks what the views in a statement touch, where the statement could be prepared only now.
    pub(super) fn check_prepared_late(&self, statement: &Statement, own: bool) -> SqlResult<()> {
        let schema = self.schema();
        let needs = access::of_touched(&statement.touched, &statement.sql, &Access::default(), own, &schema);
        self.check_needs(&needs, &schema)
    }

    pub(super) fn checker<'a>(&self, roles: &'a Roles, schema: &'a Schema) -> Checker<'a> {
        let database = roles.database(self.served.db.oid());
        let on_database = database.privileges(roles, self.identity.current_role);
        Checker { schema, roles, database_owner: database.owner, on_database }
    }
}
