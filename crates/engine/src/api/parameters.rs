//! Run-time parameters that sessions of a database or of a user start with: ALTER DATABASE ... SET and ALTER ROLE ...
//! SET. They stand in the list of databases, which is replaced as a whole and synced before the command is answered, and
//! in the trail, which carries them to standbys.
//!
//! The engine keeps them and does not know what they mean. A change holds for the sessions that begin after it.

use crate::api::engine::{Engine, no_such_database, stopped};
use crate::state::manifest::{Manifest, ParameterOwner, Parameters};
use holdfast_types::{Level, SqlResult};
use holdfast_types::{ParameterChange, ParametersOf, record};

fn apply(change: ParameterChange, parameters: &mut Parameters) {
    match change {
        ParameterChange::Set { name, value } => _ = parameters.insert(name, value),
        ParameterChange::Reset(name) => _ = parameters.remove(&name),
        ParameterChange::ResetAll => parameters.clear(),
    }
}

impl Engine {
    /// Those of a database.
    pub fn database_parameters(&self, name: &str) -> Vec<(String, String)> {
        let list = self.0.engine.visible.list();
        list.databases.iter().find(|e| e.name == name).map(|e| pairs(&e.parameters)).unwrap_or_default()
    }

    /// Those of a user.
    pub fn role_parameters(&self, name: &str) -> Vec<(String, String)> {
        let list = self.0.engine.visible.list();
        list.roles.iter().find(|r| r.name == name).map(|r| pairs(&r.parameters)).unwrap_or_default()
    }

    /// Changes them. Sessions get them, and this returns, when they have reached `level`; blocks.
    pub fn change_parameters(&self, of: &ParametersOf, change: ParameterChange, level: Level) -> SqlResult<()> {
        let engine = &self.0.engine;
        engine.refuse_on_standby("ALTER")?;
        let passed = {
            let _one_at_a_time = engine.cataloguing.lock();
            let (owner, mut parameters) = self.parameters_of(of)?;
            apply(change, &mut parameters);
            let mut body = Vec::new();
            let pairs = parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            let record_of = match &owner {
                ParameterOwner::Database(id) => record::ParametersOf::Database(*id),
                ParameterOwner::Role(name) => record::ParametersOf::Role(name),
            };
            record::put_parameters(&mut body, record_of, pairs);
            let set = move |manifest: &mut Manifest| manifest.set_parameters(&owner, parameters);
            let change = engine.visible.change(set.clone());
            let passed = self.log_change(body, level, &change)?;
            self.change_list(set)?;
            change.is_listed();
            passed
        };
        passed.recv().map_err(|_| stopped())
    }

    fn parameters_of(&self, of: &ParametersOf) -> SqlResult<(ParameterOwner, Parameters)> {
        let manifest = &self.0.engine.catalog.lock().manifest;
        match of {
            ParametersOf::Database(name) => {
                let entry = manifest.databases.iter().find(|e| e.name == *name);
                let entry = entry.ok_or_else(|| no_such_database(name))?;
                Ok((ParameterOwner::Database(entry.volume()), entry.parameters.clone()))
            }
            ParametersOf::Role(name) => {
                let role = manifest.roles.iter().find(|r| r.name == *name);
                Ok((ParameterOwner::Role(name.clone()), role.map(|r| r.parameters.clone()).unwrap_or_default()))
            }
        }
    }
}

fn pairs(parameters: &Parameters) -> Vec<(String, String)> {
    parameters.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}
