//! Run-time parameters that sessions of a database or of a user start with: ALTER DATABASE ... SET and ALTER ROLE ...
//! SET. They stand in the list of databases, which is replaced as a whole and synced before the command is answered.
//!
//! The engine keeps them and does not know what they mean. A change holds for the sessions that begin after it.

use super::*;
use crate::manifest::{Parameters, Role};

/// Whose parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParametersOf {
    Database(String),
    Role(String),
}

/// A change of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParameterChange {
    Set { name: String, value: String },
    Reset(String),
    ResetAll,
}

impl ParameterChange {
    fn apply(self, parameters: &mut Parameters) {
        match self {
            ParameterChange::Set { name, value } => _ = parameters.insert(name, value),
            ParameterChange::Reset(name) => _ = parameters.remove(&name),
            ParameterChange::ResetAll => parameters.clear(),
        }
    }
}

impl Engine {
    /// Those of a database.
    pub fn database_parameters(&self, name: &str) -> Vec<(String, String)> {
        let state = self.0.shared.state.lock();
        state.manifest.databases.iter().find(|e| e.name == name).map(|e| pairs(&e.parameters)).unwrap_or_default()
    }

    /// Those of a user.
    pub fn role_parameters(&self, name: &str) -> Vec<(String, String)> {
        let state = self.0.shared.state.lock();
        state.manifest.roles.iter().find(|r| r.name == name).map(|r| pairs(&r.parameters)).unwrap_or_default()
    }

    /// Changes them. Durable when it returns; blocks.
    pub fn change_parameters(&self, of: &ParametersOf, change: ParameterChange) -> SqlResult<()> {
        let shared = &self.0.shared;
        let mut state = shared.state.lock();
        let mut manifest = state.manifest.clone();
        match of {
            ParametersOf::Database(name) => {
                let entry = manifest.databases.iter_mut().find(|e| e.name == *name);
                change.apply(&mut entry.ok_or_else(|| no_such_database(name))?.parameters);
            }
            ParametersOf::Role(name) => change_role(&mut manifest, name, change),
        }
        manifest
            .write(&*shared.options.disk, &shared.dir)
            .map_err(|e| SqlError::new(SqlState::IO_ERROR, format!("cannot write the list of databases: {e}")))?;
        state.manifest = manifest;
        Ok(())
    }
}

fn pairs(parameters: &Parameters) -> Vec<(String, String)> {
    parameters.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// A user without parameters is not listed.
fn change_role(manifest: &mut Manifest, name: &str, change: ParameterChange) {
    let mut parameters = Parameters::new();
    if let Some(at) = manifest.roles.iter().position(|r| r.name == name) {
        parameters = manifest.roles.remove(at).parameters;
    }
    change.apply(&mut parameters);
    if !parameters.is_empty() {
        manifest.roles.push(Role { name: name.to_owned(), parameters });
    }
}
