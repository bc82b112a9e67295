//! What the server reports of itself without a word: `progress`, written by the server, read by the supervisor.
//!
//! ```text
//! offset length
//!     64      8  newest tick on CLOCK_BOOTTIME, nanoseconds; a thread with no other work writes it every 25 ms
//!     72      8  when the sync of the trail began that has not returned, on CLOCK_BOOTTIME; 0: none is under way
//!     80      8  epoch of the open trail; 0: none is open
//!     88      8  LSN up to which the trail is durable
//!     96      8  zero
//!    104      8  state: 0 starting, 1 ready for clients, 2 stopping
//! ```
//!
//! A page whose file was removed is made again by the server, with the same words.
//!
//! Failure: a server that died leaves its last words; pid and start time tell whether it lives.

use super::map::{Map, WriteMap};
use super::{Head, create, open_to_read};
use crate::error::ClusterError;
use crate::process::Identity;
use std::path::Path;

const MAGIC: [u8; 8] = *b"HFPROGR1";
/// Name of the page in the runtime directory.
const NAME: &str = "progress";
const TICK: usize = 8;
const SYNC: usize = 9;
const EPOCH: usize = 10;
const DURABLE: usize = 11;
const STATE: usize = 13;

/// What the server is doing, as far as clients are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServerState {
    Starting,
    Ready,
    Stopping,
}

/// The page as the server writes it.
pub struct ProgressPage(WriteMap);

impl ProgressPage {
    pub fn create(dir: &Path, server: Identity) -> Result<ProgressPage, ClusterError> {
        create(&dir.join(NAME), Head { magic: MAGIC, epoch: 0, server }).map(ProgressPage)
    }

    /// Whether the page's file was removed. Without the directory there is no supervisor that could read it.
    pub fn is_missing(dir: &Path) -> bool {
        dir.exists() && !dir.join(NAME).exists()
    }

    /// Makes the page again if its file was removed; `true`: it has been made.
    pub fn restore(&mut self, dir: &Path, server: Identity) -> Result<bool, ClusterError> {
        if !ProgressPage::is_missing(dir) {
            return Ok(false);
        }
        let new = ProgressPage::create(dir, server)?;
        for word in [TICK, SYNC, EPOCH, DURABLE, STATE] {
            new.0.store(word, self.0.load(word));
        }
        *self = new;
        Ok(true)
    }

    pub fn tick(&self, boot_ns: u64) {
        self.0.store(TICK, boot_ns);
    }

    pub fn sync_began(&self, boot_ns: Option<u64>) {
        self.0.store(SYNC, boot_ns.unwrap_or(0));
    }

    pub fn trail(&self, epoch: u32, durable: u64) {
        self.0.store(DURABLE, durable);
        self.0.store(EPOCH, epoch.into());
    }

    pub fn state(&self, state: ServerState) {
        let word = match state {
            ServerState::Starting => 0,
            ServerState::Ready => 1,
            ServerState::Stopping => 2,
        };
        self.0.store(STATE, word);
    }
}

/// The page as the supervisor reads it.
pub struct Progress {
    map: Map,
    server: Identity,
}

impl Progress {
    pub fn open(dir: &Path) -> Result<Progress, ClusterError> {
        let (map, head) = open_to_read(&dir.join(NAME), MAGIC)?;
        Ok(Progress { map, server: head.server })
    }

    pub fn server(&self) -> Identity {
        self.server
    }

    pub fn tick_ns(&self) -> u64 {
        self.map.load(TICK)
    }

    /// When the sync that is under way began.
    pub fn sync_began_ns(&self) -> Option<u64> {
        Some(self.map.load(SYNC)).filter(|began| *began != 0)
    }

    /// The epoch of the trail and the LSN up to which it is durable; `None`: no trail is open.
    pub fn trail(&self) -> Option<(u64, u64)> {
        let epoch = self.map.load(EPOCH);
        (epoch != 0).then(|| (epoch, self.map.load(DURABLE)))
    }

    pub fn state(&self) -> ServerState {
        match self.map.load(STATE) {
            0 => ServerState::Starting,
            1 => ServerState::Ready,
            _ => ServerState::Stopping,
        }
    }
}
