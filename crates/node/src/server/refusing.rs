//! Refuses clients whenever no role serves them: before the first role, between two, and while the server stops.
//!
//! | the server | FATAL 57P03 before the client is authenticated |
//! |---|---|
//! | recovers its directory, or changes its role | the database system is starting up |
//! | waits for the control plane to make it master | the same, with what it waits for |
//! | stops | the database system is shutting down |
//! | was deposed in order | this server was deposed |
//!
//! Failure: if the socket cannot be used, that is logged, and clients wait in its queue as they do for a busy server.

use crate::admission::check_link;
use crate::database::deposed;
use crate::web::{Standing, Why};
use holdfast_replication::Listener;
use holdfast_types::{SqlError, SqlState};
use holdfast_wire::{Refusal, Server, ServerError};
use parking_lot::Mutex;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What a client gets.
fn error(why: Why) -> SqlError {
    let starting = SqlError::new(SqlState::CANNOT_CONNECT_NOW, "the database system is starting up");
    match why {
        Why::Opening => starting,
        Why::AsksControl => starting
            .with_detail("This server waits until a majority of the control plane agrees that it is the master.")
            .with_hint("Start the other nodes and the witness (control_members); see the server's log."),
        Why::Stopping => SqlError::shutting_down(),
        Why::Deposed => deposed(),
    }
}

/// Refuses clients between [`Refusing::begin`] and [`Refusing::end`].
pub(super) struct Refusing {
    server: Server,
    links: Handle,
    clients: Arc<Refused>,
    standing: Arc<Standing>,
    task: Mutex<Option<(watch::Sender<bool>, JoinHandle<()>)>>,
}

/// What a refused client meets.
struct Refused {
    why: Mutex<Why>,
    listener: Arc<Listener>,
}

impl Refusal for Refused {
    fn error(&self) -> SqlError {
        error(*self.why.lock())
    }

    fn link(&self, stream: TcpStream, input: bytes::BytesMut) {
        self.listener.serve_checked(stream, input, check_link);
    }
}

impl Refusing {
    pub fn new(server: Server, links: Handle, listener: Arc<Listener>, standing: Arc<Standing>) -> Refusing {
        let clients = Arc::new(Refused { why: Mutex::new(Why::Opening), listener });
        Refusing { server, links, clients, standing, task: Mutex::default() }
    }

    /// From now on clients are refused, for this reason.
    pub fn begin(&self, why: Why) -> Result<(), ServerError> {
        *self.clients.why.lock() = why;
        self.standing.refuses(Some(why));
        let mut task = self.task.lock();
        if task.is_some() {
            return Ok(());
        }
        let (stop, stopped) = watch::channel(false);
        let (server, clients) = (self.server.again()?, self.clients.clone());
        let refusing = self.links.spawn(async move {
            if let Err(error) = server.refuse(clients, stopped).await {
                tracing::warn!("clients wait until the server serves them: {error}");
            }
        });
        *task = Some((stop, refusing));
        Ok(())
    }

    /// Clients are no longer refused. Blocks briefly: no client that connects after this has returned is refused.
    pub fn end(&self) {
        let Some((stop, refusing)) = self.task.lock().take() else { return };
        stop.send_replace(true);
        if let Err(error) = self.links.block_on(refusing) {
            tracing::error!("the task that refuses clients panicked: {error}");
        }
        self.standing.refuses(None);
    }
}
