//! Where links of other nodes come in: their sockets leave the clients' workers for a runtime of their own.

use bytes::BytesMut;
use holdfast_standby::{Hub, Peer};
use parking_lot::RwLock;
use std::io::Cursor;
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::runtime::Handle;

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
}
