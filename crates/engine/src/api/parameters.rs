//! Run-time parameters that sessions of a database or of a role start with: ALTER DATABASE ... SET and ALTER ROLE ...
//! SET. They stand in the list of databases, which is replaced as a whole and synced before the command is answered, and
//! in the trail, which carries them to standbys. Those of all roles are among what the nodes of a server share. Those of a role are part of the role ([`crate::Engine::change_roles`]).
//!
//! The engine keeps them and does not know what they mean. A change holds for the sessions that begin after it.

use crate::api::engine::{Engine, no_such_database, stopped};
use crate::state::manifest::{Manifest, ParameterOwner, Parameters};
use holdfast_types::{Level, SqlResult};
use holdfast_types::{ParameterChange, VolumeId, record};

/// What begins the names of the parameters of all roles among what every node of the server shares.
const OF_ALL: &str = "all/";

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

    /// Changes those of a database. Sessions get them, and this returns, when they have reached `level`; blocks.
    pub fn change_parameters(&self, database: &str, change: ParameterChange, level: Level) -> SqlResult<()> {
        self.0.engine.refuse_on_standby("ALTER")?;
        self.replace_parameters(level, || {
            let (id, mut parameters) = self.parameters_of(database)?;
            apply(change, &mut parameters);
            Ok((ParameterOwner::Database(id), parameters))
        })
    }

    /// What every node of the server shares, by name.
    pub fn server_parameters(&self) -> Vec<(String, String)> {
        let mut shared = pairs(&self.0.engine.visible.list().server);
        shared.retain(|(name, _)| !name.starts_with(OF_ALL));
        shared
    }

    /// Replaces what every node of the server shares. Returns when it has reached `level`; blocks.
    pub fn set_server_parameters(&self, shared: Vec<(String, String)>, level: Level) -> SqlResult<()> {
        self.0.engine.refuse_on_standby("a change of what all nodes share")?;
        self.replace_parameters(level, || {
            let mut server = self.0.engine.catalog.lock().manifest.server.clone();
            server.retain(|name, _| name.starts_with(OF_ALL));
            server.extend(shared);
            Ok((ParameterOwner::Server, server))
        })
    }

    /// Those of all roles.
    pub fn parameters_of_all(&self) -> Vec<(String, String)> {
        let list = self.0.engine.visible.list();
        let of_all = |(name, value): (&String, &String)| Some((name.strip_prefix(OF_ALL)?.to_owned(), value.clone()));
        list.server.iter().filter_map(of_all).collect()
    }

    /// Changes those of all roles. Sessions get them, and this returns, when they have reached `level`; blocks.
    pub fn change_parameters_of_all(&self, change: ParameterChange, level: Level) -> SqlResult<()> {
        self.0.engine.refuse_on_standby("ALTER")?;
        self.replace_parameters(level, || {
            let server = self.0.engine.catalog.lock().manifest.server.clone();
            let (of_all, mut others): (Parameters, Parameters) =
                server.into_iter().partition(|(name, _)| name.starts_with(OF_ALL));
            let mut of_all = of_all.into_iter().map(|(name, value)| (name.replacen(OF_ALL, "", 1), value)).collect();
            apply(change, &mut of_all);
            others.extend(of_all.into_iter().map(|(name, value)| (format!("{OF_ALL}{name}"), value)));
            Ok((ParameterOwner::Server, others))
        })
    }

    /// Writes parameters to the trail and to the list; `of` finds out which, while no other change is under way.
    fn replace_parameters(
        &self,
        level: Level,
        of: impl FnOnce() -> SqlResult<(ParameterOwner, Parameters)>,
    ) -> SqlResult<()> {
        let engine = &self.0.engine;
        let passed = {
            let _one_at_a_time = engine.cataloguing.lock();
            let (owner, parameters) = of()?;
            let mut body = Vec::new();
            let pairs = parameters.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            record::put_parameters(&mut body, owner.in_record(), pairs);
            let set = move |manifest: &mut Manifest| manifest.set_parameters(&owner, parameters);
            let change = engine.visible.change(set.clone());
            let passed = self.log_change(body, level, &change)?;
            self.change_list(set)?;
            change.is_listed();
            passed
        };
        passed.recv().map_err(|_| stopped())
    }

    fn parameters_of(&self, database: &str) -> SqlResult<(VolumeId, Parameters)> {
        let manifest = &self.0.engine.catalog.lock().manifest;
        let entry = manifest.databases.iter().find(|e| e.name == database);
        let entry = entry.ok_or_else(|| no_such_database(database))?;
        Ok((entry.volume(), entry.parameters.clone()))
    }
}

fn pairs(parameters: &Parameters) -> Vec<(String, String)> {
    parameters.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
}
