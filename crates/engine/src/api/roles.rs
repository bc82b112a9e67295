//! Roles, and the owners and grants of databases: part of the list of databases, and records in the trail.
//!
//! The engine keeps them and enforces what must hold whatever a statement says: names and OIDs are unique, memberships name
//! roles that exist and make no circle, and a change is made to the state from which it was computed. Who may change
//! what is checked where the statements are read.
//!
//! A change is durable and has reached its level before any session sees it, see [`crate::state::visible_list`].
//!
//! Failure: a change that was overtaken by another one is 40001 and leaves everything as it is.

use crate::api::engine::{Engine, stopped};
use crate::state::manifest::Manifest;
use holdfast_types::access::{DatabaseAccess, RoleChanges, Roles};
use holdfast_types::{Level, SqlError, SqlResult, SqlState, VolumeId};
use std::sync::Arc;

impl Engine {
    /// All roles, and who may use which database: the newest state that has passed the gate.
    pub fn roles(&self) -> Arc<Roles> {
        self.0.engine.visible.roles()
    }

    /// The version of [`Engine::roles`]; costs one load.
    pub fn roles_version(&self) -> u64 {
        self.0.engine.visible.roles_version()
    }

    /// Number of the volume of a database, by its name, as role parameters name it.
    pub fn volume_of(&self, database: &str) -> Option<VolumeId> {
        let list = self.0.engine.visible.list();
        list.databases.iter().find(|e| e.name == database).map(|e| e.volume())
    }

    /// Owner and grants of a database, by its name.
    pub(crate) fn access_of(&self, database: &str) -> DatabaseAccess {
        let list = self.0.engine.visible.list();
        list.databases.iter().find(|e| e.name == database).map(|e| e.access()).unwrap_or_default()
    }

    /// The parameters that sessions of a role start with, in this database or in all; later ones win.
    pub fn role_parameters(&self, role: &str, database: &str) -> Vec<(String, String)> {
        let volume = self.volume_of(database);
        let roles = self.roles();
        let Some(role) = roles.by_name(role) else { return Vec::new() };
        let holds = |of: VolumeId| of.0 == 0 || Some(of) == volume;
        let mut found: Vec<_> = role.parameters.iter().filter(|p| holds(p.database)).collect();
        found.sort_by_key(|p| p.database);
        found.into_iter().map(|p| (p.name.clone(), p.value.clone())).collect()
    }

    /// An OID for a new role. It is not given to another one, whether the role is made or not.
    pub fn reserve_role_oid(&self) -> SqlResult<u32> {
        let mut state = self.0.engine.catalog.lock();
        let oid = state.manifest.next_role;
        let next = oid.checked_add(1);
        state.manifest.next_role =
            next.ok_or_else(|| SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "no OID is left for a new role"))?;
        Ok(oid)
    }

    /// Changes roles, and owners and grants of databases, as a whole. Sessions see it, and this returns, when it has
    /// reached `level`; blocks.
    pub fn change_roles(&self, changes: RoleChanges, level: Level) -> SqlResult<()> {
        let engine = &self.0.engine;
        engine.refuse_on_standby("ALTER ROLE")?;
        if changes.is_empty() {
            return Ok(());
        }
        let passed = {
            let _one_at_a_time = engine.cataloguing.lock();
            let changes = engine.catalog.lock().manifest.check_changes(changes)?;
            let body = changes.body();
            let set = move |manifest: &mut Manifest| changes.apply(manifest);
            let change = engine.visible.change(set.clone());
            let passed = self.log_change(body, level, &change)?;
            self.change_list(set)?;
            change.is_listed();
            passed
        };
        passed.recv().map_err(|_| stopped())
    }
}
