//! A session without a database: enough statements to exercise the protocol.
//!
//! | statement | does |
//! |---|---|
//! | `echo $1` | one row with its parameter, int4 |
//! | `rows N` | N rows of int4 |
//! | `fail` | SQLSTATE 22012 |
//! | `begin`, `commit` | transaction status only |
//! | `copy` | COPY FROM STDIN of two columns |
//! | `wait` | waits for a cancel request |
//! | `need`, `make` | `need` can only be prepared after `make` has run |
//! | `log` | what the session did so far, one row each, text |
//! | `peer` | the session's [`holdfast_wire::Peer`], text |
//!
//! The users `carl`, whose password is `pencil`, and `ghost`, who has none, are asked for a password, other users are not.
//! In the database `hasty` a transaction may be idle for at most 300 ms, in any other database indefinitely. In the database
//! `watched` the connection is checked each 10 ms while a statement runs.

use holdfast_scram::Verifier;
use holdfast_types::desc::oid;
use holdfast_types::{ColumnDesc, Row, Sink, SqlError, SqlResult, SqlState, StatementDesc, Tag, Value, ValueRef};
use holdfast_wire::copy::{CopyFormat, CopyReader};
use holdfast_wire::{
    Cancel, Client, CopyChunk, End, Failure, Limits, Prover, Server, Session, SessionFactory, SocketUsers, Sockets,
    Startup, Status, Step, TlsSlot, Unproven,
};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

pub struct Statement {
    text: String,
    desc: Arc<StatementDesc>,
}

#[derive(Default)]
pub struct Canceller(Notify);

impl Cancel for Canceller {
    fn cancel(&self) {
        self.0.notify_one();
    }
}

pub struct FakeSession {
    status: Status,
    log: Vec<String>,
    canceller: Arc<Canceller>,
    hasty: bool,
    startup: Startup,
}

struct Cells(Vec<Value>);

impl Row for Cells {
    fn len(&self) -> usize {
        self.0.len()
    }
    fn get(&self, i: usize) -> ValueRef<'_> {
        self.0[i].as_ref()
    }
}

fn statement(text: &str) -> Arc<Statement> {
    let mut desc = StatementDesc::default();
    match text.split(' ').next().unwrap_or_default() {
        "echo" => {
            desc.params = vec![oid::INT4];
            desc.columns = vec![ColumnDesc::new("echo", oid::INT4)];
        }
        "rows" => desc.columns = vec![ColumnDesc::new("n", oid::INT4)],
        "log" | "peer" => desc.columns = vec![ColumnDesc::new("statement", oid::TEXT)],
        _ => {}
    }
    Arc::new(Statement { text: text.to_owned(), desc: Arc::new(desc) })
}

impl FakeSession {
    async fn one(&mut self, i: usize, text: &str, params: &[Value], client: &mut Client) -> SqlResult<()> {
        self.log.push(text.to_owned());
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rows: Vec<Value> = match word {
            "echo" => vec![params[0].clone()],
            "rows" => (1..=rest.parse().unwrap()).map(Value::Int).collect(),
            "log" => self.log.iter().cloned().map(Value::Text).collect(),
            "peer" => vec![Value::Text(format!("{:?}", self.startup.peer))],
            "fail" => return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")),
            "begin" => {
                self.status = Status::InTransaction;
                vec![]
            }
            "commit" => {
                self.status = Status::Idle;
                vec![]
            }
            "copy" => {
                client.reply().script_until(i);
                let n = self.copy(client).await?;
                client.reply().complete(i, &Tag { verb: "COPY", rows: Some(n) });
                return Ok(());
            }
            "wait" => {
                self.canceller.0.notified().await;
                return Err(SqlError::new(SqlState::QUERY_CANCELED, "canceling statement due to user request"));
            }
            _ => vec![],
        };
        let desc = &statement(text).desc;
        let reply = client.reply();
        reply.begin(i, desc);
        let count = (!desc.columns.is_empty()).then_some(rows.len() as u64);
        for row in rows {
            reply.row(&Cells(vec![row]))?;
        }
        reply.end(&Tag { verb: "DONE", rows: count });
        Ok(())
    }

    async fn copy(&mut self, client: &mut Client) -> SqlResult<u64> {
        let gone = |_| SqlError::new(SqlState::CONNECTION_DOES_NOT_EXIST, "gone");
        client.begin_copy_in(2).await.map_err(gone)?;
        let mut reader = CopyReader::new(CopyFormat::text(), vec!["a".into(), "b".into()]);
        let (mut data, mut row, mut n) = (Vec::new(), Vec::new(), 0);
        loop {
            data.clear();
            let chunk = client.copy_chunk(&mut data).await.map_err(gone)?;
            match &chunk {
                CopyChunk::Data => reader.feed(&data),
                CopyChunk::Done => reader.finish(),
                CopyChunk::Failed(why) => return Err(SqlError::new(SqlState::QUERY_CANCELED, why)),
            }
            while reader.next_row(&mut row)? {
                self.log.push(format!("{row:?}"));
                n += 1;
            }
            if chunk == CopyChunk::Done {
                return Ok(n);
            }
        }
    }

    fn failed(&mut self) {
        if self.status == Status::InTransaction {
            self.status = Status::Failed;
        }
    }
}

impl Session for FakeSession {
    type Prepared = Arc<Statement>;

    async fn prepare(&mut self, sql: &str, _: &[u32]) -> SqlResult<Arc<Statement>> {
        match sql {
            "bad" => Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error").with_position(1)),
            "need" if !self.log.iter().any(|s| s == "make") => {
                Err(SqlError::new(SqlState::UNDEFINED_TABLE, "not made yet"))
            }
            _ => Ok(statement(sql)),
        }
    }

    fn desc(prepared: &Arc<Statement>) -> &Arc<StatementDesc> {
        &prepared.desc
    }

    fn is_described_late(prepared: &Arc<Statement>) -> bool {
        prepared.text == "last"
    }

    /// The description of "last" is that of the statement before it.
    fn described(&self, prepared: &Arc<Statement>) -> Arc<Statement> {
        let desc = self.log.last().map(|text| statement(text).desc.clone());
        Arc::new(Statement { text: prepared.text.clone(), desc: desc.unwrap_or_default() })
    }

    fn reads_copy_data(prepared: &Arc<Statement>) -> bool {
        prepared.text == "copy"
    }

    fn input(_: u32, text: &str) -> SqlResult<Value> {
        Err(SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, format!("invalid input: \"{text}\"")))
    }

    async fn run(
        &mut self,
        steps: &mut Vec<Step<Arc<Statement>>>,
        end: End,
        client: &mut Client,
    ) -> Result<(), Failure> {
        for (i, step) in steps.drain(..).enumerate() {
            if let Err(error) = self.one(i, &step.prepared.text, &step.params, client).await {
                self.failed();
                return Err(Failure::at(i, error));
            }
        }
        if end == End::Sync {
            self.log.push("sync".into());
        }
        Ok(())
    }

    async fn simple(&mut self, text: &str, client: &mut Client) -> Result<(), Failure> {
        for (i, text) in text.split(';').map(str::trim).filter(|t| !t.is_empty()).enumerate() {
            if let Err(error) = self.one(i, text, &[], client).await {
                self.failed();
                return Err(Failure::at(i, error));
            }
        }
        Ok(())
    }

    async fn fail(&mut self) {
        self.failed();
    }

    fn status(&self) -> Status {
        self.status
    }

    fn cursor(&self, name: &str) -> Option<Arc<StatementDesc>> {
        self.log.iter().any(|made| made == name).then(|| statement(name).desc.clone())
    }

    fn parameters(&mut self) -> Vec<(String, String)> {
        [("server_version", "15.0"), ("client_encoding", "UTF8"), ("standard_conforming_strings", "on")]
            .map(|(n, v)| (n.into(), v.into()))
            .into()
    }

    fn canceller(&self) -> Arc<dyn Cancel> {
        self.canceller.clone()
    }

    fn idle_timeout(&self) -> Option<Duration> {
        (self.hasty && self.status != Status::Idle).then_some(Duration::from_millis(300))
    }

    fn connection_check_interval(&self) -> Option<Duration> {
        (self.startup.database == "watched").then_some(Duration::from_millis(10))
    }

    async fn idle_expired(&mut self) -> SqlError {
        SqlError::new(SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT, "idle too long")
    }

    async fn close(&mut self) {}
}

pub struct FakeFactory;

impl SessionFactory for FakeFactory {
    type Session = FakeSession;

    async fn authenticate(&self, startup: &Startup, prover: &mut Prover<'_>) -> Result<(), Unproven> {
        let verifier = match startup.user.as_str() {
            "carl" => Verifier::of("pencil", b"salt of carl", 4096),
            "ghost" => Verifier::mock("ghost", &[7; 32]),
            _ => return Ok(()),
        };
        if prover.scram(verifier, startup.user == "ghost").await? {
            return Ok(());
        }
        Err(SqlError::new(SqlState::INVALID_PASSWORD, "password authentication failed").into())
    }

    async fn open(&self, startup: Startup) -> SqlResult<FakeSession> {
        if startup.database == "nowhere" {
            return Err(SqlError::new(SqlState::INVALID_CATALOG_NAME, "database \"nowhere\" does not exist"));
        }
        let hasty = startup.database == "hasty";
        Ok(FakeSession { status: Status::Idle, log: Vec::new(), canceller: Arc::default(), hasty, startup })
    }
}

fn output(_: u32, _: i32, value: ValueRef<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{value:?}").as_bytes());
}

/// A running server; it stops when dropped.
pub struct Running {
    pub address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

pub fn start(limits: Limits) -> Running {
    start_with(limits, TlsSlot::none(), None)
}

/// Starts a server with TLS, or with a Unix socket for port 1 in this directory.
pub fn start_with(limits: Limits, tls: TlsSlot, unix: Option<&Path>) -> Running {
    let mut sockets = Sockets::default();
    let address = sockets.tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    unix.map(|directory| sockets.unix(directory, 1, SocketUsers::All).unwrap());
    let server = Server::new(sockets, limits, tls, output).unwrap();
    let (stop, stopped) = watch::channel(false);
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(server.run(FakeFactory, 2, stopped, || ())).unwrap().wait();
    });
    Running { address, stop, thread: Some(thread) }
}
