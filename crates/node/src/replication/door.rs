//! Where links of other nodes come in: over the clients' port on this machine, whose sockets leave the clients' workers
//! for a runtime of their own, and over a port of their own (`node_listen`) with TLS.
//!
//! Failure: who shows no certificate of the node's authority is turned away in the handshake, and logged.

use super::Certificates;
use bytes::BytesMut;
use holdfast_standby::link::take_preamble;
use holdfast_standby::{Hub, Peer};
use parking_lot::RwLock;
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// Links over TLS at a time; beyond it newcomers wait.
const LINKS_MAX: usize = 256;
/// How long a handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Pause after a connection could not be accepted: for want of descriptors, mostly.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// See the module.
pub struct Door {
    runtime: Handle,
    /// `None` while the server changes its role.
    hub: RwLock<Option<Arc<Hub>>>,
}

impl Door {
    pub fn new(runtime: Handle) -> Door {
        Door { runtime, hub: RwLock::default() }
    }

    pub fn set(&self, hub: Option<Arc<Hub>>) {
        *self.hub.write() = hub;
    }

    pub fn hub(&self) -> Option<Arc<Hub>> {
        self.hub.read().clone()
    }

    /// Serves a link whose start-up packet was taken off; `input` is what came behind it. Returns at once.
    pub fn enter(&self, stream: TcpStream, input: BytesMut) {
        // One that comes while the role changes tries again by itself.
        let Some(hub) = self.hub() else { return };
        let address = stream.peer_addr().map_or_else(|_| "a peer that is gone".to_owned(), |a| a.to_string());
        let Ok(stream) = stream.into_std() else { return };
        self.runtime.spawn(async move {
            let Ok(stream) = TcpStream::from_std(stream) else { return };
            let (read, write) = stream.into_split();
            let stream = tokio::io::join(Cursor::new(input).chain(read), write);
            // What ended it has been logged.
            drop(hub.serve(stream, Peer { address, certificate: None }).await);
        });
    }

    /// Serves links on a port of their own, for as long as the process lives. Returns at once.
    pub fn listen(self: &Arc<Door>, listener: std::net::TcpListener, certificates: Certificates) {
        let door = self.clone();
        self.runtime.spawn(async move {
            let listener = match TcpListener::from_std(listener) {
                Ok(listener) => listener,
                Err(error) => return tracing::error!("nodes cannot be listened for: {error}"),
            };
            let places = Arc::new(Semaphore::new(LINKS_MAX));
            loop {
                // The semaphore is never closed.
                let Ok(place) = places.clone().acquire_owned().await else { return };
                match listener.accept().await {
                    Ok((stream, from)) => {
                        let served = door.clone().secured(stream, from.to_string(), certificates.clone());
                        tokio::spawn(async move {
                            served.await;
                            drop(place);
                        });
                    }
                    Err(error) => {
                        tracing::warn!("a node's connection cannot be accepted: {error}");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        });
    }

    async fn secured(self: Arc<Door>, stream: TcpStream, address: String, certificates: Certificates) {
        let greeting = async {
            stream.set_nodelay(true)?;
            let (mut stream, holder) = certificates.accept(stream).await?;
            take_preamble(&mut stream).await.map_err(std::io::Error::other)?;
            Ok::<_, std::io::Error>((stream, holder))
        };
        let greeted = tokio::time::timeout(HANDSHAKE_MAX, greeting).await;
        match greeted.map_err(std::io::Error::from).and_then(|greeted| greeted) {
            Ok((stream, holder)) => {
                // One that comes while the role changes tries again by itself.
                let Some(hub) = self.hub() else { return };
                // What ended it has been logged.
                drop(hub.serve(stream, Peer { address, certificate: Some(holder) }).await);
            }
            Err(error) => tracing::warn!(peer = address, "a node's link was refused: {error}"),
        }
    }
}
