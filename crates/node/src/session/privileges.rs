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
use holdfast_sql::{Entry, Translated};
use holdfast_types::access::{Access, Checker, Need, Privileges, Roles};
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlResult, SqlState};
use holdfast_wire::Client;
use std::sync::Arc;

/// What a statement is checked against after it has been prepared.
pub(super) struct LateCheck {
    schema: Arc<Schema>,
    roles: Arc<Roles>,
    role: u32,
    database_owner: u32,
    on_database: Privileges,
    access: Access,
    own: bool,
}

impl LateCheck {
    /// 42501 unless the role has what the statement needs. `last`: it is the last step of the translation.
    pub(super) fn check(&self, statement: &Statement, last: bool) -> SqlResult<()> {
        let own = self.own && last;
        let needs = access::of_touched(&statement.touched, &statement.sql, &self.access, own, &self.schema);
        let (schema, roles) = (&*self.schema, &*self.roles);
        let checker = Checker { schema, roles, database_owner: self.database_owner, on_database: self.on_database };
        checker.check(self.role, &needs)
    }
}

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

    /// Checks what the views in a statement touch, where the statement could be prepared only now; what it touches itself
    /// too, where the text is SQLite's own.
    pub(super) fn check_prepared_late(
        &self,
        statement: &Statement,
        translated: &Translated,
        last: bool,
    ) -> SqlResult<()> {
        self.late_check(translated).check(statement, last)
    }

    /// [`Self::check_prepared_late`] for another thread.
    pub(super) fn late_check(&self, translated: &Translated) -> LateCheck {
        let roles = self.roles();
        let database = roles.database(self.served.db.oid());
        LateCheck {
            schema: self.schema(),
            role: self.identity.current_role,
            on_database: database.privileges(&roles, self.identity.current_role),
            database_owner: database.owner,
            roles,
            access: translated.access.clone(),
            own: translated.access_after_prepare,
        }
    }

    /// Whether the current role may vacuum or analyze; the whole database is done, also for the owner of one table that
    /// the statement names. It is warned of each table that it does not own, as by PostgreSQL.
    pub(super) fn may_maintain(&self, number: usize, named: &[String], verb: &str, client: &mut Client) -> bool {
        let (roles, schema) = (self.roles(), self.schema());
        let checker = self.checker(&roles, &schema);
        let acting = checker.acting(self.identity.current_role);
        if checker.owns(&acting, checker.database_owner) {
            return true;
        }
        let is_named = |name: &str| named.is_empty() || named.iter().any(|n| n.eq_ignore_ascii_case(name));
        let mut owns = !named.is_empty();
        for table in schema.tables.iter().filter(|t| !t.temp && is_named(&t.name)) {
            if !checker.owns(&acting, schema.grants.owner(table.oid)) {
                owns = false;
                let message = format!("skipping \"{}\" --- only table or database owner can {verb} it", table.name);
                client.reply().script_until(number);
                client.reply().notice("WARNING", &SqlError::new(SqlState("01000"), message));
            }
        }
        owns
    }

    pub(super) fn checker<'a>(&self, roles: &'a Roles, schema: &'a Schema) -> Checker<'a> {
        let database = roles.database(self.served.db.oid());
        let on_database = database.privileges(roles, self.identity.current_role);
        Checker { schema, roles, database_owner: database.owner, on_database }
    }
}
