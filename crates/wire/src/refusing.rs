//! Answers clients while the server cannot serve any: it starts, changes its role, or stops.
//!
//! Without this a client that connects would wait in silence, in the socket's queue, for as long as a recovery takes or a
//! majority is away. It gets FATAL 57P03 in place of AuthenticationOk, so that libpq, JDBC and pgx try the next of their
//! hosts. Links of other nodes are passed on.
//!
//! Failure: a client that does not complete its start-up packet is dropped after the limit for that; beyond
//! [`REFUSALS_MAX`] connections at a time further ones are closed without an answer.

use crate::client::Client;
use crate::connection::say_goodbye;
use crate::handshake::{self, Hello};
use crate::limits::{ACCEPT_PAUSE, REFUSALS_MAX};
use crate::server::{Server, ServerError};
use bytes::BytesMut;
use holdfast_types::SqlError;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};

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
        let permits = Arc::new(Semaphore::new(REFUSALS_MAX));
        let (listener, limits, output) = self.into_parts();
        let listener = tokio::net::TcpListener::from_std(listener).map_err(ServerError::Thread)?;
        loop {
            let accepted = tokio::select! {
                biased;
                _ = stop.wait_for(|stopping| *stopping) => return Ok(()),
                accepted = listener.accept() => accepted,
            };
            let Ok((stream, _)) = accepted else {
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            };
            let Ok(permit) = permits.clone().try_acquire_owned() else { continue };
            // An error means that the client has already gone.
            let _ = stream.set_nodelay(true);
            let client = Client::new(stream, output, limits.clone(), never.clone());
            let (refusal, timeout, alive) = (refusal.clone(), limits.startup_timeout, alive.clone());
            tokio::spawn(async move {
                let (_permit, _alive) = (permit, alive);
                drop(tokio::time::timeout(timeout, answer(client, &*refusal)).await);
            });
        }
    }
}

async fn answer(mut client: Client, refusal: &dyn Refusal) {
    match handshake::hello(&mut client).await {
        Hello::Start(_) => say_goodbye(&mut client, refusal.error().into()).await,
        Hello::Malformed(malformed) => say_goodbye(&mut client, malformed.into()).await,
        Hello::Link => {
            let (stream, input) = client.into_parts();
            refusal.link(stream, input);
        }
        Hello::Cancel { .. } | Hello::Gone | Hello::Stopping => {}
    }
}
