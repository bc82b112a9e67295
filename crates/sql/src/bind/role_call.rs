//! `pg_has_role`, and names of roles as OIDs (`regrole`).
//!
//! Both become subqueries on the catalogue. A name of no role is an error when the statement runs.

use super::Binder;
use super::catalogue_call::lookup;
use super::coerce::When;
use super::typed::{Shape, Typed};
use crate::names::quote_text;
use crate::params::SessionValue;
use crate::types::{Category, Type, more};
use holdfast_types::{SqlError, SqlResult, SqlState};

/// What `pg_has_role` asks about.
enum Has {
    Member,
    Usage,
    Admin,
}

impl Binder<'_> {
    /// `pg_has_role([user,] role, privilege)`.
    pub(super) fn has_role(&mut self, args: &[Typed]) -> SqlResult<Typed> {
        let (user, role, privilege) = match args {
            [role, privilege] => (None, role, privilege),
            [user, role, privilege] => (Some(user), role, privilege),
            _ => return Err(SqlError::internal("pg_has_role has two or three arguments")),
        };
        let may_be_null = !role.not_null || user.is_some_and(|user| !user.not_null);
        let member = match user {
            Some(user) => self.role_oid(user)?,
            None => {
                let current = self.session(SessionValue::User, Type::NAME)?;
                self.role_oid(&current)?
            }
        };
        let role = self.role_oid(role)?;
        let condition = match privilege_of(privilege)? {
            Has::Member => "1",
            Has::Usage => "\"hf row\".\"usage\"",
            Has::Admin => "\"hf row\".\"admin\"",
        };
        let sql = format!(
            "EXISTS (SELECT 1 FROM pg_catalog.\"hf_role_reach\" AS \"hf row\" WHERE \"hf row\".\"member\" = {member} \
             AND \"hf row\".\"role\" = {role} AND {condition})"
        );
        if may_be_null {
            let sql = format!("(CASE WHEN {member} IS NOT NULL AND {role} IS NOT NULL THEN {sql} END)");
            return Ok(Typed::new(sql, Type::BOOL));
        }
        Ok(Typed::sure(sql, Type::BOOL))
    }

    /// The OID of a role that is given by name or by OID.
    fn role_oid(&mut self, role: &Typed) -> SqlResult<String> {
        let is_name = matches!(role.shape, Shape::Text { .. }) || role.ty.category() == Category::String;
        if !is_name {
            return Ok(self.coerce(role.clone(), Type::OID, When::Assignment)?.sql);
        }
        let name = self.coerce(role.clone(), Type::TEXT, When::Implicit)?.sql;
        self.role_by_name(&name)
    }

    /// SQL for the OID of the role with a name, which is SQL as well.
    fn role_by_name(&mut self, name: &str) -> SqlResult<String> {
        let missing = self.helper("hf_no_role", &[name])?;
        Ok(format!("coalesce({}, {missing})", lookup("pg_roles", "rolname", name)))
    }

    /// `'name'::regrole`; `name` is folded already.
    pub(super) fn regrole(&mut self, name: &str) -> SqlResult<Typed> {
        if let Ok(oid) = name.parse::<u32>() {
            return Ok(Typed::sure(oid.to_string(), Type::new(more::REGROLE)));
        }
        let sql = self.role_by_name(&quote_text(name))?;
        Ok(Typed::sure(sql, Type::new(more::REGROLE)))
    }
}

fn privilege_of(privilege: &Typed) -> SqlResult<Has> {
    let Shape::Text { value, .. } = &privilege.shape else {
        return Err(SqlError::unsupported("pg_has_role with a privilege that is not a constant"));
    };
    // Several are joined by commas; it is enough to have one.
    let mut found = None;
    for word in value.split(',') {
        let has = match word.trim().to_ascii_uppercase().as_str() {
            "MEMBER" => Has::Member,
            "USAGE" => Has::Usage,
            "MEMBER WITH ADMIN OPTION"
            | "MEMBER WITH GRANT OPTION"
            | "USAGE WITH ADMIN OPTION"
            | "USAGE WITH GRANT OPTION" => Has::Admin,
            _ => {
                let message = format!("unrecognized privilege type: \"{}\"", word.trim());
                return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, message));
            }
        };
        found = match (found, has) {
            (None, has) => Some(has),
            (Some(Has::Member), _) | (_, Has::Member) => Some(Has::Member),
            (Some(Has::Usage), _) | (_, Has::Usage) => Some(Has::Usage),
            (Some(Has::Admin), Has::Admin) => Some(Has::Admin),
        };
    }
    Ok(found.unwrap_or(Has::Admin))
}
