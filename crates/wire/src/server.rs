//! The listener and its workers.
//!
//! Each worker is a thread with a single-threaded runtime. A connection is given to the worker with the fewest
//! connections and stays there, so a session's state needs no locks and a batch is not moved between threads.

use crate::client::Client;
use crate::connection;
use crate::encode::Output;
use crate::limits::{ACCEPT_PAUSE, Limits, REFUSALS_MAX};
use crate::registry::Registry;
use crate::session::SessionFactory;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinSet, LocalSet};

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot listen on {address}: {source}; {}", advice(*address, source.kind()))]
    Listen { address: SocketAddr, source: io::Error },
    #[error(
        "cannot listen on {0}: only addresses of this machine (127.0.0.1, ::1) are allowed, because passwords and TLS \
         are not there yet; use --listen 127.0.0.1:PORT"
    )]
    NotLoopback(SocketAddr),
    #[error("cannot start a worker thread: {0}")]
    Thread(io::Error),
}

/// The next step where an address cannot be listened on.
fn advice(address: SocketAddr, why: io::ErrorKind) -> String {
    let port = address.port();
    match why {
        io::ErrorKind::AddrInUse => {
            format!("another program uses port {port}: stop it, or choose another port with --listen")
        }
        io::ErrorKind::PermissionDenied if port < 1024 => format!(
            "port {port} is below 1024 and needs root or the capability CAP_NET_BIND_SERVICE: choose another port with \
             --listen"
        ),
        io::ErrorKind::AddrNotAvailable => {
            "this machine does not have that address: choose another with --listen".to_owned()
        }
        _ => "choose another address or port with --listen".to_owned(),
    }
}

/// Connections that may wait to be accepted; the system may have a lower limit (net.core.somaxconn).
const BACKLOG: i32 = 4096;

/// Threads that each worker has for slow work: scans, DDL on databases. Requests wait when all threads are busy.
const BLOCKING_THREADS_MAX: usize = 16;

/// A listening socket, not yet serving.
pub struct Server {
    listener: TcpListener,
    limits: Arc<Limits>,
    output: Output,
}

struct Worker {
    connections: Arc<AtomicUsize>,
    queue: mpsc::UnboundedSender<TcpStream>,
    thread: JoinHandle<()>,
}

/// What every worker shares.
struct Shared<F> {
    factory: F,
    registry: Arc<Registry>,
    limits: Arc<Limits>,
    output: Output,
    stop: watch::Receiver<bool>,
}

impl Server {
    /// Binds the address, which must be a loopback address.
    pub fn bind(address: SocketAddr, limits: Limits, output: Output) -> Result<Server, ServerError> {
        if !address.ip().is_loopback() {
            return Err(ServerError::NotLoopback(address));
        }
        let listener = TcpListener::bind(address).map_err(|source| ServerError::Listen { address, source })?;
        // The standard library's queue is short: clients that connect all at once would wait a second for TCP to try
        // again.
        let longer = rustix::net::listen(&listener, BACKLOG).map_err(io::Error::from);
        longer
            .and_then(|()| listener.set_nonblocking(true))
            .map_err(|source| ServerError::Listen { address, source })?;
        Ok(Server { listener, limits: Arc::new(limits), output })
    }

    /// Creates another server on the same socket, to run after this one has stopped: clients that connect in between
    /// wait, or are refused by [`Server::refuse`].
    pub fn again(&self) -> Result<Server, ServerError> {
        let listener = self.listener.try_clone().map_err(ServerError::Thread)?;
        Ok(Server { listener, limits: self.limits.clone(), output: self.output })
    }

    pub(crate) fn into_parts(self) -> (TcpListener, Arc<Limits>, Output) {
        (self.listener, self.limits, self.output)
    }

    /// The bound address, with the actual port if port 0 was requested.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts connections until `stop` becomes true, then ends every session and joins the workers. `ready` is called when
    /// every worker has started.
    pub async fn run<F: SessionFactory>(
        self,
        factory: F,
        workers: usize,
        mut stop: watch::Receiver<bool>,
        ready: impl FnOnce(),
    ) -> Result<(), ServerError> {
        let registry = Arc::new(Registry::default());
        let shared = Arc::new(Shared {
            factory,
            registry: registry.clone(),
            limits: self.limits.clone(),
            output: self.output,
            stop: stop.clone(),
        });
        let workers: Vec<Worker> =
            (0..workers.max(1)).map(|i| start_worker(i, shared.clone())).collect::<Result<_, _>>()?;
        let listener = tokio::net::TcpListener::from_std(self.listener).map_err(ServerError::Thread)?;
        ready();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => hand_over(stream, &workers, &self.limits),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                _ = stop.wait_for(|stopping| *stopping) => break,
            }
        }
        drop(listener);
        registry.cancel_all();
        for worker in workers {
            drop(worker.queue);
            // A worker that panicked has logged it; the others must still be waited for.
            let _ = tokio::task::spawn_blocking(move || worker.thread.join()).await;
        }
        Ok(())
    }
}

/// Gives a new connection to the worker with the fewest.
fn hand_over(stream: tokio::net::TcpStream, workers: &[Worker], limits: &Limits) {
    let total: usize = workers.iter().map(|w| w.connections.load(Ordering::Relaxed)).sum();
    if total >= limits.connections_max + REFUSALS_MAX {
        return;
    }
    let Some(worker) = workers.iter().min_by_key(|w| w.connections.load(Ordering::Relaxed)) else { return };
    // Errors mean that the client has already gone.
    let _ = stream.set_nodelay(true);
    if let Ok(stream) = stream.into_std() {
        worker.connections.fetch_add(1, Ordering::Relaxed);
        let _ = worker.queue.send(stream);
    }
}

fn start_worker<F: SessionFactory>(number: usize, shared: Arc<Shared<F>>) -> Result<Worker, ServerError> {
    let (queue, incoming) = mpsc::unbounded_channel();
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = connections.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS_MAX)
        .build()
        .map_err(ServerError::Thread)?;
    let thread = std::thread::Builder::new()
        .name(format!("worker-{number}"))
        .spawn(move || LocalSet::new().block_on(&runtime, work(shared, incoming, counter)))
        .map_err(ServerError::Thread)?;
    Ok(Worker { connections, queue, thread })
}

/// Decrements the connection count when a connection ends in any way.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn work<F: SessionFactory>(
    shared: Arc<Shared<F>>,
    mut incoming: mpsc::UnboundedReceiver<TcpStream>,
    connections: Arc<AtomicUsize>,
) {
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            stream = incoming.recv() => match stream {
                Some(stream) => {
                    let (shared, counted) = (shared.clone(), Counted(connections.clone()));
                    tasks.spawn_local(async move {
                        let _counted = counted;
                        serve(stream, &shared).await;
                    });
                }
                None => break,
            },
            Some(ended) = tasks.join_next() => report_panic(ended),
        }
    }
    while let Some(ended) = tasks.join_next().await {
        report_panic(ended);
    }
}

/// Logs a panic as an error. It is a bug, and ends only its own session.
fn report_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a session panicked and was closed");
    }
}

async fn serve<F: SessionFactory>(stream: TcpStream, shared: &Shared<F>) {
    let stream = match tokio::net::TcpStream::from_std(stream) {
        Ok(stream) => stream,
        Err(error) => {
            tracing::warn!(%error, "cannot register a connection");
            return;
        }
    };
    let limits = &shared.limits;
    let client = Client::new(stream, shared.output, limits.clone(), shared.stop.clone());
    connection::serve(client, &shared.factory, &shared.registry, limits.connections_max, limits.startup_timeout).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_not_to_listen_has_its_own_advice() {
        let said = |address: &str, errno: i32| {
            let source = io::Error::from_raw_os_error(errno);
            ServerError::Listen { address: address.parse().unwrap(), source }.to_string()
        };
        let (denied, in_use, not_here) = (13, 98, 99);
        let privileged = said("127.0.0.1:80", denied);
        assert!(privileged.contains("CAP_NET_BIND_SERVICE") && !privileged.contains("another program"), "{privileged}");
        assert!(said("127.0.0.1:5433", in_use).contains("another program uses port 5433"));
        assert!(!said("127.0.0.1:5433", denied).contains("1024"));
        assert!(said("127.0.0.1:5433", not_here).contains("does not have that address"));
    }
}
