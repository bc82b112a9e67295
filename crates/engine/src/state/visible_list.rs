//! The list of databases as sessions see it: the list on disk, as far as it has passed the gate.
//!
//! A database that comes or goes, parameters and roles are written to the trail and `databases.toml` first. No session sees the
//! change before its record has reached its level (guarantee 2): until then the master could lose it.
//!
//! The roles in it are kept as one shared state ([`Roles`]) with a number that rises with each change of the list.
//!
//! Failure: none here. A change that never passes is never seen; the next start begins with the list on disk.

use crate::state::database::database_oid;
use crate::state::manifest::Manifest;
use holdfast_types::VolumeId;
use holdfast_types::access::Roles;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// See the module.
pub struct VisibleList {
    list: Mutex<Manifest>,
    changed: Condvar,
    /// Replaced while `list` is locked.
    roles: Mutex<Arc<Roles>>,
    roles_version: AtomicU64,
}

/// The roles of a list.
fn roles_of(list: &Manifest, version: u64) -> Arc<Roles> {
    let mut roles = Roles::new(version, list.stored_roles());
    list.databases.iter().for_each(|e| roles.put_database(database_oid(e.volume()), e.access()));
    Arc::new(roles)
}

type Make = Box<dyn FnOnce(&mut Manifest) + Send>;

/// A change on its way to the list: made by the later of [`Change::is_listed`] and [`Change::has_passed`].
pub struct Change {
    of: Arc<VisibleList>,
    state: Mutex<(bool, Option<Make>)>,
}

impl VisibleList {
    pub fn new(list: Manifest) -> Arc<VisibleList> {
        let roles = Mutex::new(roles_of(&list, 1));
        let roles_version = AtomicU64::new(1);
        Arc::new(VisibleList { list: Mutex::new(list), changed: Condvar::new(), roles, roles_version })
    }

    pub fn list(&self) -> MutexGuard<'_, Manifest> {
        self.list.lock()
    }

    /// The list as a start or a standby finds it.
    pub fn replace(&self, list: Manifest) {
        self.update(|visible| *visible = list);
    }

    /// All roles, and who may use which database.
    pub fn roles(&self) -> Arc<Roles> {
        self.roles.lock().clone()
    }

    /// The version of [`VisibleList::roles`], without a lock.
    pub fn roles_version(&self) -> u64 {
        self.roles_version.load(Ordering::Acquire)
    }

    fn update(&self, make: impl FnOnce(&mut Manifest)) {
        let mut list = self.list.lock();
        make(&mut list);
        let mut roles = self.roles.lock();
        *roles = roles_of(&list, roles.version + 1);
        self.roles_version.store(roles.version, Ordering::Release);
        drop((roles, list));
        self.changed.notify_all();
    }

    /// Waits until a database that is on disk is visible. Returns false if it never will be.
    pub fn wait_for(&self, id: VolumeId, failed: &AtomicBool) -> bool {
        let mut list = self.list.lock();
        loop {
            if list.databases.iter().any(|e| e.volume() == id) {
                return true;
            }
            if failed.load(Ordering::Acquire) {
                return false;
            }
            self.changed.wait(&mut list);
        }
    }

    /// Lets sessions that wait look whether everything has failed.
    pub fn wake(&self) {
        drop(self.list.lock());
        self.changed.notify_all();
    }

    pub fn change(self: &Arc<VisibleList>, make: impl FnOnce(&mut Manifest) + Send + 'static) -> Arc<Change> {
        Arc::new(Change { of: self.clone(), state: Mutex::new((false, Some(Box::new(make)))) })
    }
}

impl Change {
    /// The list on disk contains the change.
    pub fn is_listed(&self) {
        self.step();
    }

    /// The record of the change has passed the gate.
    pub fn has_passed(&self) {
        self.step();
    }

    fn step(&self) {
        let make = {
            let mut state = self.state.lock();
            if std::mem::replace(&mut state.0, true) { state.1.take() } else { None }
        };
        if let Some(make) = make {
            self.of.update(make);
        }
    }
}
