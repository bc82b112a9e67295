//! One connection from accept to close.

use crate::auth::{Prover, Unproven};
use crate::backend;
use crate::client::{Client, Lost, Wake};
use crate::frontend::{self, Malformed};
use crate::handshake::{self, Hello};
use crate::newcomers::Newcomer;
use crate::pipeline::{Pipeline, Refused};
use crate::registry::Registry;
use crate::session::{Cancel, Session, SessionFactory, Startup};
use crate::status::Status;
use crate::stream::Socket;
use crate::termination::Termination;
use bytes::BytesMut;
use holdfast_types::{SqlError, SqlState};
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// So that a client whose next request was under way knows its outcome.
const NOTHING_MORE_WAS_RUN: &str =
    "Requests that were not answered were not run; a transaction that was open is rolled back.";

/// How a connection ended.
pub(crate) enum Closed {
    /// The client sent Terminate or disconnected.
    ByClient,
    /// The server closed the connection after a last FATAL message.
    ByServer(SqlError),
}

impl From<Lost> for Closed {
    fn from(_: Lost) -> Closed {
        Closed::ByClient
    }
}

impl From<SqlError> for Closed {
    fn from(error: SqlError) -> Closed {
        Closed::ByServer(error)
    }
}

impl From<Malformed> for Closed {
    fn from(malformed: Malformed) -> Closed {
        Closed::ByServer(SqlError::new(SqlState::PROTOCOL_VIOLATION, malformed.0))
    }
}

/// Runs start-up, then the session until either side ends it. Returns the client of a session that the server has ended: it is
/// to be waited for ([`Client::linger`]), which needs nothing of the session.
pub(crate) async fn serve<F: SessionFactory>(
    mut client: Client,
    newcomer: Newcomer,
    factory: &F,
    registry: &Arc<Registry>,
    connections_max: usize,
) -> Option<Client> {
    let hello = match newcomer.within(handshake::hello(&mut client)).await {
        Ok(hello) => hello,
        Err(why) => {
            tracing::debug!(?why, "a client did not complete its start-up");
            return None;
        }
    };
    let startup = match hello {
        Hello::Start(startup) => startup,
        Hello::Cancel { pid, key } => {
            registry.cancel(pid, key);
            return None;
        }
        Hello::Link => {
            drop(newcomer);
            if let Some((stream, input)) = link(client) {
                factory.link(stream, input).await;
            }
            return None;
        }
        Hello::Gone => return None,
        Hello::Stopping => return said_goodbye(client, SqlError::shutting_down().into()).await,
        Hello::Malformed(malformed) => return said_goodbye(client, malformed.into()).await,
    };
    let startup = Startup { peer: client.peer(), ..startup };
    let mut prover = Prover::new(&mut client, startup.peer.tls.clone());
    match newcomer.within(factory.authenticate(&startup, &mut prover)).await {
        Ok(Ok(())) => {}
        Ok(Err(Unproven::Lost)) => return None,
        Ok(Err(Unproven::Refused(error))) => return said_goodbye(client, error.into()).await,
        Err(why) => {
            tracing::debug!(?why, "a client did not prove its identity");
            return None;
        }
    }
    // Only now: clients that prove nothing take no place of a session.
    let registration = registry.register();
    let sessions = registry.len();
    if sessions > connections_max {
        let error = SqlError::new(SqlState::TOO_MANY_CONNECTIONS, "sorry, too many clients already")
            .with_detail(format!("The limit is {connections_max} (connections_max)."));
        return said_goodbye(client, error.into()).await;
    }
    let startup = Startup { pid: registration.pid, sessions, ..startup };
    let mut session = match factory.open(startup).await {
        Ok(session) => session,
        Err(error) => return said_goodbye(client, error.into()).await,
    };
    drop(newcomer);
    session.set_memory(client.memory());
    registration.set_cancel(session.canceller());
    client.set_termination(session.termination());
    if let Some((before, now)) = session.changed_keepalives() {
        client.socket().keep_alive(before, now);
    }
    let out = client.reply().out();
    backend::authentication_ok(out);
    for (name, value) in session.parameters() {
        backend::parameter_status(out, &name, &value);
    }
    backend::backend_key_data(out, registration.pid, registration.key);
    backend::ready_for_query(out, session.status());
    let pipeline = Pipeline::new(client.limits().clone(), client.memory());
    let watch = Watch { socket: client.socket(), cancel: session.canceller() };
    let closed = Connection { client: &mut client, session: &mut session, pipeline, watch }.run().await;
    session.close().await;
    said_goodbye(client, closed).await
}

/// The socket of another node on this machine. A link over the clients' port has no certificate, so it must not come from
/// another machine.
pub(crate) fn link(client: Client) -> Option<(TcpStream, BytesMut)> {
    let peer = client.peer();
    match client.into_parts() {
        Some((Socket::Tcp(stream), input)) if peer.is_local() => Some((stream, input)),
        _ => {
            let from = peer.address.map(|address| address.to_string()).unwrap_or_default();
            tracing::warn!(
                from,
                "refused a node's link: the port for clients takes links of this machine only (node_listen)"
            );
            None
        }
    }
}

/// Sends the error that ends the connection, where there is one, and waits until the client has taken it.
pub(crate) async fn say_goodbye(client: Client, closed: Closed) {
    if let Some(mut client) = said_goodbye(client, closed).await {
        client.linger().await;
    }
}

/// Sends the error that ends the connection, where there is one. Returns the client that has yet to take it.
async fn said_goodbye(mut client: Client, closed: Closed) -> Option<Client> {
    let closed = client.take_malformed().map(Closed::from).unwrap_or(closed);
    let Closed::ByServer(error) = closed else { return None };
    backend::error(client.reply().out(), true, &error);
    // The client may be gone; then the error cannot be reported.
    client.flush().await.is_ok().then_some(client)
}

/// What a check of a client's connection needs while a statement runs.
#[derive(Clone)]
struct Watch {
    socket: Arc<Socket>,
    cancel: Arc<dyn Cancel>,
}

impl Watch {
    /// Runs `work`; looks each `interval` whether the client is still there, and interrupts `work` when it is not. Also returns
    /// whether the client has gone.
    async fn during<T>(self, interval: Duration, work: impl Future<Output = T>) -> (T, bool) {
        let mut work = std::pin::pin!(work);
        let mut is_gone = false;
        loop {
            tokio::select! {
                biased;
                done = &mut work => return (done, is_gone),
                () = tokio::time::sleep(interval) => {
                    is_gone |= self.socket.is_closed();
                    if is_gone {
                        self.cancel.cancel();
                    }
                }
            }
        }
    }
}

struct Connection<'a, S: Session> {
    client: &'a mut Client,
    session: &'a mut S,
    pipeline: Pipeline<S>,
    watch: Watch,
}

impl<S: Session> Connection<'_, S> {
    async fn run(&mut self) -> Closed {
        if let Err(Lost) = self.client.flush().await {
            return Closed::ByClient;
        }
        loop {
            let (done, is_gone) = match self.session.connection_check_interval() {
                None => (self.turn().await, false),
                Some(interval) => self.watch.clone().during(interval, self.turn()).await,
            };
            if let Err(closed) = done {
                return closed;
            }
            if is_gone || self.client.is_lost() {
                return Closed::ByClient;
            }
        }
    }

    /// Handles one message, or waits for one.
    async fn turn(&mut self) -> Result<(), Closed> {
        if self.client.is_terminated() {
            return Err(Termination::error().into());
        }
        let Some((kind, bytes)) = self.client.next_message()? else { return self.wait().await };
        match kind {
            b'X' => return Err(Closed::ByClient),
            b'S' => {
                self.client.consume(bytes);
                let outcome = self.pipeline.sync(self.session, self.client).await;
                return self.end_of_request(outcome).await;
            }
            b'Q' => return self.query(bytes).await,
            // Left over from a COPY that failed: the client continues to send until it reads the error.
            b'd' | b'c' | b'f' => {
                self.client.consume(bytes);
                return Ok(());
            }
            b'p' => return Err(Malformed("unexpected password message".into()).into()),
            _ if self.pipeline.is_skipping() => {
                self.client.consume(bytes);
                return Ok(());
            }
            _ => {}
        }
        if let Err(refused) = self.extended(kind, bytes).await {
            let refused = self.pipeline.fail(self.session, self.client, refused).await;
            self.report(refused)?;
            // At once, as by PostgreSQL: a client that sends Flush and no Sync waits for it.
            self.flush().await?;
        } else if kind == b'H' {
            self.flush().await?;
        }
        Ok(())
    }

    async fn extended(&mut self, kind: u8, bytes: usize) -> Result<(), Refused> {
        let (pipeline, session, client) = (&mut self.pipeline, &mut *self.session, &mut *self.client);
        let outcome = match kind {
            b'P' => pipeline.parse(session, client, bytes).await,
            b'B' => pipeline.bind(session, client, bytes).await,
            b'D' => pipeline.describe(session, client, bytes).await,
            b'C' => pipeline.close(client, bytes),
            // These two may run a COPY, which reads its data from the input.
            b'E' => {
                let (name, rows_max) = frontend::execute(client.body(bytes))?;
                let name = name.to_owned();
                client.consume(bytes);
                return pipeline.execute(session, client, &name, rows_max).await;
            }
            b'H' => {
                client.consume(bytes);
                return pipeline.flush(session, client).await;
            }
            _ => Err(Malformed(format!("unexpected message type \"{}\"", kind as char)).into()),
        };
        client.consume(bytes);
        outcome
    }

    async fn query(&mut self, bytes: usize) -> Result<(), Closed> {
        let text = frontend::query(self.client.body(bytes))?.to_owned();
        self.client.consume(bytes);
        if self.pipeline.is_skipping() {
            return Ok(());
        }
        // A batch without a Sync runs first.
        let mut outcome = self.pipeline.flush(self.session, self.client).await;
        if outcome.is_ok() {
            let reply = self.client.reply();
            reply.set_simple(true);
            reply.start_at(0);
            outcome = match self.session.simple(&text, self.client).await {
                Ok(()) => {
                    self.client.reply().finish();
                    Ok(())
                }
                Err(failure) => {
                    self.client.reply().fail(failure.step);
                    Err(failure.into())
                }
            };
            self.client.reply().set_simple(false);
            self.pipeline.forget_deallocated(self.client);
        }
        if self.session.status() == Status::Idle {
            self.pipeline.close_portals();
        }
        self.end_of_request(outcome).await
    }

    /// Appends ReadyForQuery after Sync or Query, after the error if there was one.
    async fn end_of_request(&mut self, outcome: Result<(), Refused>) -> Result<(), Closed> {
        if let Err(refused) = outcome {
            self.report(refused)?;
        }
        if let Some((before, now)) = self.session.changed_keepalives() {
            self.client.socket().keep_alive(before, now);
        }
        let out = self.client.reply().out();
        for (name, value) in self.session.changed_parameters() {
            backend::parameter_status(out, &name, &value);
        }
        backend::ready_for_query(out, self.session.status());
        Ok(self.flush().await?)
    }

    /// Sends what is ready. Meanwhile the session is woken when it asked for it, even if the client does not read.
    async fn flush(&mut self) -> Result<(), Lost> {
        let mut sent = std::pin::pin!(self.client.flush());
        while let Some(soon) = self.session.wake_after() {
            tokio::select! {
                biased;
                sent = &mut sent => return sent,
                () = tokio::time::sleep(soon) => self.session.woken().await,
            }
        }
        sent.await
    }

    fn report(&mut self, refused: Refused) -> Result<(), Closed> {
        match refused {
            // What was cancelled to end the session has no answer of its own.
            Refused::Error(error) if error.state() == SqlState::QUERY_CANCELED && self.client.is_ending() => {
                Err(Termination::error().into())
            }
            Refused::Error(error) => {
                backend::error(self.client.reply().out(), false, &error);
                Ok(())
            }
            Refused::Fatal(error) => Err(Closed::ByServer(error)),
            Refused::Malformed(malformed) => Err(malformed.into()),
        }
    }

    async fn wait(&mut self) -> Result<(), Closed> {
        let silent_since = Instant::now();
        loop {
            let left = self.session.idle_timeout().map(|t| t.saturating_sub(silent_since.elapsed()));
            let soon = self.session.wake_after().filter(|soon| left.is_none_or(|left| *soon < left));
            match self.client.fill(soon.or(left)).await? {
                Wake::Input => return Ok(()),
                Wake::TimedOut if soon.is_some() => self.session.woken().await,
                Wake::TimedOut => return Err(Closed::ByServer(self.session.idle_expired().await)),
                Wake::Terminate => return Err(Termination::error().into()),
                Wake::Stop => {
                    let why = "terminating connection due to administrator command";
                    let error = SqlError::new(SqlState::ADMIN_SHUTDOWN, why);
                    return Err(error.with_detail(NOTHING_MORE_WAS_RUN).into());
                }
            }
        }
    }
}
