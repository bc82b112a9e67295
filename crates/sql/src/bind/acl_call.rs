//! Functions on lists of grants: `aclexplode`, `aclcontains`, `makeaclitem`.
//!
//! A list holds the names of roles, so these become calls of functions that the server registers: only it knows the roles.
//! `aclexplode` stands in FROM only, where its argument may name columns of the tables before it.

use super::Binder;
use super::coerce::When;
use super::query::derived;
use super::scope::{Column, Relation, Source};
use super::typed::Typed;
use crate::names::quote;
use crate::types::{Type, more};
use holdfast_types::SqlResult;
use holdfast_types::desc::oid;

/// The items of a list as a JSON array of `[grantor, grantee, privilege, is_grantable]`.
pub const ACL_ITEMS_FUNCTION: &str = "hf_acl_items";
/// Whether a list contains an item.
pub const ACL_CONTAINS_FUNCTION: &str = "hf_acl_contains";
/// The item of grantee, grantor, privilege and whether it is grantable.
pub const MAKE_ACL_ITEM_FUNCTION: &str = "hf_make_aclitem";

impl Binder<'_> {
    pub(super) fn acl_call(&mut self, name: &str, args: &[Typed]) -> SqlResult<Option<Typed>> {
        Ok(match (name, args) {
            ("aclcontains", [list, item]) => {
                let list = self.coerce(list.clone(), Type::new(more::ACLITEM_ARRAY), When::Implicit)?.sql;
                let item = self.coerce(item.clone(), Type::new(more::ACLITEM), When::Implicit)?.sql;
                Some(Typed::new(self.helper(ACL_CONTAINS_FUNCTION, &[&list, &item])?, Type::BOOL))
            }
            ("makeaclitem", [grantee, grantor, privilege, grantable]) => {
                let grantee = self.coerce(grantee.clone(), Type::OID, When::Implicit)?.sql;
                let grantor = self.coerce(grantor.clone(), Type::OID, When::Implicit)?.sql;
                let privilege = self.coerce(privilege.clone(), Type::TEXT, When::Implicit)?.sql;
                let grantable = self.coerce(grantable.clone(), Type::BOOL, When::Implicit)?.sql;
                let sql = self.helper(MAKE_ACL_ITEM_FUNCTION, &[&grantee, &grantor, &privilege, &grantable])?;
                Some(Typed::new(sql, Type::new(more::ACLITEM)))
            }
            _ => None,
        })
    }

    /// `aclexplode` in FROM: its columns carry these names, as far as there are names.
    pub(super) fn acl_explode(
        &mut self,
        list: Typed,
        shown: String,
        names: &[String],
    ) -> SqlResult<(String, Relation)> {
        let list = self.coerce(list, Type::new(more::ACLITEM_ARRAY), When::Implicit)?.sql;
        let items = self.helper(ACL_ITEMS_FUNCTION, &[&list])?;
        let alias = quote(&shown);
        let column = |(at, (name, ty)): (usize, (&str, Type))| Column {
            sql: Some(format!("json_extract({alias}.\"value\", '$[{at}]')")),
            ..derived(names.get(at).map_or(name, |n| n), ty)
        };
        let columns = [
            ("grantor", Type::OID),
            ("grantee", Type::OID),
            ("privilege_type", Type::new(oid::TEXT)),
            ("is_grantable", Type::BOOL),
        ];
        let columns = columns.into_iter().enumerate().map(column).collect();
        Ok((format!("json_each({items}) AS {alias}"), Relation::new(shown, columns, Source::Function)))
    }
}
