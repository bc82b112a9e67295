//! The lease page of the present mastership, and what is left of earlier ones.
//!
//! | event | the page |
//! |---|---|
//! | the server is promoted | made, for this server's process alone |
//! | the server releases its lease, or ends | closed for good, then the group is asked |
//! | a later mastership | removed: the server that had mapped it sees it closed |
//!
//! Failure: a page that cannot be read is removed; no server holds a lease by it, because a server maps it when it is made.

use crate::error::ClusterError;
use crate::page::{GrantorPage, lease_pages};
use crate::process::Identity;
use holdfast_types::Epoch;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub struct Pages {
    dir: PathBuf,
    current: Mutex<Option<Arc<GrantorPage>>>,
}

impl Pages {
    pub fn new(dir: PathBuf) -> Pages {
        Pages { dir, current: Mutex::default() }
    }

    pub fn current(&self) -> Option<Arc<GrantorPage>> {
        self.current.lock().clone()
    }

    /// Makes the page of a mastership that this server has got.
    pub fn make(&self, epoch: Epoch, server: Identity) -> Result<Arc<GrantorPage>, ClusterError> {
        let page = Arc::new(GrantorPage::create(&self.dir, epoch, server)?);
        if let Some(old) = self.current.lock().replace(page.clone()) {
            old.close();
            remove(old.path());
        }
        Ok(page)
    }

    /// Ends the right of a server's process at once; returns the epoch in which it had one.
    pub fn close_for(&self, server: Identity) -> Option<Epoch> {
        let page = self.current().filter(|page| page.server() == server && !page.is_closed())?;
        page.close();
        Some(page.epoch())
    }

    /// Ends the right of this epoch at once.
    pub fn close(&self, epoch: Epoch) {
        if let Some(page) = self.current().filter(|page| page.epoch() == epoch) {
            page.close();
        }
    }

    /// The group does not count with this lease any more.
    pub fn forget(&self, epoch: Epoch) {
        let mut current = self.current.lock();
        if let Some(page) = current.take_if(|page| page.epoch() == epoch) {
            page.close();
            remove(page.path());
        }
    }

    /// Takes over what an earlier supervisor left: the newest page, if it is open and of this server; all others are closed.
    /// Returns the newest epoch among those that were closed now.
    pub fn take_over(&self, server: Option<Identity>) -> Result<Option<Epoch>, ClusterError> {
        let mut closed = None;
        let found = lease_pages(&self.dir)?;
        for path in &found {
            let page = match GrantorPage::open(path) {
                Ok(page) => page,
                Err(error) => {
                    tracing::warn!("{error}; it is removed");
                    remove(path);
                    continue;
                }
            };
            // Only the newest one can be of a mastership that lasts.
            if found.last() == Some(path) && !page.is_closed() && Some(page.server()) == server {
                *self.current.lock() = Some(Arc::new(page));
                continue;
            }
            if !page.is_closed() {
                page.close();
                closed = Some(page.epoch());
            }
            remove(path);
        }
        Ok(closed)
    }
}

/// A page that stays is closed, and takes a few kilobytes.
fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::debug!("{} cannot be removed: {error}", path.display());
    }
}
