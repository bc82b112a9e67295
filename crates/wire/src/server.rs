//! The listening sockets and the workers.
//!
//! Each worker is a thread with a single-threaded runtime. A connection is given to the worker with the fewest
//! connections and stays there, so a session's state needs no locks and a batch is not moved between threads.

use crate::client::Client;
use crate::connection;
use crate::encode::Output;
use crate::limits::{ACCEPT_PAUSE, Limits};
use crate::listen::{Acceptor, SOCKET_PATH_BYTES_MAX, Sockets};
use crate::memory::ServerMemory;
use crate::newcomers::{Newcomer, Newcomers};
use crate::registry::Registry;
use crate::session::SessionFactory;
use crate::stream::AnySocket;
use crate::tls::TlsSlot;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinSet, LocalSet};

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot listen on {address}: {source}; {}", advice(*address, source.kind()))]
    Listen { address: SocketAddr, source: io::Error },
    #[error(
        "cannot listen on {address} without TLS: clients on other machines would send passwords and data in plain text. \
         Make certificates with: holdfast cert server --data DIR --host NAME (for a standby add --authority and the directory \
         with the master's ca.crt and ca.key); make a role with a password from this machine with: psql -h 127.0.0.1 -p {} -U \
         holdfast -d holdfast -c 'CREATE ROLE app LOGIN' -c '\\password app'. Or listen on this machine only: --listen 127.0.0.1:{}",
        address.port(), address.port()
    )]
    NoTls { address: SocketAddr },
    #[error("cannot listen on the Unix socket {}: {source}; name another directory with unix_socket_directory", path.display())]
    ListenUnix { path: PathBuf, source: io::Error },
    #[error(
        "cannot listen on the Unix socket {}: another server uses it; stop it, or choose another port or unix_socket_directory",
        path.display()
    )]
    SocketInUse { path: PathBuf },
    #[error(
        "cannot listen on the Unix socket {}: its path has {bytes} bytes; the limit is {SOCKET_PATH_BYTES_MAX} bytes; name a \
         shorter directory with unix_socket_directory",
        path.display()
    )]
    SocketPath { path: PathBuf, bytes: usize },
    #[error("cannot start a worker thread: {0}")]
    Thread(io::Error),
}

/// The next step where an address cannot be listened on.
fn advice(address: SocketAddr, why: io::ErrorKind) -> String {
    let port = address.port();
    match why {
        io::ErrorKind::AddrInUse => {
            format!(
                "another program uses port {port}, perhaps the server that you want to replace: stop it, or choose another \
                 port with --listen"
            )
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

/// Threads that each worker may have for slow work (scans, DDL on databases) beyond one for each session. With fewer than
/// sessions, statements that sleep, or whose clients do not read, would keep all other sessions' scans waiting. Threads
/// without work end after 10 s.
const SPARE_THREADS: usize = 16;

/// Listening sockets, not yet serving.
pub struct Server {
    pub(crate) sockets: Sockets,
    pub(crate) limits: Arc<Limits>,
    pub(crate) tls: TlsSlot,
    pub(crate) output: Output,
    pub(crate) memory: Arc<ServerMemory>,
}

/// A connection on its way to a worker.
struct Arrived {
    socket: AnySocket,
    newcomer: Newcomer,
}

struct Worker {
    connections: Arc<AtomicUsize>,
    queue: mpsc::UnboundedSender<Arrived>,
    /// Told by its end that no session is left.
    sessions_end: oneshot::Receiver<()>,
    thread: JoinHandle<()>,
}

/// Connections whose sessions have ended: their clients have yet to take the last message. They hold nothing of the sessions, so the
/// caller can continue. Dropping this does not close the connections; the end of the process does.
#[must_use]
pub struct Lingering(Vec<JoinHandle<()>>);

impl Lingering {
    /// Blocks until the clients have disconnected, which has a bound.
    pub fn wait(self) {
        // A worker that panicked has logged it.
        self.0.into_iter().for_each(|thread| _ = thread.join());
    }
}

/// What every worker shares.
struct Shared<F> {
    factory: F,
    registry: Arc<Registry>,
    limits: Arc<Limits>,
    tls: TlsSlot,
    output: Output,
    memory: Arc<ServerMemory>,
    stop: watch::Receiver<bool>,
}

impl Server {
    /// A server on these sockets. Without TLS they must all be of this machine.
    pub fn new(sockets: Sockets, limits: Limits, tls: TlsSlot, output: Output) -> Result<Server, ServerError> {
        let is_exposed = |address: &SocketAddr| !address.ip().to_canonical().is_loopback();
        if tls.get().is_none()
            && let Some(address) = sockets.addresses().into_iter().find(is_exposed)
        {
            return Err(ServerError::NoTls { address });
        }
        let memory = ServerMemory::new(limits.sessions_memory_bytes_max);
        Ok(Server { sockets, limits: Arc::new(limits), tls, output, memory })
    }

    /// Creates another server on the same sockets, to run after this one has stopped: clients that connect in between
    /// wait, or are refused by [`Server::refuse`].
    pub fn again(&self) -> Result<Server, ServerError> {
        let sockets = self.sockets.try_clone().map_err(ServerError::Thread)?;
        let (limits, tls, memory) = (self.limits.clone(), self.tls.clone(), self.memory.clone());
        Ok(Server { sockets, limits, tls, output: self.output, memory })
    }

    /// The TCP addresses.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.sockets.addresses()
    }

    /// Accepts connections until `stop` becomes true, then ends every session. `ready` is called when every worker has started.
    pub async fn run<F: SessionFactory>(
        self,
        factory: F,
        workers: usize,
        mut stop: watch::Receiver<bool>,
        ready: impl FnOnce(),
    ) -> Result<Lingering, ServerError> {
        let registry = Arc::new(Registry::default());
        let shared = Arc::new(Shared {
            factory,
            registry: registry.clone(),
            limits: self.limits.clone(),
            tls: self.tls,
            output: self.output,
            memory: self.memory,
            stop: stop.clone(),
        });
        let workers: Vec<Worker> =
            (0..workers.max(1)).map(|i| start_worker(i, shared.clone())).collect::<Result<_, _>>()?;
        let newcomers = Newcomers::new(self.limits.half_open_max);
        let mut acceptor = Acceptor::new(self.sockets).map_err(ServerError::Thread)?;
        ready();
        loop {
            let arrived = async {
                let socket = acceptor.accept().await?;
                socket.keep_alive(self.limits.keepalives);
                let newcomer = newcomers.admit(socket.peer(), self.limits.startup_timeout).await;
                Ok::<_, io::Error>(Arrived { socket, newcomer })
            };
            tokio::select! {
                arrived = arrived => match arrived {
                    Ok(arrived) => hand_over(arrived, &workers),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                _ = stop.wait_for(|stopping| *stopping) => break,
            }
        }
        drop(acceptor);
        registry.cancel_all();
        drop(shared);
        let mut threads = Vec::new();
        for worker in workers {
            drop(worker.queue);
            // A worker that panicked has logged it; the others must still be waited for.
            let _ = worker.sessions_end.await;
            threads.push(worker.thread);
        }
        Ok(Lingering(threads))
    }
}

/// Gives a new connection to the worker with the fewest.
fn hand_over(arrived: Arrived, workers: &[Worker]) {
    let Some(worker) = workers.iter().min_by_key(|w| w.connections.load(Ordering::Relaxed)) else { return };
    worker.connections.fetch_add(1, Ordering::Relaxed);
    // An error means that the worker has ended.
    let _ = worker.queue.send(arrived);
}

fn start_worker<F: SessionFactory>(number: usize, shared: Arc<Shared<F>>) -> Result<Worker, ServerError> {
    let (queue, incoming) = mpsc::unbounded_channel();
    let connections = Arc::new(AtomicUsize::new(0));
    let counter = connections.clone();
    let (ended, sessions_end) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(shared.limits.connections_max.saturating_add(SPARE_THREADS))
        .build()
        .map_err(ServerError::Thread)?;
    let thread = std::thread::Builder::new()
        .name(format!("worker-{number}"))
        .spawn(move || LocalSet::new().block_on(&runtime, work(shared, incoming, counter, ended)))
        .map_err(ServerError::Thread)?;
    Ok(Worker { connections, queue, sessions_end, thread })
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
    mut incoming: mpsc::UnboundedReceiver<Arrived>,
    connections: Arc<AtomicUsize>,
    ended: oneshot::Sender<()>,
) {
    let (mut tasks, mut lingering) = (JoinSet::new(), JoinSet::new());
    loop {
        tokio::select! {
            arrived = incoming.recv() => match arrived {
                Some(arrived) => {
                    let (shared, counted) = (shared.clone(), Counted(connections.clone()));
                    tasks.spawn_local(async move {
                        let _counted = counted;
                        serve(arrived, &shared).await
                    });
                }
                None => break,
            },
            Some(session) = tasks.join_next() => linger(session, &mut lingering),
            Some(_) = lingering.join_next() => {}
        }
    }
    while let Some(session) = tasks.join_next().await {
        linger(session, &mut lingering);
    }
    drop((shared, ended));
    while lingering.join_next().await.is_some() {}
}

/// Waits for the client of a session that has ended, if there is one. A panic is a bug, and ends only its own session.
fn linger(session: Result<Option<Client>, tokio::task::JoinError>, lingering: &mut JoinSet<()>) {
    match session {
        Ok(Some(mut client)) => _ = lingering.spawn_local(async move { client.linger().await }),
        Ok(None) => {}
        Err(error) => tracing::error!(%error, "a session panicked and was closed"),
    }
}

async fn serve<F: SessionFactory>(arrived: Arrived, shared: &Shared<F>) -> Option<Client> {
    let Arrived { socket, newcomer } = arrived;
    let socket = match socket.register() {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(%error, "cannot register a connection");
            return None;
        }
    };
    let limits = &shared.limits;
    let memory = shared.memory.session(limits.session_memory_bytes_max);
    let client = Client::new(socket, shared.tls.clone(), shared.output, limits.clone(), memory, shared.stop.clone());
    connection::serve(client, newcomer, &shared.factory, &shared.registry, limits.connections_max).await
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
