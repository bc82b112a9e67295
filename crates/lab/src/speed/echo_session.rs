//! One connection of the echo server: messages in, the shortest complete answers out.

use crate::pg_message::{first_answer, message, send_all};
use std::collections::HashSet;
use std::io::{Error, ErrorKind, Read, Result};
use std::net::TcpStream;

/// Codes of a first message (PostgreSQL manual, "Message Formats"): TLS or GSSAPI encryption is asked for.
const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;
/// A first message may be as long.
const FIRST_BYTES_MAX: usize = 10_000;
/// The row that answers each SELECT. pgbench asks for the partitions of its tables and takes NULL for none.
const ROW: [Option<&str>; 3] = [Some("1"), None, Some("1")];
/// The type `bigint`.
const BIGINT_OID: u32 = 20;

/// See the module's description.
pub struct Session {
    stream: TcpStream,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    started: bool,
    /// Prepared statements that return a row.
    selects: HashSet<Vec<u8>>,
    /// The bound statement returns a row.
    bound_select: bool,
}

impl Session {
    /// A connection that has sent nothing yet and does not block.
    pub fn new(stream: TcpStream) -> Session {
        let (inbox, outbox) = (Vec::new(), Vec::new());
        Session { stream, inbox, outbox, started: false, selects: HashSet::new(), bound_select: false }
    }

    /// Reads what is there and answers every whole message; an error ends the connection.
    pub fn answer(&mut self) -> Result<()> {
        let mut buffer = [0; 16_384];
        match self.stream.read(&mut buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => self.inbox.extend_from_slice(&buffer[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(()),
            Err(e) => return Err(e),
        }
        let inbox = std::mem::take(&mut self.inbox);
        let mut used = 0;
        while !self.started {
            let Some(length) = first_length(&inbox[used..])? else { break };
            self.first(&inbox[used..used + length])?;
            used += length;
        }
        while self.started
            && let Some((asked, length)) = first_answer(&inbox[used..]).map_err(Error::other)?
        {
            self.one(asked.kind, asked.body)?;
            used += length;
        }
        self.inbox.extend_from_slice(&inbox[used..]);
        self.flush()
    }

    /// A request for encryption, or the start-up message.
    fn first(&mut self, bytes: &[u8]) -> Result<()> {
        let code = bytes.get(4..8).and_then(|code| code.try_into().ok()).map_or(0, u32::from_be_bytes);
        if code == SSL_REQUEST || code == GSSENC_REQUEST {
            self.outbox.push(b'N');
            return Ok(());
        }
        self.started = true;
        message(&mut self.outbox, b'R', |b| b.extend([0; 4]));
        for (name, value) in [("server_version", "15.0"), ("client_encoding", "UTF8")] {
            message(&mut self.outbox, b'S', |b| b.extend([name, "\0", value, "\0"].concat().as_bytes()));
        }
        self.ready();
        Ok(())
    }

    fn one(&mut self, kind: u8, body: &[u8]) -> Result<()> {
        match kind {
            b'Q' => {
                let text = body.strip_suffix(&[0]).unwrap_or(body);
                for statement in text.split(|byte| *byte == b';').map(<[u8]>::trim_ascii).filter(|s| !s.is_empty()) {
                    self.described(is_select(statement));
                    self.executed(is_select(statement));
                }
                self.ready();
            }
            b'P' => {
                let (name, rest) = zero_ended(body);
                if is_select(rest) {
                    self.selects.insert(name.to_vec());
                }
                self.empty(b'1');
            }
            b'B' => {
                let (_portal, rest) = zero_ended(body);
                self.bound_select = self.selects.contains(zero_ended(rest).0);
                self.empty(b'2');
            }
            b'D' if self.bound_select => self.described(true),
            b'D' => self.empty(b'n'),
            b'E' => self.executed(self.bound_select),
            b'S' => self.ready(),
            b'H' => (),
            b'C' => self.empty(b'3'),
            _ => return Err(ErrorKind::UnexpectedEof.into()),
        }
        Ok(())
    }

    /// A RowDescription, where there are rows.
    fn described(&mut self, select: bool) {
        if select {
            message(&mut self.outbox, b'T', |b| {
                b.extend((ROW.len() as u16).to_be_bytes());
                for _ in ROW {
                    b.extend(b"v\0");
                    b.extend([0; 6]);
                    b.extend(BIGINT_OID.to_be_bytes());
                    b.extend(8u16.to_be_bytes());
                    b.extend((-1i32).to_be_bytes());
                    b.extend([0; 2]);
                }
            });
        }
    }

    /// The row, where there is one, and CommandComplete.
    fn executed(&mut self, select: bool) {
        if select {
            message(&mut self.outbox, b'D', |b| {
                b.extend((ROW.len() as u16).to_be_bytes());
                for value in ROW {
                    b.extend(value.map_or(-1, |v| v.len() as i32).to_be_bytes());
                    b.extend(value.unwrap_or_default().as_bytes());
                }
            });
        }
        message(&mut self.outbox, b'C', |b| b.extend(if select { &b"SELECT 1\0"[..] } else { b"UPDATE 1\0" }));
    }

    fn ready(&mut self) {
        message(&mut self.outbox, b'Z', |b| b.push(b'I'));
    }

    fn empty(&mut self, kind: u8) {
        message(&mut self.outbox, kind, |_| ());
    }

    /// Sends the answers. They are far smaller than a socket's buffer; should they not fit, waits for the client to read.
    fn flush(&mut self) -> Result<()> {
        send_all(&mut self.stream, &self.outbox)?;
        self.outbox.clear();
        Ok(())
    }
}

/// The length of a first message, which has no type, once it is there.
fn first_length(bytes: &[u8]) -> Result<Option<usize>> {
    let Some(length) = bytes.first_chunk::<4>() else { return Ok(None) };
    let length = u32::from_be_bytes(*length) as usize;
    if !(8..=FIRST_BYTES_MAX).contains(&length) {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok((bytes.len() >= length).then_some(length))
}

fn zero_ended(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 1..).unwrap_or_default())
}

fn is_select(sql: &[u8]) -> bool {
    sql.get(..6).is_some_and(|word| word.eq_ignore_ascii_case(b"select"))
}
