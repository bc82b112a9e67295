//! A client that speaks the protocol by itself, because drivers do not leave portals suspended or results unread.

use std::io::{Read, Write};
use std::net::TcpStream;

pub struct RawClient {
    stream: TcpStream,
    input: Vec<u8>,
}

/// A message of the server: its letter, and the first bytes of its body.
pub type Message = (u8, Vec<u8>);

impl RawClient {
    pub fn connect(port: u16) -> RawClient {
        let mut client = RawClient { stream: TcpStream::connect(("127.0.0.1", port)).unwrap(), input: Vec::new() };
        let body = [&196_608_u32.to_be_bytes()[..], b"user\0holdfast\0database\0holdfast\0\0"].concat();
        client.stream.write_all(&(body.len() as u32 + 4).to_be_bytes()).unwrap();
        client.stream.write_all(&body).unwrap();
        client.answer();
        client
    }

    pub fn send(&mut self, kind: u8, body: &[u8]) {
        let length = (body.len() as u32 + 4).to_be_bytes();
        self.stream.write_all(&[&[kind][..], &length, body].concat()).unwrap();
    }

    pub fn query(&mut self, sql: &str) -> Vec<Message> {
        self.send(b'Q', &[sql.as_bytes(), b"\0"].concat());
        self.answer()
    }

    pub fn parse(&mut self, name: &str, sql: &str) {
        self.send(b'P', &[name.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"].concat());
    }

    /// Binds a statement without parameters to a portal.
    pub fn bind(&mut self, portal: &str, statement: &str) {
        self.send(b'B', &[portal.as_bytes(), b"\0", statement.as_bytes(), b"\0\0\0\0\0\0\0"].concat());
    }

    pub fn execute(&mut self, portal: &str, rows_max: u32) {
        self.send(b'E', &[portal.as_bytes(), b"\0", &rows_max.to_be_bytes()].concat());
    }

    pub fn sync(&mut self) -> Vec<Message> {
        self.send(b'S', b"");
        self.answer()
    }

    /// Reads until ReadyForQuery.
    fn answer(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            let message = self.message();
            let is_last = message.0 == b'Z';
            messages.push(message);
            if is_last {
                return messages;
            }
        }
    }

    fn message(&mut self) -> Message {
        let mut header = [0; 5];
        self.stream.read_exact(&mut header).unwrap();
        let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize - 4;
        self.input.resize(length, 0);
        self.stream.read_exact(&mut self.input).unwrap();
        (header[0], self.input[..length.min(200)].to_vec())
    }
}

/// The SQLSTATE of the first error among the messages.
pub fn state(messages: &[Message]) -> Option<String> {
    let (_, body) = messages.iter().find(|(kind, _)| *kind == b'E')?;
    let field = body.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"C"))?;
    Some(String::from_utf8_lossy(field).into_owned())
}

/// How many messages have this letter.
pub fn count(messages: &[Message], kind: u8) -> usize {
    messages.iter().filter(|message| message.0 == kind).count()
}
