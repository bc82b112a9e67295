//! Granting and revoking: how one GRANT or REVOKE changes an object's list.
//!
//! The rules are PostgreSQL's (`aclchk.c`, `acl.c`): a grantor needs the grant option; a superuser and a member of the
//! owner act as the owner; revoking a grant option also revokes what was granted by it, with CASCADE, or fails without.
//!
//! Failure: 0LP01 for grant options to PUBLIC or in a circle, 2BP01 for dependent privileges.

use super::predefined::PUBLIC_OID;
use super::privilege::{Acl, AclItem, Privileges};
use super::role::Roles;
use crate::{SqlError, SqlResult, SqlState};

/// 0LP01.
pub const INVALID_GRANT: SqlState = SqlState("0LP01");
/// 2BP01.
const DEPENDENT: SqlState = SqlState("2BP01");

/// What a GRANT or REVOKE does to each of its objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub grant: bool,
    /// WITH GRANT OPTION, or REVOKE GRANT OPTION FOR.
    pub option: bool,
    pub cascade: bool,
    /// OIDs; PUBLIC is [`PUBLIC_OID`].
    pub grantees: Vec<u32>,
}

/// The privileges that `grantee` itself holds in the list, PUBLIC's not included; with `options` those it may grant.
fn held(acl: &[AclItem], grantee: u32, options: bool) -> Privileges {
    let of = |item: &AclItem| if options { item.grantable } else { item.granted };
    acl.iter().filter(|item| item.grantee == grantee).fold(Privileges::NONE, |sum, item| sum | of(item))
}

/// What `roles` (a role with those whose privileges it has) may do by the list.
pub fn granted_to(acl: &[AclItem], roles: &[u32]) -> Privileges {
    let applies = |item: &&AclItem| item.grantee == PUBLIC_OID || roles.contains(&item.grantee);
    acl.iter().filter(applies).fold(Privileges::NONE, |sum, item| sum | item.granted)
}

/// Chooses as whom `role` grants or revokes `privileges`, and which of them it may.
pub fn best_grantor(
    roles: &Roles,
    role: u32,
    privileges: Privileges,
    acl: &[AclItem],
    owner: u32,
) -> (u32, Privileges) {
    if role == owner || roles.is_superuser(role) {
        return (owner, privileges);
    }
    let mut best = (role, Privileges::NONE);
    for other in roles.privileges_from(role) {
        let options = if other == owner { privileges } else { held(acl, other, true) & privileges };
        if options == privileges {
            return (other, options);
        }
        if options.0.count_ones() > best.1.0.count_ones() {
            best = (other, options);
        }
    }
    best
}

/// The list after the change, made by `grantor`.
pub fn changed(acl: &[AclItem], change: &Change, privileges: Privileges, grantor: u32, owner: u32) -> SqlResult<Acl> {
    let mut acl = acl.to_vec();
    for grantee in &change.grantees {
        if change.grant && change.option && *grantee == PUBLIC_OID {
            return Err(SqlError::new(INVALID_GRANT, "grant options can only be granted to roles"));
        }
        let granted = if change.grant || !change.option { privileges } else { Privileges::NONE };
        let grantable = if !change.grant || change.option { privileges } else { Privileges::NONE };
        let item = AclItem { grantee: *grantee, grantor, granted, grantable };
        acl = match change.grant {
            true => added(acl, &item, owner)?,
            false => removed(acl, &item, owner, change.cascade)?,
        };
    }
    Ok(acl)
}

fn added(mut acl: Acl, item: &AclItem, owner: u32) -> SqlResult<Acl> {
    if !item.grantable.is_empty() {
        check_circle(&acl, item, owner)?;
    }
    match acl.iter_mut().find(|i| i.grantee == item.grantee && i.grantor == item.grantor) {
        Some(found) => {
            found.granted |= item.granted;
            found.grantable |= item.grantable;
        }
        None => acl.push(*item),
    }
    Ok(acl)
}

fn removed(mut acl: Acl, item: &AclItem, owner: u32, cascade: bool) -> SqlResult<Acl> {
    let Some(at) = acl.iter().position(|i| i.grantee == item.grantee && i.grantor == item.grantor) else {
        return Ok(acl);
    };
    let lost = acl[at].grantable & item.grantable;
    acl[at].granted = acl[at].granted & !item.granted;
    acl[at].grantable = acl[at].grantable & !item.grantable;
    if acl[at].granted.is_empty() && acl[at].grantable.is_empty() {
        acl.remove(at);
    }
    match lost.is_empty() {
        true => Ok(acl),
        false => without_dependents(acl, item.grantee, lost, owner, cascade),
    }
}

/// Removes what `grantee` granted by options that it no longer has.
fn without_dependents(mut acl: Acl, grantee: u32, lost: Privileges, owner: u32, cascade: bool) -> SqlResult<Acl> {
    // The owner never loses its grant options.
    let lost = lost & !held(&acl, grantee, true);
    if grantee == owner || lost.is_empty() {
        return Ok(acl);
    }
    while let Some(next) = acl.iter().find(|i| i.grantor == grantee && !(i.granted & lost).is_empty()).copied() {
        if !cascade {
            return Err(
                SqlError::new(DEPENDENT, "dependent privileges exist").with_hint("Use CASCADE to revoke them too.")
            );
        }
        let item = AclItem { grantee: next.grantee, grantor: grantee, granted: lost, grantable: lost };
        acl = removed(acl, &item, owner, true)?;
    }
    Ok(acl)
}

/// 0LP01 where the grantor's own grant options come from the grantee.
fn check_circle(acl: &[AclItem], item: &AclItem, owner: u32) -> SqlResult<()> {
    if item.grantor == owner {
        return Ok(());
    }
    let mut without = acl.to_vec();
    while let Some(own) = without.iter().find(|i| i.grantee == item.grantee && !i.grantable.is_empty()).copied() {
        without = removed(without, &own, owner, true)?;
    }
    match held(&without, item.grantor, true).contains(item.grantable) {
        true => Ok(()),
        false => Err(SqlError::new(INVALID_GRANT, "grant options cannot be granted back to your own grantor")),
    }
}

/// The list after the object has passed from one owner to another: grants of and to the old owner become those of the new.
pub fn with_new_owner(acl: &[AclItem], old: u32, new: u32) -> Acl {
    let now = |oid: u32| if oid == old { new } else { oid };
    let mut out: Acl = Vec::new();
    for item in acl {
        let item = AclItem { grantee: now(item.grantee), grantor: now(item.grantor), ..*item };
        match out.iter_mut().find(|i| i.grantee == item.grantee && i.grantor == item.grantor) {
            Some(found) => {
                found.granted |= item.granted;
                found.grantable |= item.grantable;
            }
            None => out.push(item),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: u32 = 1;
    const SELECT: Privileges = Privileges::SELECT;

    fn change(grant: bool, option: bool, cascade: bool, to: u32) -> Change {
        Change { grant, option, cascade, grantees: vec![to] }
    }

    #[test]
    fn revoking_a_grant_option_revokes_what_depends_on_it() {
        let own = vec![AclItem { grantee: OWNER, grantor: OWNER, granted: SELECT, grantable: Privileges::NONE }];
        let two = changed(&own, &change(true, true, false, 2), SELECT, OWNER, OWNER).unwrap();
        let three = changed(&two, &change(true, true, false, 3), SELECT, 2, OWNER).unwrap();
        let refused = changed(&three, &change(false, true, false, 2), SELECT, OWNER, OWNER).unwrap_err();
        assert_eq!(refused.state(), DEPENDENT);
        let left = changed(&three, &change(false, true, true, 2), SELECT, OWNER, OWNER).unwrap();
        let kept = AclItem { grantee: 2, grantor: OWNER, granted: SELECT, grantable: Privileges::NONE };
        assert_eq!(left, [own[0], kept]);
    }

    #[test]
    fn grant_options_do_not_go_in_a_circle_nor_to_public() {
        let two = changed(&[], &change(true, true, false, 2), SELECT, OWNER, OWNER).unwrap();
        let three = changed(&two, &change(true, true, false, 3), SELECT, 2, OWNER).unwrap();
        let back = changed(&three, &change(true, true, false, 2), SELECT, 3, OWNER).unwrap_err();
        assert_eq!(back.state(), INVALID_GRANT);
        assert!(changed(&[], &change(true, true, false, PUBLIC_OID), SELECT, OWNER, OWNER).is_err());
    }

    #[test]
    fn a_list_follows_its_owner() {
        let item = |grantee, grantor, granted| AclItem { grantee, grantor, granted, grantable: Privileges::NONE };
        let acl = [item(1, 1, SELECT), item(2, 1, Privileges::INSERT)];
        let both = SELECT | Privileges::INSERT;
        assert_eq!(with_new_owner(&acl, 1, 2), [item(2, 2, both)]);
    }
}
