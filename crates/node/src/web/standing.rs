//! Which role the server has at the moment, and whether it admits clients.

use crate::activity::Watcher;
use holdfast_replication::Control;
use holdfast_web::figures::ServerRole;
use parking_lot::RwLock;
use std::sync::Arc;

/// Why clients are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Opening,
    /// A node must be master, and a majority of the control plane has not agreed.
    AsksControl,
    Stopping,
    /// It was deposed in order, and its sessions have ended.
    Deposed,
}

impl Why {
    /// What the server is meanwhile.
    fn role(self) -> ServerRole {
        match self {
            Why::Opening => ServerRole::Starting,
            Why::AsksControl => ServerRole::Waiting,
            Why::Stopping => ServerRole::Stopping,
            Why::Deposed => ServerRole::Deposed,
        }
    }
}

/// The server's present.
pub(crate) struct Standing {
    now: RwLock<Now>,
}

#[derive(Clone)]
pub(super) struct Now {
    /// `None`: clients are admitted.
    pub refuses: Option<Why>,
    /// The open directory.
    pub open: Option<Opened>,
}

/// What can be asked while the directory is open.
#[derive(Clone)]
pub(super) struct Opened {
    pub watcher: Watcher,
    pub control: Option<Arc<Control>>,
}

impl Default for Standing {
    fn default() -> Standing {
        Standing { now: RwLock::new(Now { refuses: Some(Why::Opening), open: None }) }
    }
}

impl Standing {
    /// Clients are refused from now on, or admitted.
    pub fn refuses(&self, why: Option<Why>) {
        self.now.write().refuses = why;
    }

    /// The directory is open.
    pub fn opened(&self, watcher: Watcher, control: Option<Arc<Control>>) {
        self.now.write().open = Some(Opened { watcher, control });
    }

    /// The directory is being closed.
    pub fn closed(&self) {
        self.now.write().open = None;
    }

    /// Clients are admitted.
    pub fn serves(&self) -> bool {
        let now = self.now.read();
        now.refuses.is_none() && now.open.is_some()
    }

    pub(super) fn now(&self) -> Now {
        self.now.read().clone()
    }
}

impl Now {
    /// The role; of a server that serves, what its engine is.
    pub(super) fn role(&self) -> ServerRole {
        if let Some(why) = self.refuses {
            return why.role();
        }
        match self.open.as_ref().and_then(|open| open.watcher.engine.read().clone()) {
            None => ServerRole::Starting,
            Some(engine) if engine.is_deposed() => ServerRole::Deposed,
            Some(engine) if engine.is_standby() => ServerRole::Standby,
            Some(_) => ServerRole::Master,
        }
    }
}
