//! Roles and access to databases as records: the layout of the kinds 8, 9 and 10.
//!
//! Each record holds all of what it is about, so that the last one counts and replaying one twice changes nothing.
//!
//! | field of a role | bytes |
//! |---|---|
//! | name | string |
//! | attributes | u16: 1 superuser, 2 inherit, 4 create role, 8 create database, 16 login, 32 replication, 64 bypass row security |
//! | connection limit | i32 |
//! | password | u8 (0: none), then the verifier as a string; never a password |
//! | valid until | u8 (0: always), then i64 microseconds since 1970-01-01 UTC |
//! | memberships | count u32, then each role u32, grantor u32, with admin option u8 |
//! | parameters | count u32, then each database's volume u32 (0: every database), name string, value string |
//!
//! | field of a database's access | bytes |
//! |---|---|
//! | owner | u32 |
//! | connection limit | i32 |
//! | grants | u8 (0: the initial ones), then count u32, then each grantee u32 (0: PUBLIC), grantor u32, privileges u16, those with grant option u16 |
//!
//! Failure: see [`super`].

use super::DecodeError;
use super::bytes::{Cursor, put_bytes};
use crate::access::{AclItem, DatabaseAccess, Membership, Privileges, Role, RoleParameter};
use crate::ids::VolumeId;

/// A role in a record.
#[derive(Clone, Copy, Debug)]
pub struct RoleBody<'a> {
    oid: u32,
    body: Cursor<'a>,
}

impl<'a> RoleBody<'a> {
    /// Takes a role from the front; its bytes are checked.
    pub(super) fn take(oid: u32, cursor: &mut Cursor<'a>) -> Result<RoleBody<'a>, DecodeError> {
        let body = *cursor;
        take_role(oid, cursor)?;
        Ok(RoleBody { oid, body })
    }

    pub fn role(&self) -> Result<Role, DecodeError> {
        take_role(self.oid, &mut self.body.clone())
    }
}

/// Access to a database in a record.
#[derive(Clone, Copy, Debug)]
pub struct AccessBody<'a> {
    body: Cursor<'a>,
}

impl<'a> AccessBody<'a> {
    /// Takes it from the front; its bytes are checked.
    pub(super) fn take(cursor: &mut Cursor<'a>) -> Result<AccessBody<'a>, DecodeError> {
        let body = *cursor;
        take_access(cursor)?;
        Ok(AccessBody { body })
    }

    pub fn access(&self) -> Result<DatabaseAccess, DecodeError> {
        take_access(&mut self.body.clone())
    }
}

pub(super) fn put_role_body(buf: &mut Vec<u8>, role: &Role) {
    put_bytes(buf, role.name.as_bytes());
    let attributes = attributes(role).iter().enumerate().fold(0u16, |sum, (bit, on)| sum | u16::from(*on) << bit);
    buf.extend_from_slice(&attributes.to_le_bytes());
    buf.extend_from_slice(&role.connection_limit.to_le_bytes());
    buf.push(u8::from(role.password.is_some()));
    role.password.iter().for_each(|verifier| put_bytes(buf, verifier.as_bytes()));
    buf.push(u8::from(role.valid_until_us.is_some()));
    role.valid_until_us.iter().for_each(|us| buf.extend_from_slice(&us.to_le_bytes()));
    put_count(buf, role.member_of.len());
    for Membership { role, grantor, admin } in &role.member_of {
        buf.extend_from_slice(&role.to_le_bytes());
        buf.extend_from_slice(&grantor.to_le_bytes());
        buf.push(u8::from(*admin));
    }
    put_count(buf, role.parameters.len());
    for RoleParameter { database, name, value } in &role.parameters {
        buf.extend_from_slice(&database.0.to_le_bytes());
        put_bytes(buf, name.as_bytes());
        put_bytes(buf, value.as_bytes());
    }
}

fn attributes(role: &Role) -> [bool; 7] {
    let Role { superuser, inherit, create_role, create_db, login, replication, bypass_rls, .. } = role;
    [*superuser, *inherit, *create_role, *create_db, *login, *replication, *bypass_rls]
}

fn take_role(oid: u32, c: &mut Cursor<'_>) -> Result<Role, DecodeError> {
    let mut role = Role::new(oid, c.string()?);
    let at = c.at();
    let attributes = c.u16()?;
    if attributes >= 1 << 7 {
        return Err(DecodeError::Tag { what: "role attributes", tag: (attributes >> 7) as u8, at });
    }
    let has = |bit: u16| attributes & 1 << bit != 0;
    (role.superuser, role.inherit, role.create_role, role.create_db) = (has(0), has(1), has(2), has(3));
    (role.login, role.replication, role.bypass_rls) = (has(4), has(5), has(6));
    role.connection_limit = c.u32()? as i32;
    role.password = if take_flag(c)? { Some(c.string()?.to_owned()) } else { None };
    role.valid_until_us = if take_flag(c)? { Some(c.u64()? as i64) } else { None };
    for _ in 0..c.u32()? {
        role.member_of.push(Membership { role: c.u32()?, grantor: c.u32()?, admin: take_flag(c)? });
    }
    for _ in 0..c.u32()? {
        let database = VolumeId(c.u32()?);
        role.parameters.push(RoleParameter { database, name: c.string()?.to_owned(), value: c.string()?.to_owned() });
    }
    Ok(role)
}

pub(super) fn put_access_body(buf: &mut Vec<u8>, access: &DatabaseAccess) {
    buf.extend_from_slice(&access.owner.to_le_bytes());
    buf.extend_from_slice(&access.connection_limit.to_le_bytes());
    buf.push(u8::from(access.acl.is_some()));
    let Some(acl) = &access.acl else { return };
    put_count(buf, acl.len());
    for AclItem { grantee, grantor, granted, grantable } in acl {
        buf.extend_from_slice(&grantee.to_le_bytes());
        buf.extend_from_slice(&grantor.to_le_bytes());
        buf.extend_from_slice(&granted.0.to_le_bytes());
        buf.extend_from_slice(&grantable.0.to_le_bytes());
    }
}

fn take_access(c: &mut Cursor<'_>) -> Result<DatabaseAccess, DecodeError> {
    let (owner, connection_limit) = (c.u32()?, c.u32()? as i32);
    let mut acl = take_flag(c)?.then(Vec::new);
    if let Some(acl) = &mut acl {
        for _ in 0..c.u32()? {
            let (grantee, grantor) = (c.u32()?, c.u32()?);
            acl.push(AclItem { grantee, grantor, granted: Privileges(c.u16()?), grantable: Privileges(c.u16()?) });
        }
    }
    Ok(DatabaseAccess { owner, connection_limit, acl })
}

fn put_count(buf: &mut Vec<u8>, count: usize) {
    buf.extend_from_slice(&(count as u32).to_le_bytes());
}

fn take_flag(c: &mut Cursor<'_>) -> Result<bool, DecodeError> {
    let at = c.at();
    match c.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        tag => Err(DecodeError::Tag { what: "flag", tag, at }),
    }
}
