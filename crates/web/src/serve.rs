//! The HTTP listener: a thread of its own, which serves as long as the process lives, whatever role the server has.
//!
//! | a client that | then |
//! |---|---|
//! | sends its first request too slowly, or no further one for long | is disconnected: [`FIRST_TIME_MAX`], [`HEAD_TIME_MAX`] |
//! | does not read its answer | is disconnected after [`HEAD_TIME_MAX`] |
//! | is one too many | the connection whose last request is the oldest ends |
//! | sends too long a head or body | gets 431 or 413 |
//! | connects without TLS where TLS is configured | is disconnected |
//!
//! Failure: an address that cannot be listened on ends the start of the server. Later faults are logged; the SQL port does not depend
//! on this one.

use crate::figures::Source;
use crate::history::History;
use crate::limits::{CONNECTIONS_MAX, FIRST_TIME_MAX, HANDSHAKE_TIME_MAX, HEAD_BYTES_MAX, HEAD_TIME_MAX, HEADERS_MAX};
use crate::routes::{App, router};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Notify, watch};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;

/// Returns the configuration for the next connection; `None`: there is none at the moment, and the connection is closed.
pub type TlsSource = Arc<dyn Fn() -> Option<Arc<ServerConfig>> + Send + Sync>;

/// Where and how it listens.
#[derive(Clone)]
pub struct Settings {
    pub address: SocketAddr,
    pub tls: Option<TlsSource>,
    /// What `/metrics` requires as bearer token; `None`: nothing.
    pub token: Option<String>,
    /// The key of one-time logins, see [`crate::one_time`].
    pub key: Vec<u8>,
    pub version: &'static str,
}

/// Why it cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum WebError {
    #[error(
        "cannot listen on http_listen = {address}: {source}; another program may use that port: choose another port, or set \
         http_listen = \"\" for none"
    )]
    Listen { address: SocketAddr, source: io::Error },
    #[error(
        "cannot listen on http_listen = {0}: addresses other than this machine's (127.0.0.1, ::1) need TLS and a token: {1}"
    )]
    Unprotected(SocketAddr, &'static str),
    #[error("cannot start the HTTP listener: {0}")]
    Start(#[from] io::Error),
}

/// The running listener. Dropping it stops it.
pub struct Web {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// Threads for work that takes milliseconds: checking passwords.
const BLOCKING_THREADS_MAX: usize = 2;

/// How long to wait after accepting has failed: the process may have no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Web {
    /// Listens, and serves from now on.
    pub fn start(settings: Settings, source: Arc<dyn Source>) -> Result<Web, WebError> {
        let address = settings.address;
        if !address.ip().is_loopback() {
            let lacks = |what| Err(WebError::Unprotected(address, what));
            match (&settings.tls, &settings.token) {
                (None, _) => return lacks("make certificates with: holdfast cert server --data DIR --host NAME"),
                (_, None) => return lacks("write a token into a file and name it in http_token_file"),
                _ => {}
            }
        }
        let listen = |source| WebError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .build()?;
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::Builder::new()
            .name("web".to_owned())
            .spawn(move || runtime.block_on(serve(listener, settings, source, stopped)))?;
        tracing::info!(%address, "listening for HTTP: metrics, health, console");
        Ok(Web { address, stop, thread: Some(thread) })
    }

    /// The bound address, with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the HTTP thread panicked");
        }
    }
}

async fn serve(listener: TcpListener, settings: Settings, source: Arc<dyn Source>, mut stopped: watch::Receiver<bool>) {
    let history = Arc::new(History::default());
    let tls = settings.tls.clone();
    let app = Arc::new(App::new(settings, source, history));
    let router = router(app.clone());
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the HTTP listener does not work"),
    };
    let connections = Arc::new(Connections::default());
    let mut second = tokio::time::interval(Duration::from_secs(1));
    second.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, client)) => {
                    let connection = connections.enter(client.ip());
                    tokio::spawn(connect(stream, tls.clone(), router.clone(), connection));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an HTTP connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            _ = second.tick() => app.sample(unix_ms()),
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
    }
}

fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

/// All connections, by number: a lower one is older.
#[derive(Default)]
struct Connections {
    all: Mutex<(u64, BTreeMap<u64, Arc<Connection>>)>,
}

/// One client.
pub(crate) struct Connection {
    pub client: IpAddr,
    /// When the head of the last request had arrived, or the client had connected.
    last: Mutex<Instant>,
    has_asked: AtomicBool,
    end: Notify,
}

/// A connection in the list, until it is dropped.
struct Entered {
    list: Arc<Connections>,
    number: u64,
    connection: Arc<Connection>,
}

impl Connections {
    fn enter(self: &Arc<Connections>, client: IpAddr) -> Entered {
        let connection = Arc::new(Connection {
            client,
            last: Mutex::new(Instant::now()),
            has_asked: AtomicBool::new(false),
            end: Notify::new(),
        });
        let mut all = self.all.lock();
        while all.1.len() >= CONNECTIONS_MAX {
            let Some(oldest) = all.1.iter().min_by_key(|(_, of)| *of.last.lock()).map(|(number, _)| *number) else {
                break;
            };
            if let Some(oldest) = all.1.remove(&oldest) {
                oldest.end.notify_one();
            }
        }
        all.0 += 1;
        let number = all.0;
        all.1.insert(number, connection.clone());
        Entered { list: self.clone(), number, connection }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.list.all.lock().1.remove(&self.number);
    }
}

impl Connection {
    /// The head of a request has arrived.
    pub fn asked(&self) {
        *self.last.lock() = Instant::now();
        self.has_asked.store(true, Ordering::Relaxed);
    }

    /// Ends when the connection must: it is one too many, or too slow.
    async fn overdue(&self) {
        loop {
            let max = if self.has_asked.load(Ordering::Relaxed) { HEAD_TIME_MAX } else { FIRST_TIME_MAX };
            let left = max.saturating_sub(self.last.lock().elapsed());
            if left.is_zero() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(left) => {}
                () = self.end.notified() => return,
            }
        }
    }
}

async fn connect(stream: TcpStream, tls: Option<TlsSource>, router: Router, entered: Entered) {
    let connection = entered.connection.clone();
    // An error means that the client has already gone.
    drop(stream.set_nodelay(true));
    let served = async {
        match tls {
            None => answer(stream, router, &connection).await,
            Some(tls) => {
                let Some(config) = tls() else { return };
                let handshake = TlsAcceptor::from(config).accept(stream);
                match tokio::time::timeout(HANDSHAKE_TIME_MAX, handshake).await {
                    Ok(Ok(stream)) => answer(stream, router, &connection).await,
                    Ok(Err(error)) => tracing::debug!(client = %connection.client, %error, "HTTP: no TLS"),
                    Err(_) => tracing::debug!(client = %connection.client, "HTTP: TLS took too long"),
                }
            }
        }
    };
    tokio::select! {
        () = served => {}
        () = connection.overdue() => tracing::debug!(client = %connection.client, "HTTP: disconnected"),
    }
}

async fn answer(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router, connection: &Arc<Connection>) {
    let service = TowerToHyperService::new(router.layer(axum::Extension(connection.clone())));
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX).header_read_timeout(None);
    if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(client = %connection.client, %error, "HTTP: the connection ended");
    }
}
