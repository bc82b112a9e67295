//! CREATE ROLE, ALTER ROLE and ALTER ROLE ... RENAME.

use super::{RESERVED_DETAIL, RESERVED_NAME, Work, denied, is_reserved, reserved};
use holdfast_scram::{ITERATIONS_MAX, Verifier, verifier};
use holdfast_sql::{RoleOption, RoleSpec};
use holdfast_types::access::Role;
use holdfast_types::access::predefined::BOOTSTRAP_OID;
use holdfast_types::{SqlError, SqlResult, SqlState};

/// The smallest CONNECTION LIMIT, which means none.
const NO_LIMIT: i32 = -1;

impl Work<'_> {
    pub(super) fn create(&mut self, name: &str, user: bool, options: &[RoleOption]) -> SqlResult<()> {
        if options.contains(&RoleOption::SysId) {
            self.notice("NOTICE", "00000", "SYSID can no longer be specified".to_owned());
        }
        check_limit(options)?;
        let wants = |option: RoleOption| options.contains(&option);
        if wants(RoleOption::Superuser(true)) {
            self.superuser_only("must be superuser to create superusers")?;
        } else if wants(RoleOption::Replication(true)) {
            self.superuser_only("must be superuser to create replication users")?;
        } else if wants(RoleOption::BypassRls(true)) {
            self.superuser_only("must be superuser to create bypassrls users")?;
        } else if !self.may_create_roles() {
            return Err(denied("permission denied to create role"));
        }
        if is_reserved(name) {
            return Err(reserved(name).with_detail(RESERVED_DETAIL));
        }
        if self.roles.by_name(name).is_some() {
            return Err(already_exists(name));
        }
        let oid = (self.scope.new_oid)()?;
        let role = Role { login: user, ..Role::new(oid, name) };
        let role = self.with_options(role, options)?;
        self.set(oid, Some(role));
        let this = [RoleSpec::Name(name.to_owned())];
        let grantor = self.scope.current;
        for option in options {
            match option {
                RoleOption::InRole(roles) => {
                    for of in roles {
                        let of = self.role(of)?;
                        self.add_members(of.oid, &this, grantor, false)?;
                    }
                }
                RoleOption::Members(members) => self.add_members(oid, members, grantor, false)?,
                RoleOption::Admins(members) => self.add_members(oid, members, grantor, true)?,
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn alter(&mut self, spec: &RoleSpec, options: &[RoleOption]) -> SqlResult<()> {
        check_not_reserved(spec)?;
        check_limit(options)?;
        let role = self.role(spec)?;
        let sets = |words: &str| options.iter().any(|option| option.words() == words);
        if role.superuser || sets("SUPERUSER") {
            self.superuser_only("must be superuser to alter superuser roles or change superuser attribute")?;
        } else if role.replication || sets("REPLICATION") {
            self.superuser_only("must be superuser to alter replication roles or change replication attribute")?;
        } else if sets("BYPASSRLS") {
            self.superuser_only("must be superuser to change bypassrls attribute")?;
        } else if !self.may_create_roles() {
            let own_password = sets("PASSWORD") && options.len() == 1 && role.oid == self.scope.current;
            if !own_password {
                return Err(denied("permission denied"));
            }
        }
        let loses = |option: RoleOption| role.oid == BOOTSTRAP_OID && options.contains(&option);
        if loses(RoleOption::Superuser(false)) || loses(RoleOption::Login(false)) {
            let message = "the bootstrap superuser must keep the attributes SUPERUSER and LOGIN";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("A rule in pg_hba.conf can refuse its connections."));
        }
        let after = self.with_options(Role::clone(&role), options)?;
        self.set(role.oid, Some(after));
        Ok(())
    }

    pub(super) fn rename(&mut self, name: &str, to: &str) -> SqlResult<()> {
        let role = self.by_name(name)?;
        let unsupported = |message: &str| Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        if role.oid == self.scope.session {
            return unsupported("session user cannot be renamed");
        }
        if role.oid == self.scope.current {
            return unsupported("current user cannot be renamed");
        }
        if let Some(name) = [&*role.name, to].into_iter().find(|name| is_reserved(name)) {
            return Err(reserved(name).with_detail(RESERVED_DETAIL));
        }
        if self.roles.by_name(to).is_some() {
            return Err(already_exists(to));
        }
        if role.superuser {
            self.superuser_only("must be superuser to rename superusers")?;
        } else if !self.may_create_roles() {
            return Err(denied("permission denied to rename role"));
        }
        if role.oid == BOOTSTRAP_OID {
            return unsupported("the bootstrap superuser cannot be renamed");
        }
        self.set(role.oid, Some(Role { name: to.to_owned(), ..Role::clone(&role) }));
        Ok(())
    }

    pub(super) fn superuser_only(&self, message: &str) -> SqlResult<()> {
        if self.superuser() { Ok(()) } else { Err(denied(message)) }
    }

    fn with_options(&mut self, mut role: Role, options: &[RoleOption]) -> SqlResult<Role> {
        for option in options {
            match option {
                RoleOption::Superuser(on) => role.superuser = *on,
                RoleOption::CreateDb(on) => role.create_db = *on,
                RoleOption::CreateRole(on) => role.create_role = *on,
                RoleOption::Inherit(on) => role.inherit = *on,
                RoleOption::Login(on) => role.login = *on,
                RoleOption::Replication(on) => role.replication = *on,
                RoleOption::BypassRls(on) => role.bypass_rls = *on,
                RoleOption::ConnectionLimit(limit) => role.connection_limit = *limit,
                RoleOption::Password(password) => role.password = self.verifier(password.as_deref())?,
                RoleOption::ValidUntil(text) => {
                    role.valid_until_us = Some(holdfast_sql::types::instant_us(text)?);
                }
                RoleOption::InRole(_) | RoleOption::Members(_) | RoleOption::Admins(_) | RoleOption::SysId => {}
            }
        }
        Ok(role)
    }

    /// The verifier that is stored for what PASSWORD names: a password, or a verifier as it is.
    fn verifier(&mut self, password: Option<&str>) -> SqlResult<Option<String>> {
        let Some(password) = password else { return Ok(None) };
        let given = Verifier::parse(password);
        if let Some(iterations) = given.as_ref().map(Verifier::iterations).filter(|n| *n > ITERATIONS_MAX) {
            let message = format!("the verifier has {iterations} iterations; the limit is {ITERATIONS_MAX}");
            return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message)
                .with_hint("Set the password itself, or a verifier with fewer iterations."));
        }
        if password.is_empty() || given.as_ref().is_some_and(|verifier| verifier.accepts("")) {
            let message = "empty string is not a valid password, clearing password";
            self.notice("NOTICE", "00000", message.to_owned());
            return Ok(None);
        }
        if is_md5(password) {
            return Err(SqlError::unsupported("an MD5 password")
                .with_hint("Set the password itself, or a SCRAM-SHA-256 verifier."));
        }
        if given.is_some() { Ok(Some(password.to_owned())) } else { verifier(password).map(Some) }
    }
}

/// A verifier of the form that PostgreSQL wrote before SCRAM.
fn is_md5(text: &str) -> bool {
    text.len() == 35 && text.strip_prefix("md5").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn already_exists(name: &str) -> SqlError {
    SqlError::new(SqlState::DUPLICATE_OBJECT, format!("role \"{name}\" already exists"))
}

pub(super) fn check_not_reserved(spec: &RoleSpec) -> SqlResult<()> {
    match spec {
        RoleSpec::Name(name) if is_reserved(name) => {
            let message = format!("role name \"{name}\" is reserved");
            Err(SqlError::new(RESERVED_NAME, message).with_detail("Cannot alter reserved roles."))
        }
        _ => Ok(()),
    }
}

fn check_limit(options: &[RoleOption]) -> SqlResult<()> {
    let limit =
        options.iter().find_map(|o| if let RoleOption::ConnectionLimit(limit) = o { Some(*limit) } else { None });
    limit.map_or(Ok(()), check_connection_limit)
}

/// 22023 for a limit below -1.
pub(super) fn check_connection_limit(limit: i32) -> SqlResult<()> {
    if limit >= NO_LIMIT {
        return Ok(());
    }
    Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("invalid connection limit: {limit}")))
}
