//! Whether a client that has proved its identity gets a session: the role's and the database's own conditions, in
//! PostgreSQL's order.
//!
//! | condition | otherwise |
//! |---|---|
//! | the role exists | 28000 |
//! | LOGIN | 28000 |
//! | CONNECTION LIMIT of the role; not for superusers | 53300 |
//! | connections_per_address_max | 53300 |
//! | superuser_reserved_connections are left; not for superusers | 53300 |
//! | CONNECT on the database | 42501 |
//! | CONNECTION LIMIT of the database; not for superusers | 53300 |

use super::Admission;
use super::decide::unknown_role;
use super::failures::Origin;
use super::sessions::{CountedBy, Places};
use holdfast_types::access::{Privileges, Role, Roles};
use holdfast_types::{SqlError, SqlResult, SqlState};
use holdfast_wire::Startup;
use std::sync::Arc;

fn full(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::TOO_MANY_CONNECTIONS, message)
}

/// Whether a count that includes the new session exceeds a limit of PostgreSQL's kind: -1 is none.
fn exceeds(count: usize, limit: i32) -> bool {
    usize::try_from(limit).is_ok_and(|limit| count > limit)
}

impl Admission {
    /// Checks what does not depend on the database. The places are the session's as long as it lives.
    pub fn log_in(&self, startup: &Startup, roles: &Roles) -> SqlResult<(Arc<Role>, Places)> {
        let user = &startup.user;
        let role = roles.by_name(user).ok_or_else(|| unknown_role(user))?.clone();
        if !role.login {
            let message = format!("role \"{user}\" is not permitted to log in");
            return Err(SqlError::new(SqlState::INVALID_AUTHORIZATION_SPECIFICATION, message));
        }
        let mut places = Places::default();
        let count = self.sessions.take(&mut places, CountedBy::Role(role.oid));
        if exceeds(count, role.connection_limit) && !role.superuser {
            return Err(full(format!("too many connections for role \"{user}\"")));
        }
        let address = CountedBy::Address(Origin::of(startup.peer.address));
        let (count, limit) = (self.sessions.take(&mut places, address), self.limits.per_address_max);
        if limit > 0 && count > limit {
            return Err(full("too many connections from this address")
                .with_detail(format!("The limit is {limit} (connections_per_address_max).")));
        }
        if startup.sessions + self.limits.reserved > self.limits.connections_max && !role.superuser {
            return Err(full("remaining connection slots are reserved for non-replication superuser connections"));
        }
        Ok((role, places))
    }

    /// Checks the database.
    pub fn enter_database(
        &self,
        places: &mut Places,
        roles: &Roles,
        role: &Role,
        (oid, name): (u32, &str),
    ) -> SqlResult<()> {
        let access = roles.database(oid);
        if !access.privileges(roles, role.oid).contains(Privileges::CONNECT) {
            let message = format!("permission denied for database \"{name}\"");
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
                .with_detail("User does not have CONNECT privilege."));
        }
        let count = self.sessions.take(places, CountedBy::Database(oid));
        if exceeds(count, access.connection_limit) && !role.superuser {
            return Err(full(format!("too many connections for database \"{name}\"")));
        }
        Ok(())
    }
}
