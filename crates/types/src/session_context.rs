//! What a statement knows of the session that sends it: [`SessionContext`].
//!
//! It travels with the statement. SQL functions and the catalogue's tables that depend on the session are answered from it.

use crate::access::Roles;
use crate::session_settings::SessionSettings;
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct SessionContext {
    /// The role that receives the results: tables that show what sessions do hide from it what it may not see. `None`: not
    /// known, so that everything is hidden which some role may not see.
    pub viewer: Option<u32>,
    /// All roles as the session sees them; `None`: its open transaction has changed none.
    pub own_roles: Option<Arc<Roles>>,
    /// The parameters of the session, for a statement that reads or sets them; `None` for any other.
    pub settings: Option<Arc<dyn SessionSettings>>,
}

impl SessionContext {
    /// Of a statement that no session sends: one of the server's own, or of a program that uses the library.
    pub const NONE: SessionContext = SessionContext { viewer: None, own_roles: None, settings: None };
}
