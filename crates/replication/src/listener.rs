//! Accepts the links of other nodes: on the clients' port from this machine, where they move from the clients' workers to a
//! runtime of their own, and on a port of their own (`node_listen`) with TLS.
//!
//! Failure: a peer without a certificate of the node's authority is refused in the handshake, and that is logged.

use crate::certificates::Certificates;
use bytes::BytesMut;
use holdfast_standby::link::take_preamble;
use holdfast_standby::{Hub, Peer, Refusal, refuse};
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

/// Links over TLS at a time; further connections wait.
const LINKS_MAX: usize = 256;
/// Links at a time that get the reason of their refusal.
const REFUSED_MAX: usize = 16;
/// How long a handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// How long a link waits for a server that starts or changes its role.
const HUB_WAIT_MAX: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted, usually for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts the links of other nodes.
pub struct Listener {
    runtime: Handle,
    /// `None` while the server starts or changes its role.
    hub: watch::Sender<Option<Arc<Hub>>>,
    /// Links that are being refused.
    refusing: Arc<Semaphore>,
}

impl Listener {
    pub fn new(runtime: Handle) -> Listener {
        let refusing = Arc::new(Semaphore::new(REFUSED_MAX));
        Listener { runtime, hub: watch::Sender::new(None), refusing }
    }

    pub fn set_hub(&self, hub: Option<Arc<Hub>>) {
        self.hub.send_replace(hub);
    }

    pub fn hub(&self) -> Option<Arc<Hub>> {
        self.hub.borrow().clone()
    }

    /// The hub, as soon as there is one; `None` after a limit. A standby then tries again by itself.
    async fn coming_hub(&self) -> Option<Arc<Hub>> {
        let mut hub = self.hub.subscribe();
        let there = tokio::time::timeout(HUB_WAIT_MAX, hub.wait_for(Option::is_some)).await;
        there.ok()?.ok()?.clone()
    }

    /// Serves a link, as [`Listener::serve`] does, unless the check refuses it: then the peer gets the reason.
    pub fn serve_checked(
        self: &Arc<Listener>,
        stream: TcpStream,
        input: BytesMut,
        check: impl FnOnce(&TcpStream) -> Result<(), Refusal>,
    ) {
        let refusal = match check(&stream) {
            Ok(()) => return self.serve(stream, input),
            Err(refusal) => refusal,
        };
        // Beyond the limit a peer is disconnected without the reason.
        let Ok(permit) = self.refusing.clone().try_acquire_owned() else { return };
        let Ok(stream) = stream.into_std() else { return };
        self.runtime.spawn(async move {
            let Ok(stream) = TcpStream::from_std(stream) else { return };
            let (read, write) = stream.into_split();
            refuse(tokio::io::join(Cursor::new(input).chain(read), write), refusal).await;
            drop(permit);
        });
    }

    /// Serves a link whose start-up packet has been read; `input` holds the bytes after it. Returns at once. A link that comes
    /// while the server starts or changes its role waits.
    pub fn serve(self: &Arc<Listener>, stream: TcpStream, input: BytesMut) {
        let address = stream.peer_addr().map_or_else(|_| "a peer that has disconnected".to_owned(), |a| a.to_string());
        let Ok(stream) = stream.into_std() else { return };
        let links = self.clone();
        self.runtime.spawn(async move {
            let Some(hub) = links.coming_hub().await else { return };
            let Ok(stream) = TcpStream::from_std(stream) else { return };
            let (read, write) = stream.into_split();
            let stream = tokio::io::join(Cursor::new(input).chain(read), write);
            // The hub has logged why the link ended.
            drop(hub.serve(stream, Peer { address, certificate: None }).await);
        });
    }

    /// Serves links on a port of their own, for as long as the process lives. Returns at once.
    pub fn listen(self: &Arc<Listener>, listener: std::net::TcpListener, certificates: Certificates) {
        let links = self.clone();
        self.runtime.spawn(async move {
            let listener = match TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => return tracing::error!("cannot listen for other nodes: {error}"),
            };
            let permits = Arc::new(Semaphore::new(LINKS_MAX));
            loop {
                // The semaphore is never closed.
                let Ok(permit) = permits.clone().acquire_owned().await else { return };
                match listener.accept().await {
                    Ok((stream, from)) => {
                        let served = links.clone().serve_tls(stream, from.to_string(), certificates.clone());
                        tokio::spawn(async move {
                            served.await;
                            drop(permit);
                        });
                    }
                    Err(error) => {
                        tracing::warn!("cannot accept a node's connection: {error}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        });
    }

    async fn serve_tls(self: Arc<Listener>, stream: TcpStream, address: String, certificates: Certificates) {
        let greeting = async {
            stream.set_nodelay(true)?;
            let (mut stream, holder) = certificates.accept(stream).await?;
            take_preamble(&mut stream).await.map_err(std::io::Error::other)?;
            Ok::<_, std::io::Error>((stream, holder))
        };
        let greeted = tokio::time::timeout(HANDSHAKE_MAX, greeting).await;
        match greeted.map_err(std::io::Error::from).and_then(|greeted| greeted) {
            Ok((stream, holder)) => {
                // A standby that connects while the role changes tries again by itself.
                let Some(hub) = self.hub() else { return };
                // The hub has logged why the link ended.
                drop(hub.serve(stream, Peer { address, certificate: Some(holder) }).await);
            }
            Err(error) => tracing::warn!(peer = address, "a node's link was refused: {error}"),
        }
    }
}
