//! Roles and privileges, as every crate shares them: the roles of a server ([`role`]), a change of them ([`change`]), the
//! privileges that an object's owner has granted ([`privilege`]), and who may use a database ([`database`]). No I/O and no
//! SQL; `engine` stores them, `sql` reads statements about them, `node` checks them.
//!
//! Anchor: PostgreSQL 15, chapters 22 (Database Roles) and 5.7 (Privileges).

pub mod change;
pub mod database;
pub mod predefined;
pub mod privilege;
pub mod role;

pub use change::{AccessChange, RoleChange, RoleChanges};
pub use database::DatabaseAccess;
pub use privilege::{Acl, AclItem, Privileges};
pub use role::{Membership, Role, RoleParameter, Roles};
