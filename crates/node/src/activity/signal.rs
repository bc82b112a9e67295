//! Cancels and ends sessions for others: `pg_cancel_backend` and `pg_terminate_backend`, and the console's buttons.
//!
//! The rights are PostgreSQL's: a role may signal its own sessions, those of roles whose privileges it has, and with the
//! privileges of `pg_signal_backend` all but those of superusers. A refusal is 42501, in PostgreSQL's words.

use super::list::Activities;
use holdfast_types::access::Roles;
use holdfast_types::access::predefined::SIGNAL_BACKEND_OID;
use holdfast_types::{SqlError, SqlResult, SqlState};
use holdfast_wire::Cancel;

/// What is done to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Its statement ends with 57014. A commit that has begun is not interrupted.
    Cancel,
    /// The session ends with 57P01, and what it runs with it. A commit that has begun may take effect.
    Terminate,
}

impl Activities {
    /// Signals the session with this process number, on behalf of the role `by`. `false`: there is no such session.
    pub fn signal(&self, roles: &Roles, by: Option<u32>, signal: Signal, pid: i32) -> SqlResult<bool> {
        let Some(session) = self.sessions.lock().get(&pid).cloned() else { return Ok(false) };
        check(roles, by, signal, session.who.role)?;
        match signal {
            Signal::Cancel => session.canceller.cancel(),
            Signal::Terminate => session.canceller.terminate(),
        }
        Ok(true)
    }

    /// Whether a session has this process number.
    pub fn is_connected(&self, pid: i32) -> bool {
        self.sessions.lock().contains_key(&pid)
    }
}

fn check(roles: &Roles, by: Option<u32>, signal: Signal, owner: u32) -> SqlResult<()> {
    let refused = |cancel: &str, terminate: &str| {
        let message = if signal == Signal::Cancel { cancel } else { terminate };
        Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message))
    };
    let is_superuser = by.is_some_and(|by| roles.is_superuser(by));
    let has = |of: u32| by.is_some_and(|by| roles.has_privileges_of(by, of));
    if roles.is_superuser(owner) && !is_superuser {
        return refused(
            "must be a superuser to cancel superuser query",
            "must be a superuser to terminate superuser process",
        );
    }
    if !has(owner) && !has(SIGNAL_BACKEND_OID) {
        return refused(
            "must be a member of the role whose query is being canceled or member of pg_signal_backend",
            "must be a member of the role whose process is being terminated or member of pg_signal_backend",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_types::access::predefined::BOOTSTRAP_OID;
    use holdfast_types::access::{Membership, Role};

    #[test]
    fn the_rights_are_postgresqls() {
        let of = |role| vec![Membership { role, grantor: BOOTSTRAP_OID, admin: false }];
        let root = Role { superuser: true, ..Role::new(20_004, "root") };
        let roles = Roles::new(
            1,
            [
                Role::new(20_000, "ann"),
                Role { member_of: of(20_000), ..Role::new(20_001, "member") },
                Role { member_of: of(20_000), inherit: false, ..Role::new(20_002, "set_role_only") },
                Role { member_of: of(SIGNAL_BACKEND_OID), ..Role::new(20_003, "signals") },
                root,
            ],
        );
        let may = |by: Option<u32>, owner: u32| {
            let answers = [Signal::Cancel, Signal::Terminate].map(|signal| check(&roles, by, signal, owner).is_ok());
            assert_eq!(answers[0], answers[1]);
            answers[0]
        };
        for by in [20_000, 20_001, 20_003, 20_004, BOOTSTRAP_OID] {
            assert!(may(Some(by), 20_000), "{by}");
        }
        assert!(!may(Some(20_002), 20_000) && !may(Some(20_000), 20_001) && !may(None, 20_000));
        assert!(may(Some(20_004), BOOTSTRAP_OID) && !may(Some(20_003), 20_004) && !may(Some(20_000), BOOTSTRAP_OID));
    }
}
