//! Roles and privileges, as every crate shares them: the roles of a server ([`role`]), a change of them ([`change`]), the
//! privileges that an object's owner has granted ([`privilege`], [`acl`], [`grants`]), and who may use a database
//! ([`database`]); what a statement needs ([`needs`]) and whether a role has it ([`check`]). No I/O and no SQL; `engine` and
//! `store` keep them, `sql` reads statements about them, `node` checks them.
//!
//! Anchor: PostgreSQL 15, chapters 22 (Database Roles) and 5.7 (Privileges).

pub mod acl;
pub mod change;
pub mod check;
pub mod database;
pub mod grants;
pub mod needs;
pub mod predefined;
pub mod privilege;
pub mod role;

pub use change::{AccessChange, RoleChange, RoleChanges};
pub use check::Checker;
pub use database::DatabaseAccess;
pub use grants::{Grants, ObjectGrants};
pub use needs::{Access, Need, TableNeed};
pub use privilege::{Acl, AclItem, Privileges};
pub use role::{Membership, Role, RoleParameter, Roles};
