//! A connection in PostgreSQL's replication mode: simple queries, COPY TO STDOUT, and START_REPLICATION, after which both sides send.
//! tokio-postgres has no such mode; this speaks it with the messages of postgres-protocol.
//!
//! Source: the PostgreSQL 15 manual, 55.2 "Message Flow", 55.4 "Streaming Replication Protocol".
//!
//! Failure: what the server refuses is a [`LinkError::Refused`] with its SQLSTATE; everything else means that the connection is gone.

use crate::conninfo::ConnInfo;
use crate::server::ClientError;
use crate::statement::Row;
use crate::tls::{Mode, connector};
use bytes::{Buf, Bytes, BytesMut};
use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{AuthenticationSaslBody, COPY_DATA_TAG, DataRowBody, ErrorFields, Message};
use postgres_protocol::message::frontend;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};

/// Longest message that is taken: PostgreSQL's own limit of a value.
const MESSAGE_BYTES_MAX: u32 = 1 << 30;

/// `CopyBothResponse`, which postgres-protocol does not know.
const COPY_BOTH_TAG: u8 = b'W';

/// Why a connection, or something asked over it, failed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The connection string, or a file that it names.
    #[error("{0}")]
    Setting(String),
    /// An error of the server.
    #[error("{message} ({code})")]
    Refused { code: String, message: String },
    /// The connection is gone, or the server does not keep to the protocol.
    #[error("{0}")]
    Lost(String),
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> LinkError {
        LinkError::Lost(error.to_string())
    }
}

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// What arrives while both sides send.
#[derive(Debug)]
pub enum Received {
    Data(Bytes),
    /// The server has ended the exchange.
    End,
}

/// A connection in replication mode.
pub struct ReplicationLink {
    stream: Box<dyn Stream>,
    read: BytesMut,
    write: BytesMut,
    /// For messages: host and port.
    pub at: String,
}

impl ReplicationLink {
    /// Connects to the first host that takes the connection. `name` is what the server's views show.
    pub async fn connect(info: &ConnInfo, name: &str) -> Result<ReplicationLink, LinkError> {
        let mut last = LinkError::Setting("no host is named".to_owned());
        for (host, port) in &info.hosts {
            let one = connect_one(info, host, *port, name);
            match tokio::time::timeout(info.connect_timeout, one).await {
                Ok(Ok(link)) => return Ok(link),
                Ok(Err(error)) => last = error,
                Err(_) => last = LinkError::Lost(format!("{}: no answer in time", at(host, *port))),
            }
        }
        Err(last)
    }

    /// Runs one command; the rows of its answer.
    pub async fn query(&mut self, sql: &str) -> Result<Vec<Row>, LinkError> {
        self.send_query(sql).await?;
        let (mut rows, mut refused) = (Vec::new(), None);
        loop {
            match self.message().await? {
                Message::DataRow(row) => rows.push(cells(&row)?),
                Message::ErrorResponse(body) => refused = Some(refusal(body.fields())),
                Message::ReadyForQuery(_) => return refused.map_or(Ok(rows), Err),
                Message::CopyOutResponse(_) | Message::CopyInResponse(_) => {
                    return Err(LinkError::Lost("the server began a COPY that was not asked for".to_owned()));
                }
                _ => {}
            }
        }
    }

    /// Begins a COPY TO STDOUT; [`ReplicationLink::copied`] gives its data.
    pub async fn copy_out(&mut self, sql: &str) -> Result<(), LinkError> {
        self.send_query(sql).await?;
        loop {
            match self.message().await? {
                Message::CopyOutResponse(_) => return Ok(()),
                Message::ErrorResponse(body) => return Err(self.refused_until_ready(refusal(body.fields())).await),
                Message::ReadyForQuery(_) => return Err(LinkError::Lost("the server began no COPY".to_owned())),
                _ => {}
            }
        }
    }

    /// The next data of a COPY, which ends with `None`.
    pub async fn copied(&mut self) -> Result<Option<Bytes>, LinkError> {
        loop {
            match self.message().await? {
                Message::CopyData(body) => return Ok(Some(body.into_bytes())),
                Message::ErrorResponse(body) => return Err(self.refused_until_ready(refusal(body.fields())).await),
                Message::ReadyForQuery(_) => return Ok(None),
                _ => {}
            }
        }
    }

    /// Sends START_REPLICATION; from then on both sides send.
    pub async fn start(&mut self, sql: &str) -> Result<(), LinkError> {
        self.send_query(sql).await?;
        loop {
            self.fill_message().await?;
            if self.read[0] == COPY_BOTH_TAG {
                self.skip_message();
                return Ok(());
            }
            match self.parsed()? {
                Message::ErrorResponse(body) => return Err(self.refused_until_ready(refusal(body.fields())).await),
                Message::ReadyForQuery(_) => return Err(LinkError::Lost("the server began no feed".to_owned())),
                _ => {}
            }
        }
    }

    /// The next data of the other side. Cancelling it loses nothing.
    pub async fn received(&mut self) -> Result<Received, LinkError> {
        loop {
            if let Some(received) = self.received_now()? {
                return Ok(received);
            }
            self.read_more().await?;
        }
    }

    /// The next data of the other side, if it has arrived whole.
    pub fn received_now(&mut self) -> Result<Option<Received>, LinkError> {
        while let Some(tag) = self.whole_message()? {
            match self.parsed()? {
                Message::CopyData(body) if tag == COPY_DATA_TAG => return Ok(Some(Received::Data(body.into_bytes()))),
                Message::CopyDone | Message::CommandComplete(_) | Message::ReadyForQuery(_) => {
                    return Ok(Some(Received::End));
                }
                Message::ErrorResponse(body) => return Err(refusal(body.fields())),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Sends data to the other side.
    pub async fn send(&mut self, data: &[u8]) -> Result<(), LinkError> {
        frontend::CopyData::new(data)?.write(&mut self.write);
        self.flush().await
    }

    /// Ends the session.
    pub async fn close(mut self) {
        frontend::terminate(&mut self.write);
        // It is closed in any case.
        let _ = tokio::time::timeout(Duration::from_secs(1), self.flush()).await;
    }

    async fn send_query(&mut self, sql: &str) -> Result<(), LinkError> {
        frontend::query(sql, &mut self.write)?;
        self.flush().await
    }

    async fn flush(&mut self) -> Result<(), LinkError> {
        self.stream.write_all_buf(&mut self.write).await?;
        Ok(self.stream.flush().await?)
    }

    async fn refused_until_ready(&mut self, error: LinkError) -> LinkError {
        loop {
            match self.message().await {
                Ok(Message::ReadyForQuery(_)) => return error,
                Ok(_) => {}
                // Some errors end the connection: the error is what there is to say.
                Err(_) => return error,
            }
        }
    }

    async fn message(&mut self) -> Result<Message, LinkError> {
        self.fill_message().await?;
        self.parsed()
    }

    async fn fill_message(&mut self) -> Result<(), LinkError> {
        while self.whole_message()?.is_none() {
            self.read_more().await?;
        }
        Ok(())
    }

    async fn read_more(&mut self) -> Result<(), LinkError> {
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(LinkError::Lost("the server closed the connection".to_owned())),
            _ => Ok(()),
        }
    }

    /// The tag of the message that has arrived whole.
    fn whole_message(&self) -> Result<Option<u8>, LinkError> {
        let Some(length) = self.read.get(1..5).and_then(|bytes| bytes.try_into().ok()).map(u32::from_be_bytes) else {
            return Ok(None);
        };
        if !(4..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(LinkError::Lost(format!("the server sent a message of {length} bytes")));
        }
        Ok((self.read.len() > length as usize).then(|| self.read[0]))
    }

    fn skip_message(&mut self) {
        let length = self.read.get(1..5).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_be_bytes);
        self.read.advance(length as usize + 1);
    }

    fn parsed(&mut self) -> Result<Message, LinkError> {
        let whole = Message::parse(&mut self.read)?;
        whole.ok_or_else(|| LinkError::Lost("a message was cut off".to_owned()))
    }
}

fn at(host: &str, port: u16) -> String {
    format!("{host}:{port}")
}

async fn connect_one(info: &ConnInfo, host: &str, port: u16, name: &str) -> Result<ReplicationLink, LinkError> {
    let to = at(host, port);
    let stream = opened(info, host, port).await.map_err(|error| match error {
        LinkError::Lost(why) => LinkError::Lost(format!("could not connect to {to}: {why}")),
        other => other,
    })?;
    let mut link = ReplicationLink { stream, read: BytesMut::new(), write: BytesMut::new(), at: to };
    let name = info.application_name.as_deref().unwrap_or(name);
    let parameters = [
        ("user", info.user.as_str()),
        ("database", info.database.as_str()),
        ("replication", "database"),
        ("application_name", name),
        ("client_encoding", "UTF8"),
        // What is sent as text must be read the same here whatever the publisher's defaults are.
        ("options", "-c datestyle=ISO -c intervalstyle=postgres -c extra_float_digits=3"),
    ];
    frontend::startup_message(parameters, &mut link.write)?;
    link.flush().await?;
    authenticate(&mut link, info, host, port).await?;
    if info.primary_only {
        let answer = link.query("SELECT pg_catalog.pg_is_in_recovery()").await?;
        if answer.first().and_then(|row| row.first()) == Some(&Some("t".to_owned())) {
            return Err(LinkError::Lost(format!("{}: it is a standby", link.at)));
        }
    }
    Ok(link)
}

async fn opened(info: &ConnInfo, host: &str, port: u16) -> Result<Box<dyn Stream>, LinkError> {
    if host.starts_with('/') {
        let stream = UnixStream::connect(format!("{host}/.s.PGSQL.{port}")).await?;
        return Ok(Box::new(stream));
    }
    let mode = info.tls.resolved(false, is_here(host)).map_err(LinkError::Setting)?;
    let mut stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    if mode == Mode::Disable {
        return Ok(Box::new(stream));
    }
    let mut request = BytesMut::new();
    frontend::ssl_request(&mut request);
    stream.write_all(&request).await?;
    match stream.read_u8().await? {
        b'S' => {
            let mut connector = connector(mode, &info.tls)?;
            let made = MakeTlsConnect::<TcpStream>::make_tls_connect(&mut connector, host);
            let made = made.map_err(|error| LinkError::Setting(error.to_string()))?;
            Ok(Box::new(made.connect(stream).await?))
        }
        _ if mode == Mode::Prefer => Ok(Box::new(stream)),
        _ => Err(LinkError::Setting("the server does not support TLS, but sslmode requires it".to_owned())),
    }
}

fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
}

async fn authenticate(link: &mut ReplicationLink, info: &ConnInfo, host: &str, port: u16) -> Result<(), LinkError> {
    loop {
        match link.message().await? {
            Message::AuthenticationSasl(body) => {
                let password = info.password_for(host, port).map_err(LinkError::Setting)?.ok_or_else(|| {
                    LinkError::Setting(format!(
                        "{} asks for a password, and no password file has one for user {} and database {}",
                        link.at, info.user, info.database
                    ))
                })?;
                scram(link, &body, &password).await?;
            }
            Message::AuthenticationCleartextPassword | Message::AuthenticationMd5Password(_) => {
                let why = "asks for a password in clear text or by MD5, which is not sent: let it use scram-sha-256";
                return Err(LinkError::Setting(format!("{} {why}", link.at)));
            }
            Message::ErrorResponse(body) => return Err(refusal(body.fields())),
            Message::ReadyForQuery(_) => return Ok(()),
            _ => {}
        }
    }
}

/// Without channel binding: tokio-postgres keeps what it would need to itself. The server's certificate was checked as `sslmode`
/// says.
async fn scram(link: &mut ReplicationLink, body: &AuthenticationSaslBody, password: &str) -> Result<(), LinkError> {
    let offered: Vec<String> = body.mechanisms().map(|m| Ok(m.to_owned())).collect()?;
    if !offered.iter().any(|m| m == SCRAM_SHA_256) {
        return Err(LinkError::Setting(format!("{} offers no authentication by SCRAM-SHA-256", link.at)));
    }
    let mut scram = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
    frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), &mut link.write)?;
    link.flush().await?;
    loop {
        match link.message().await? {
            Message::AuthenticationSaslContinue(body) => {
                scram.update(body.data())?;
                frontend::sasl_response(scram.message(), &mut link.write)?;
                link.flush().await?;
            }
            Message::AuthenticationSaslFinal(body) => return Ok(scram.finish(body.data())?),
            Message::ErrorResponse(body) => return Err(refusal(body.fields())),
            _ => return Err(LinkError::Lost("an unexpected message during authentication".to_owned())),
        }
    }
}

fn cells(row: &DataRowBody) -> Result<Row, LinkError> {
    let mut cells = Vec::new();
    let mut ranges = row.ranges();
    while let Some(range) = ranges.next()? {
        let bytes = range.map(|range| row.buffer().get(range).unwrap_or_default());
        let text = bytes.map(|bytes| String::from_utf8(bytes.to_vec()));
        cells.push(text.transpose().map_err(|_| LinkError::Lost("the server sent text that is not UTF-8".to_owned()))?);
    }
    Ok(cells)
}

fn refusal(mut fields: ErrorFields<'_>) -> LinkError {
    let (mut code, mut message, mut more) = (String::new(), String::new(), String::new());
    while let Ok(Some(field)) = fields.next() {
        let value = String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'C' => code = value,
            b'M' => message = value,
            b'D' => more.push_str(&format!(". DETAIL: {value}")),
            b'H' => more.push_str(&format!(". HINT: {value}")),
            _ => {}
        }
    }
    LinkError::Refused { code, message: message + &more }
}
