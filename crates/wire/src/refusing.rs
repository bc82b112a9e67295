//! Answers clients while the server cannot serve any: it starts, changes its role, or stops.
//!
//! Without this a client that connects would wait in silence, in the socket's queue, for as long as a recovery takes or a
//! majority is away. It gets FATAL 57P03 in place of AuthenticationOk, so that libpq, JDBC and pgx try the next of their
//! hosts. Links of other nodes are passed on.
//!
//! Failure: a client that does not complete its start-up packet is dropped after the limit for that, and earlier when there are
//! more than [`REFUSALS_MAX`] connections at a time.

use crate::client::Client;
use crate::connection::{link, say_goodbye};
use crate::handshake::{self, Hello};
use crate::limits::{ACCEPT_PAUSE, REFUSALS_MAX};
use crate::listen::Acceptor;
use crate::newcomers::{Newcomer, Newcomers};
use crate::server::{Server, ServerError};
use bytes::BytesMut;
use holdfast_types::SqlError;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// What clients and other nodes meet while the server does not serve.
pub trait Refusal: Send + Sync + 'static {
    /// The error for a client that connects now.
    fn error(&self) -> SqlError;

    /// Takes the link of another node. `input` has the bytes after the start-up packet.
    fn link(&self, stream: TcpStream, input: BytesMut);
}

impl Server {
    /// Refuses every client until `stop` becomes true. Runs on any runtime.
    pub async fn refuse(self, refusal: Arc<dyn Refusal>, mut stop: watch::Receiver<bool>) -> Result<(), ServerError> {
        // A client whose start-up packet is under way when `stop` comes is still answered.
        let (alive, never) = watch::channel(false);
        let alive = Arc::new(alive);
        let newcomers = Newcomers::new(REFUSALS_MAX);
        let Server { sockets, limits, tls, output, memory } = self;
        let mut acceptor = Acceptor::new(sockets).map_err(ServerError::Thread)?;
        loop {
            let admitted = async {
                let socket = acceptor.accept().await?.register()?;
                let newcomer = newcomers.admit(socket.peer(), limits.startup_timeout).await;
                Ok::<_, std::io::Error>((socket, newcomer))
            };
            let admitted = tokio::select! {
                biased;
                _ = stop.wait_for(|stopping| *stopping) => return Ok(()),
                admitted = admitted => admitted,
            };
            let Ok((socket, newcomer)) = admitted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let memory = memory.session(limits.session_memory_bytes_max);
            let client = Client::new(socket, tls.clone(), output, limits.clone(), memory, never.clone());
            let (refusal, alive) = (refusal.clone(), alive.clone());
            tokio::spawn(async move {
                let _alive = alive;
                answer(client, newcomer, &*refusal).await;
            });
        }
    }
}

async fn answer(mut client: Client, newcomer: Newcomer, refusal: &dyn Refusal) {
    match newcomer.within(handshake::hello(&mut client)).await {
        Ok(Hello::Start(_)) => say_goodbye(client, refusal.error().into()).await,
        Ok(Hello::Malformed(malformed)) => say_goodbye(client, malformed.into()).await,
        Ok(Hello::Link) => {
            if let Some((stream, input)) = link(client) {
                refusal.link(stream, input);
            }
        }
        Ok(Hello::Cancel { .. } | Hello::Gone | Hello::Stopping) | Err(_) => {}
    }
}
