//! Statements about roles and access to databases in a session, and SET ROLE.
//!
//! | state | statement | then |
//! |---|---|---|
//! | idle | CREATE ROLE and the like | made at once; answered when it has reached its level |
//! | block | CREATE ROLE and the like | kept in the block; the session's own statements see it |
//! | block | COMMIT | made with the block's other changes, see [`super::transaction`] |
//! | block | ROLLBACK, ROLLBACK TO | forgotten, as far as it was made since |
//!
//! The role whose rights count is part of the settings, so that a rollback restores it.
//!
//! Failure: 42501 and the other errors of PostgreSQL ([`crate::roles`]); 40001 at COMMIT where another session has changed
//! the same roles.

use super::blocking::blocking;
use super::node_session::NodeSession;
use super::values::{ROLE_PARAMETER, SESSION_PARAMETER};
use crate::roles::{self, Outcome, Scope};
use holdfast_sql::{Notice, RoleStatement};
use holdfast_types::access::{RoleChanges, Roles};
use holdfast_types::{SqlError, SqlResult, SqlState};
use holdfast_wire::Client;

impl NodeSession {
    /// What a statement about roles is run against.
    pub(super) fn scope(&self) -> Scope {
        let databases = self.databases.clone();
        let (new_oid, objects_of) = (databases.clone(), databases.clone());
        let (here, schema) = (self.identity.database.clone(), self.schema());
        Scope {
            roles: self.roles(),
            current: self.identity.current_role,
            session: self.identity.session_role,
            databases: databases.listed(),
            objects_of: Box::new(move |oid| objects_of.objects_of(oid, &here, &schema)),
            new_oid: Box::new(move || new_oid.reserve_role_oid()),
        }
    }

    /// Runs a statement about roles or access to databases.
    pub(super) async fn role_statement(
        &mut self,
        number: usize,
        statement: &RoleStatement,
        verb: &str,
        client: &mut Client,
    ) -> SqlResult<()> {
        let read_only = match self.state.block() {
            Some(block) => block.read_only,
            None => self.default_read_only(),
        };
        if read_only || self.standby {
            let message = format!("cannot execute {verb} in a read-only transaction");
            return Err(SqlError::new(SqlState::READ_ONLY_SQL_TRANSACTION, message));
        }
        let (scope, statement) = (self.scope(), statement.clone());
        // A verifier costs thousands of hashes, and objects may be in databases that are not open yet.
        let Outcome { changes, notices } = blocking(move || roles::run(&scope, &statement)).await?;
        give(number, &notices, client);
        match self.state.block() {
            Some(block) => {
                block.queried = true;
                block.role_changes.append(changes);
                Ok(())
            }
            None => self.change_roles(changes).await,
        }
    }

    /// Makes changes; returns when they have reached their level.
    pub(super) async fn change_roles(&mut self, changes: RoleChanges) -> SqlResult<()> {
        let (databases, level) = (self.databases.clone(), self.settings.level());
        self.activity.until_durable(level, blocking(move || databases.change_roles(changes, level))).await
    }

    /// SET ROLE and SET SESSION AUTHORIZATION, and their RESET (without a name).
    pub(super) fn set_role(&mut self, parameter: &str, name: Option<&str>, local: bool) -> SqlResult<()> {
        let roles = self.roles();
        let found = match name {
            None => None,
            Some("none") if parameter == ROLE_PARAMETER => None,
            Some(name) => Some(self.may_become(&roles, parameter, name)?),
        };
        let mut set = vec![(parameter, found.as_ref().map(|(name, _)| name.as_str()))];
        if parameter == SESSION_PARAMETER {
            // The session's new role has set no role.
            set.push((ROLE_PARAMETER, None));
        }
        for (parameter, value) in set {
            let undo = self.settings.set(parameter, value, local)?;
            self.state.block().into_iter().for_each(|block| block.undo.push(undo.clone()));
        }
        if let Some((name, oid)) = found {
            self.identity.named.insert(name, oid);
        }
        self.identity.follow(&self.settings);
        Ok(())
    }

    /// The role of this name, if the session may take it.
    fn may_become(&self, roles: &Roles, parameter: &str, name: &str) -> SqlResult<(String, u32)> {
        let missing = || SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("role \"{name}\" does not exist"));
        let oid = roles.by_name(name).ok_or_else(missing)?.oid;
        let denied = |message: String| Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        let authenticated = self.identity.authenticated_role;
        if parameter == ROLE_PARAMETER {
            if !roles.is_member_of(self.identity.session_role, oid) {
                return denied(format!("permission denied to set role \"{name}\""));
            }
        } else if oid != authenticated && !roles.is_superuser(authenticated) {
            return denied("permission denied to set session authorization".to_owned());
        }
        Ok((name.to_owned(), oid))
    }

    /// 42501 unless the current role is a superuser.
    pub(super) fn superuser_only(&self, message: impl FnOnce() -> String) -> SqlResult<()> {
        if self.roles().is_superuser(self.identity.current_role) {
            return Ok(());
        }
        Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message()))
    }
}

/// Sends notices before the answer.
fn give(number: usize, notices: &[Notice], client: &mut Client) {
    if !notices.is_empty() {
        client.reply().script_until(number);
    }
    for notice in notices {
        client.reply().notice(notice.severity, &SqlError::new(notice.state, notice.message.as_str()));
    }
}
