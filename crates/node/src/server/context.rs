//! What a server keeps when it changes its role: its settings, its name, its part in the control plane, its listener.

use super::NodeError;
use super::refusing::Refusing;
use super::returning::{Returned, come_back};
use super::signals::Signals;
use crate::admission::Admission;
use crate::backup::Backups;
use crate::config::Config;
use crate::web::{Standing, Why};
use holdfast_engine::OpenError;
use holdfast_replication::{
    Certificates, Control, ControlSetupError, Followed, Listener, Position, Promotion, StandbyFile, is_return_under_way,
};
use holdfast_trail::{Inspection, Outline, Trail};
use holdfast_types::Epoch;
use holdfast_wire::TlsSlot;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What does not change with the role.
pub(super) struct ServerContext {
    pub dir: PathBuf,
    pub config: Config,
    /// What SHOW has of the sockets that the server listens on.
    pub parameters: Vec<(&'static str, String)>,
    pub tls: TlsSlot,
    pub name: String,
    pub certificates: Option<Certificates>,
    pub control: Option<Arc<Control>>,
    pub listener: Arc<Listener>,
    pub followed: Followed,
    pub admission: Arc<Admission>,
    pub standing: Arc<Standing>,
    pub backups: Arc<Backups>,
}

/// What a server begins with that is not a standby.
pub(super) enum Begin {
    /// The epoch that the control plane has agreed on; `None` without a control plane.
    At(Option<Epoch>),
    /// It was stopped while it waited.
    Stopped,
}

impl ServerContext {
    /// The epoch of a server that is to be the master: asks the control plane, and waits until that agrees.
    pub fn epoch_to_serve(
        &self,
        refusing: &Refusing,
        links: &tokio::runtime::Handle,
        clients: &tokio::runtime::Runtime,
        signals: &mut Signals,
    ) -> Result<Begin, NodeError> {
        let Some(control) = &self.control else { return Ok(Begin::At(None)) };
        loop {
            let is_standby = StandbyFile::read(&self.dir)?.is_some();
            let returns = control.is_supervised() && is_return_under_way(&self.dir);
            if is_standby && !returns {
                return Ok(Begin::At(None));
            }
            refusing.begin(Why::AsksControl)?;
            let agreed = match returns {
                true => None,
                false => {
                    let (end, accept_loss) = (trail_end(&self.dir)?, self.config.accept_divergence);
                    let asking = links.spawn(control.clone().start_as_master(end, accept_loss));
                    let Some(agreed) = until(clients, signals, asking)? else { return Ok(Begin::Stopped) };
                    Some(agreed)
                }
            };
            match agreed {
                Some(Err(ControlSetupError::AnotherIsMaster { .. })) if control.is_supervised() => {}
                Some(agreed) => return Ok(Begin::At(Some(agreed?))),
                None => {}
            }
            let coming = links.spawn(come_back(control.clone(), self.dir.clone(), self.name.clone()));
            match until(clients, signals, coming)? {
                None => return Ok(Begin::Stopped),
                Some(Returned::Standby) => return Ok(Begin::At(None)),
                Some(Returned::IsMaster) if is_standby => return Ok(Begin::At(None)),
                Some(Returned::IsMaster) => {}
                Some(Returned::Failed(error)) => return Err(error.into()),
            }
        }
    }

    pub fn release_lease(&self, links: &tokio::runtime::Handle, epoch: Option<Epoch>) {
        if let (Some(control), Some(epoch)) = (&self.control, epoch) {
            control.release_lease(links, epoch);
        }
    }

    /// After a failed promotion the server stays a standby. If the directory is no longer a standby's, the server ends: the next
    /// start recovers it.
    pub fn promotion_failed(
        &self,
        links: &tokio::runtime::Handle,
        Promotion { epoch, reply, .. }: Promotion,
        before: Option<Epoch>,
        error: NodeError,
    ) -> Result<(), NodeError> {
        self.release_lease(links, epoch);
        // Without a control plane no other node knows the new epoch. If it stayed, a running master would see it and regard
        // itself as deposed. An epoch that the group has agreed on stays: the group has deposed the old master already.
        let withdrawn = before
            .filter(|_| epoch.is_none())
            .map(|before| Trail::withdraw_epoch(&holdfast_seams::RealDisk::new(), &self.dir.join("trail"), before));
        if let Some(Err(why)) = withdrawn {
            tracing::error!("the epoch of the failed promotion cannot be withdrawn: {why}");
        }
        drop(reply.send(Err(error.to_string())));
        if StandbyFile::read(&self.dir)?.is_none() {
            return Err(error);
        }
        tracing::error!("the promotion failed, this server stays a standby: {error}");
        Ok(())
    }
}

/// Waits for a task; `None`: the server is to stop.
fn until<T>(
    clients: &tokio::runtime::Runtime,
    signals: &mut Signals,
    task: tokio::task::JoinHandle<T>,
) -> io::Result<Option<T>> {
    clients.block_on(async {
        tokio::select! {
            () = signals.come() => Ok(None),
            done = task => done.map(Some).map_err(io::Error::other),
        }
    })
}

/// The last epoch in the directory's trail; `None`: there is no trail.
pub(super) fn last_epoch(dir: &Path) -> Result<Option<Epoch>, NodeError> {
    let outline = Outline::of(&holdfast_seams::RealDisk::new(), &dir.join("trail")).map_err(OpenError::from)?;
    Ok(outline.map(|outline| outline.epoch))
}

/// The last epoch in the directory's trail, and its end; `None`: there is no trail.
fn trail_end(dir: &Path) -> Result<Option<Position>, NodeError> {
    if !dir.join("trail").is_dir() {
        return Ok(None);
    }
    let found = Inspection::of(&holdfast_seams::RealDisk::new(), &dir.join("trail")).map_err(OpenError::from)?;
    Ok(found.map(|inspection| Position { epoch: inspection.epoch, lsn: inspection.end.0 }))
}
