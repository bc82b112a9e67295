//! The extended query protocol: prepared statements, portals, and the batch of Executes that waits for Sync.
//!
//! Nothing runs at Execute. At Sync the whole batch goes to the session as one implicit transaction. At Flush the
//! gathered steps run and the implicit transaction stays open. This also happens when the answer to a message depends
//! on earlier steps: a Parse that fails because the batch creates its table, or a Bind of a FETCH from a cursor that
//! the batch declares.

use crate::backend;
use crate::client::Client;
use crate::decode;
use crate::frontend::{self, Formats, Malformed, Target};
use crate::held::{Fetched, Held};
use crate::limits::{FLUSH_BYTES, Limits};
use crate::memory::{Kept, SessionMemory};
use crate::session::{End, Failure, Session, Step};
use crate::status::Status;
use holdfast_types::{SqlError, SqlState, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// Why a message was refused.
pub(crate) enum Refused {
    Malformed(Malformed),
    /// The error is reported; everything up to the next Sync is skipped.
    Error(SqlError),
    /// The error is reported and the connection is closed.
    Fatal(SqlError),
}

impl From<Malformed> for Refused {
    fn from(malformed: Malformed) -> Refused {
        Refused::Malformed(malformed)
    }
}

impl From<SqlError> for Refused {
    fn from(error: SqlError) -> Refused {
        Refused::Error(error)
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        if failure.fatal { Refused::Fatal(failure.error) } else { Refused::Error(failure.error) }
    }
}

/// The progress of a portal.
enum Progress {
    Bound(Vec<Value>),
    /// The portal waits in the batch as this step.
    Queued(usize),
    /// The portal has rows left to fetch.
    Suspended(Held),
    Done,
}

struct Portal<P> {
    prepared: P,
    formats: Formats,
    progress: Progress,
    /// The bytes of its parameters, until it is in the batch.
    param_bytes: usize,
}

pub(crate) struct Pipeline<S: Session> {
    limits: Arc<Limits>,
    unnamed_statement: Option<S::Prepared>,
    statements: HashMap<String, S::Prepared>,
    /// The bytes of the prepared statements.
    texts: Kept,
    unnamed_portal: Option<Portal<S::Prepared>>,
    portals: HashMap<String, Portal<S::Prepared>>,
    batch: Vec<Step<S::Prepared>>,
    /// The bytes of the parameters in portals and in the batch.
    params: Kept,
    batch_bytes: usize,
    skip_to_sync: bool,
}

impl<S: Session> Pipeline<S> {
    pub fn new(limits: Arc<Limits>, memory: &Arc<SessionMemory>) -> Pipeline<S> {
        Pipeline {
            limits,
            unnamed_statement: None,
            statements: HashMap::new(),
            texts: Kept::new(memory),
            unnamed_portal: None,
            portals: HashMap::new(),
            batch: Vec::new(),
            params: Kept::new(memory),
            batch_bytes: 0,
            skip_to_sync: false,
        }
    }

    pub fn is_skipping(&self) -> bool {
        self.skip_to_sync
    }

    /// Handles a refused message of a batch: earlier steps run first, then the session is notified. Returns the first
    /// error, which is to be reported.
    pub async fn fail(&mut self, session: &mut S, client: &mut Client, refused: Refused) -> Refused {
        self.skip_to_sync = true;
        let Refused::Error(error) = refused else { return refused };
        match self.run(session, client, End::More).await {
            Ok(()) => {
                session.fail().await;
                Refused::Error(error)
            }
            Err(earlier) => earlier,
        }
    }

    /// Runs the gathered steps.
    async fn run(&mut self, session: &mut S, client: &mut Client, end: End) -> Result<(), Refused> {
        if self.batch.is_empty() && end == End::More {
            client.reply().finish();
            return Ok(());
        }
        client.reply().set_simple(false);
        client.reply().start_at(0);
        let outcome = session.run(&mut self.batch, end, client).await;
        self.batch.clear();
        self.params.remove(std::mem::take(&mut self.batch_bytes));
        self.forget_deallocated(client);
        match outcome {
            Ok(()) => {
                client.reply().finish();
                for (step, held) in client.reply().take_suspended() {
                    self.suspend(step, held);
                }
                self.settle_portals();
                Ok(())
            }
            Err(failure) => {
                client.reply().fail(failure.step);
                client.reply().take_suspended();
                self.settle_portals();
                Err(failure.into())
            }
        }
    }

    fn all_portals(&mut self) -> impl Iterator<Item = &mut Portal<S::Prepared>> {
        self.unnamed_portal.iter_mut().chain(self.portals.values_mut())
    }

    fn suspend(&mut self, step: usize, held: Held) {
        if let Some(portal) = self.all_portals().find(|p| matches!(p.progress, Progress::Queued(s) if s == step)) {
            portal.progress = Progress::Suspended(held);
        }
    }

    fn settle_portals(&mut self) {
        for portal in self.all_portals() {
            if let Progress::Queued(_) = portal.progress {
                portal.progress = Progress::Done;
            }
        }
    }

    pub async fn parse(&mut self, session: &mut S, client: &mut Client, bytes: usize) -> Result<(), Refused> {
        let message = frontend::parse(client.body(bytes))?;
        let name = message.name.to_owned();
        if !name.is_empty() {
            if self.statements.contains_key(&name) {
                return Err(SqlError::new(
                    SqlState::DUPLICATE_PREPARED_STATEMENT,
                    format!("prepared statement \"{name}\" already exists"),
                )
                .into());
            }
            limit(self.statements.len(), self.limits.prepared_statements_max, "prepared_statements_max")?;
        } else {
            self.forget(None);
        }
        let prepared = match session.prepare(message.sql, &message.param_types).await {
            Ok(prepared) => prepared,
            Err(error) if self.batch.is_empty() => return Err(error.into()),
            Err(_) => {
                // The statement may need steps of the batch that have not run yet.
                let (sql, types) = (message.sql.to_owned(), message.param_types);
                self.run(session, client, End::More).await?;
                session.prepare(&sql, &types).await?
            }
        };
        self.texts.add(S::kept_bytes(&prepared))?;
        if name.is_empty() {
            self.unnamed_statement = Some(prepared);
        } else {
            client.set_named(&name, true);
            self.statements.insert(name, prepared);
        }
        backend::parse_complete(client.reply().script());
        Ok(())
    }

    /// Forgets a prepared statement; `None`: the unnamed one.
    fn forget(&mut self, name: Option<&str>) {
        let forgotten = match name {
            None => self.unnamed_statement.take(),
            Some(name) => self.statements.remove(name),
        };
        self.texts.remove(forgotten.map_or(0, |prepared| S::kept_bytes(&prepared)));
    }

    fn statement(&self, name: &str) -> Result<&S::Prepared, SqlError> {
        let found = if name.is_empty() { self.unnamed_statement.as_ref() } else { self.statements.get(name) };
        found.ok_or_else(|| {
            let message = match name {
                "" => "unnamed prepared statement does not exist".to_owned(),
                name => format!("prepared statement \"{name}\" does not exist"),
            };
            SqlError::new(SqlState::INVALID_SQL_STATEMENT_NAME, message)
        })
    }

    pub async fn bind(&mut self, session: &mut S, client: &mut Client, bytes: usize) -> Result<(), Refused> {
        let mut message = frontend::bind(client.body(bytes))?;
        let mut prepared = self.statement(message.statement)?.clone();
        if S::is_described_late(&prepared) {
            self.run(session, client, End::More).await?;
            prepared = session.described(&prepared);
            message = frontend::bind(client.body(bytes))?;
        }
        let types = &S::desc(&prepared).params;
        if message.param_count != types.len() {
            return Err(SqlError::new(
                SqlState::PROTOCOL_VIOLATION,
                format!(
                    "bind message supplies {} parameters, but prepared statement \"{}\" requires {}",
                    message.param_count,
                    message.statement,
                    types.len()
                ),
            )
            .into());
        }
        if message.param_formats.count().is_some_and(|n| n != types.len()) {
            return Err(Malformed("bind message has the wrong number of parameter formats".into()).into());
        }
        let mut params = Vec::with_capacity(types.len());
        for (i, &type_oid) in types.iter().enumerate() {
            params.push(match frontend::param(&mut message.rest)? {
                Some(value) => decode::param(i + 1, type_oid, value, message.param_formats.is_binary(i), S::input)?,
                None => Value::Null,
            });
        }
        let formats = frontend::result_formats(message.rest)?;
        let columns = S::desc(&prepared).columns.len();
        if formats.count().is_some_and(|n| n != columns) {
            return Err(SqlError::new(
                SqlState::PROTOCOL_VIOLATION,
                format!("bind message has the wrong number of result formats; the query has {columns} columns"),
            )
            .into());
        }
        let name = message.portal.to_owned();
        if !name.is_empty() {
            if self.portals.contains_key(&name) {
                return Err(SqlError::new(SqlState("42P03"), format!("cursor \"{name}\" already exists")).into());
            }
            limit(self.portals.len(), self.limits.portals_max, "portals_max")?;
        }
        let param_bytes = bytes + params.len() * size_of::<Value>();
        self.params.add(param_bytes)?;
        let portal = Portal { prepared, formats, progress: Progress::Bound(params), param_bytes };
        let replaced = match name.is_empty() {
            true => self.unnamed_portal.replace(portal),
            false => self.portals.insert(name, portal),
        };
        self.release(replaced);
        backend::bind_complete(client.reply().script());
        Ok(())
    }

    fn portal(&mut self, name: &str) -> Result<&mut Portal<S::Prepared>, SqlError> {
        let found = if name.is_empty() { self.unnamed_portal.as_mut() } else { self.portals.get_mut(name) };
        found.ok_or_else(|| SqlError::new(SqlState::INVALID_CURSOR_NAME, format!("portal \"{name}\" does not exist")))
    }

    pub async fn describe(&mut self, session: &mut S, client: &mut Client, bytes: usize) -> Result<(), Refused> {
        let (prepared, formats) = match frontend::target(client.body(bytes))? {
            Target::Statement(name) => {
                let prepared = self.statement(name)?.clone();
                if S::is_described_late(&prepared) {
                    self.run(session, client, End::More).await?;
                    (session.described(&prepared), None)
                } else {
                    (prepared, None)
                }
            }
            Target::Portal(name) => match self.portal(name) {
                Ok(portal) => (portal.prepared.clone(), Some(&portal.formats)),
                Err(unknown) => {
                    let name = name.to_owned();
                    return self.describe_cursor(session, client, &name, unknown).await;
                }
            },
        };
        let desc = S::desc(&prepared);
        let script = client.reply().script();
        if formats.is_none() {
            backend::parameter_description(script, &desc.params);
        }
        if desc.returns_rows() {
            backend::row_description(script, &desc.columns, formats.unwrap_or(&Formats::Text));
        } else {
            backend::no_data(script);
        }
        Ok(())
    }

    /// Describes a cursor that SQL has declared, perhaps in this batch.
    async fn describe_cursor(
        &mut self,
        session: &mut S,
        client: &mut Client,
        name: &str,
        unknown: SqlError,
    ) -> Result<(), Refused> {
        self.run(session, client, End::More).await?;
        let desc = session.cursor(name).ok_or(unknown)?;
        backend::row_description(client.reply().script(), &desc.columns, &Formats::Text);
        Ok(())
    }

    pub fn close(&mut self, client: &mut Client, bytes: usize) -> Result<(), Refused> {
        match frontend::target(client.body(bytes))? {
            Target::Statement("") => self.forget(None),
            Target::Statement(name) => {
                let name = name.to_owned();
                self.forget(Some(&name));
                client.set_named(&name, false);
            }
            Target::Portal("") => {
                let portal = self.unnamed_portal.take();
                self.release(portal);
            }
            Target::Portal(name) => {
                let portal = self.portals.remove(name);
                self.release(portal);
            }
        }
        backend::close_complete(client.reply().script());
        Ok(())
    }

    pub async fn execute(
        &mut self,
        session: &mut S,
        client: &mut Client,
        name: &str,
        rows_max: usize,
    ) -> Result<(), Refused> {
        limit(self.batch.len(), self.limits.batch_steps_max, "batch_steps_max")?;
        let step = self.batch.len();
        let portal = self.portal(name)?;
        if let Progress::Bound(params) = &mut portal.progress {
            let params = std::mem::take(params);
            portal.progress = Progress::Queued(step);
            let prepared = portal.prepared.clone();
            // A named portal may be described again later; the unnamed one rarely is.
            let formats = if name.is_empty() { std::mem::take(&mut portal.formats) } else { portal.formats.clone() };
            let param_bytes = std::mem::take(&mut portal.param_bytes);
            self.batch_bytes += param_bytes;
            let at_once = S::reads_copy_data(&prepared);
            client.reply().push_step(formats, rows_max);
            self.batch.push(Step { prepared, params });
            return if at_once { self.run(session, client, End::More).await } else { Ok(()) };
        }
        self.run(session, client, End::More).await?;
        let Progress::Suspended(held) = &mut self.portal(name)?.progress else {
            let message = format!("portal \"{name}\" cannot be run");
            return Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).into());
        };
        let mut moved = 0;
        while held.fetch(client.reply().out(), rows_max, &mut moved, FLUSH_BYTES) == Fetched::Part {
            // A lost client is noticed by the connection.
            if client.flush().await.is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Handles Flush: runs the gathered steps and sends their answers.
    pub async fn flush(&mut self, session: &mut S, client: &mut Client) -> Result<(), Refused> {
        self.run(session, client, End::More).await
    }

    /// Handles Sync: runs the gathered steps and ends an implicit transaction.
    pub async fn sync(&mut self, session: &mut S, client: &mut Client) -> Result<(), Refused> {
        let outcome =
            if std::mem::take(&mut self.skip_to_sync) { Ok(()) } else { self.run(session, client, End::Sync).await };
        if session.status() == Status::Idle {
            self.close_portals();
        }
        outcome
    }

    /// Forgets prepared statements that DEALLOCATE removed: SQL can also name those that the protocol prepared.
    pub fn forget_deallocated(&mut self, client: &mut Client) {
        for name in client.take_deallocated() {
            self.forget(Some(&name));
        }
    }

    /// Closes all portals: they live until their transaction ends.
    pub fn close_portals(&mut self) {
        let portal = self.unnamed_portal.take();
        self.release(portal);
        for (_, portal) in std::mem::take(&mut self.portals) {
            self.release(Some(portal));
        }
    }

    /// Gives the memory of a portal's parameters back.
    fn release(&mut self, portal: Option<Portal<S::Prepared>>) {
        self.params.remove(portal.map_or(0, |portal| portal.param_bytes));
    }
}

fn limit(have: usize, max: usize, name: &str) -> Result<(), SqlError> {
    if have < max {
        return Ok(());
    }
    Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, format!("the limit {name} ({max}) is reached"))
        .with_hint(format!("Close what is no longer needed, or raise {name} in holdfast.toml.")))
}
