//! A link that counts what goes over it and can be cut: a forwarder of TCP connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A link to a server.
pub struct Link {
    pub port: u16,
    bytes: Arc<AtomicU64>,
    cut: watch::Sender<bool>,
}

impl Link {
    /// Forwards connections to a port of this machine.
    pub async fn to(port: u16) -> anyhow::Result<Link> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let (bytes, cut) = (Arc::<AtomicU64>::default(), watch::Sender::new(false));
        let link = Link { port: listener.local_addr()?.port(), bytes: bytes.clone(), cut: cut.clone() };
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                // While it is cut, a connection ends at once.
                if !*cut.borrow() {
                    tokio::spawn(forward(near, port, bytes.clone(), cut.subscribe()));
                }
            }
        });
        Ok(link)
    }

    /// Bytes in both directions so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Cuts it, or puts it back.
    pub fn cut(&self, is_cut: bool) {
        self.cut.send_replace(is_cut);
    }
}

async fn forward(near: TcpStream, port: u16, bytes: Arc<AtomicU64>, mut cut: watch::Receiver<bool>) {
    let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    // A delay would be measured as the sites'.
    let _ = (near.set_nodelay(true), far.set_nodelay(true));
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    tokio::select! {
        _ = cut.wait_for(|cut| *cut) => {}
        () = one_way(near_in, far_out, &bytes) => {}
        () = one_way(far_in, near_out, &bytes) => {}
    }
}

async fn one_way(mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin, bytes: &AtomicU64) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer).await {
            Ok(count) if count > 0 && to.write_all(&buffer[..count]).await.is_ok() => {
                bytes.fetch_add(count as u64, Ordering::Relaxed);
            }
            _ => return,
        }
    }
}
