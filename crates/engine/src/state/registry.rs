//! The open databases of an engine, each with the thread of its writer.

use crate::state::database::{DatabaseState, Peers};
use holdfast_types::VolumeId;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// The open databases: see the module.
#[derive(Default)]
pub struct Registry(Mutex<OpenDatabases>);

#[derive(Default)]
pub struct OpenDatabases {
    pub open: BTreeMap<VolumeId, Open>,
    /// The engine is being closed: no more databases are opened.
    pub closed: bool,
}

/// An open database.
pub struct Open {
    pub database: Arc<DatabaseState>,
    /// Its writer's thread, until it is stopped; a standby's database has none.
    pub writer: Option<JoinHandle<()>>,
}

impl Registry {
    pub fn lock(&self) -> MutexGuard<'_, OpenDatabases> {
        self.0.lock()
    }

    /// The list as a database sees it.
    pub fn peers(self: &Arc<Registry>) -> Weak<dyn Peers> {
        Arc::<Registry>::downgrade(self)
    }

    /// An open database by number.
    pub fn get(&self, id: VolumeId) -> Option<Arc<DatabaseState>> {
        self.lock().open.get(&id).map(|open| open.database.clone())
    }

    /// Drops the answers that wait for something that will not happen.
    pub fn drop_answers(&self) {
        self.all().into_iter().for_each(|database| database.waiting.lock().clear());
    }
}

impl Peers for Registry {
    fn all(&self) -> Vec<Arc<DatabaseState>> {
        self.lock().open.values().map(|open| open.database.clone()).collect()
    }
}
