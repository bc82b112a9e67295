//! The functions that ask for privileges, and what `information_schema` shows to the current role.
//!
//! They become calls of functions that the server registers, because they need roles and grants as they are when the
//! statement runs: [`HAS_PRIVILEGE_FUNCTION`], [`MAY_SEE_FUNCTION`], [`ACL_DEFAULT_FUNCTION`].

use super::Binder;
use super::coerce::When;
use super::typed::{Shape, Typed};
use crate::names::quote_text;
use crate::params::SessionValue;
use crate::types::{Category, Type, more};
use holdfast_types::SqlResult;

/// Whether a role has a privilege: kind of object, role, object, column and privileges. Roles and objects are names or OIDs.
pub const HAS_PRIVILEGE_FUNCTION: &str = "hf_has_privilege";
/// Whether a role sees a row of `information_schema`: the view, the role and the names in the row.
pub const MAY_SEE_FUNCTION: &str = "hf_may_see";
/// The list that an object without grants stands for: kind of object, owner.
pub const ACL_DEFAULT_FUNCTION: &str = "hf_acldefault";

impl Binder<'_> {
    pub(super) fn privilege_call(&mut self, name: &str, args: &[Typed]) -> SqlResult<Option<Typed>> {
        if name == "acldefault" && args.len() == 2 {
            let kind = self.coerce(args[0].clone(), Type::TEXT, When::Explicit)?.sql;
            let owner = self.coerce(args[1].clone(), Type::OID, When::Assignment)?.sql;
            let sql = self.helper(ACL_DEFAULT_FUNCTION, &[&kind, &owner])?;
            return Ok(Some(Typed::new(sql, Type::new(more::ACLITEM_ARRAY))));
        }
        let kind = match name {
            "has_table_privilege" => "table",
            "has_any_column_privilege" => "any column",
            "has_column_privilege" => "column",
            "has_sequence_privilege" => "sequence",
            "has_schema_privilege" => "schema",
            "has_database_privilege" => "database",
            _ => return Ok(None),
        };
        let of_object = if kind == "column" { 3 } else { 2 };
        let (user, rest) = match args.len() {
            n if n == of_object => (self.session(SessionValue::User, Type::NAME)?.sql, args),
            n if n == of_object + 1 => (self.name_or_number(&args[0])?, &args[1..]),
            _ => return Ok(None),
        };
        let object = self.name_or_number(&rest[0])?;
        let column = if kind == "column" { self.name_or_number(&rest[1])? } else { "''".to_owned() };
        let privileges = self.coerce(rest[rest.len() - 1].clone(), Type::TEXT, When::Implicit)?.sql;
        let sql = self.helper(HAS_PRIVILEGE_FUNCTION, &[&quote_text(kind), &user, &object, &column, &privileges])?;
        Ok(Some(Typed::new(sql, Type::BOOL)))
    }

    /// An object or role, given by name or by number.
    fn name_or_number(&mut self, arg: &Typed) -> SqlResult<String> {
        let is_name = matches!(arg.shape, Shape::Text { .. }) || arg.ty.category() == Category::String;
        let ty = if is_name { Type::TEXT } else { Type::OID };
        Ok(self.coerce(arg.clone(), ty, if is_name { When::Implicit } else { When::Assignment })?.sql)
    }

    /// The rows of a view of `information_schema` that the current role sees; `None` where every role sees all.
    pub(super) fn seen_rows(&mut self, view: &str) -> SqlResult<Option<String>> {
        let columns = match view {
            "tables" | "views" | "table_constraints" => ["\"table_schema\"", "\"table_name\"", "''"],
            "sequences" => ["\"sequence_schema\"", "\"sequence_name\"", "''"],
            "columns" | "key_column_usage" => ["\"table_schema\"", "\"table_name\"", "\"column_name\""],
            "table_privileges" | "role_table_grants" | "column_privileges" | "role_column_grants"
            | "usage_privileges" | "role_usage_grants" => ["''", "\"grantor\"", "\"grantee\""],
            "enabled_roles" => ["''", "''", "\"role_name\""],
            "applicable_roles" | "administrable_role_authorizations" => ["''", "''", "\"grantee\""],
            _ => return Ok(None),
        };
        let user = self.session(SessionValue::User, Type::NAME)?.sql;
        let [a, b, c] = columns;
        self.helper(MAY_SEE_FUNCTION, &[&quote_text(view), &user, a, b, c]).map(Some)
    }
}
