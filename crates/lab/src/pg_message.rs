//! The messages of PostgreSQL's protocol the lab sends and reads (PostgreSQL manual, "Message Formats"), version 3.0.
//!
//! Failure: a malformed answer is an error that quotes its type; an ErrorResponse becomes a [`ServerError`].

use anyhow::Context;
use std::io::{self, ErrorKind, Write};
use std::net::TcpStream;

/// Longest answer message taken, in bytes.
const MESSAGE_BYTES_MAX: usize = 16 << 20;
/// Type byte and length.
const HEADER_BYTES: usize = 5;

/// An ErrorResponse.
#[derive(Debug, thiserror::Error)]
#[error("the server answered {message} ({state})")]
pub struct ServerError {
    pub state: String,
    pub message: String,
}

/// A message from the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Answer<'a> {
    pub kind: u8,
    pub body: &'a [u8],
}

/// Appends a message of `kind` whose body `fill` writes.
pub fn message(out: &mut Vec<u8>, kind: u8, fill: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    with_length(out, fill);
}

fn with_length(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend([0; 4]);
    fill(out);
    let length = (out.len() - at) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

fn zero_ended(out: &mut Vec<u8>, text: &str) {
    out.extend(text.as_bytes());
    out.push(0);
}

/// StartupMessage for protocol 3.0, with the session's options where it has any.
pub fn startup(out: &mut Vec<u8>, user: &str, database: &str, options: Option<&str>) {
    with_length(out, |b| {
        b.extend(196_608u32.to_be_bytes());
        for (name, value) in [("user", user), ("database", database), ("application_name", "holdfast-lab")] {
            zero_ended(b, name);
            zero_ended(b, value);
        }
        if let Some(options) = options {
            zero_ended(b, "options");
            zero_ended(b, options);
        }
        b.push(0);
    });
}

/// Query: a simple-protocol message.
pub fn query(out: &mut Vec<u8>, sql: &str) {
    message(out, b'Q', |b| zero_ended(b, sql));
}

/// Parse: prepares `sql` under `name`; the server infers the parameter types.
pub fn parse(out: &mut Vec<u8>, name: &str, sql: &str) {
    message(out, b'P', |b| {
        zero_ended(b, name);
        zero_ended(b, sql);
        b.extend([0, 0]);
    });
}

/// Bind to the unnamed portal, parameters and results as text, and Execute without a row limit.
pub fn bind_execute(out: &mut Vec<u8>, name: &str, parameters: &[&str]) {
    message(out, b'B', |b| {
        zero_ended(b, "");
        zero_ended(b, name);
        b.extend([0, 0]);
        b.extend((parameters.len() as u16).to_be_bytes());
        for parameter in parameters {
            b.extend((parameter.len() as u32).to_be_bytes());
            b.extend(parameter.as_bytes());
        }
        b.extend([0, 0]);
    });
    message(out, b'E', |b| b.extend([0; 5]));
}

/// Sync: ends a pipeline and its implicit transaction.
pub fn sync(out: &mut Vec<u8>) {
    message(out, b'S', |_| ());
}

/// CopyData.
pub fn copy_data(out: &mut Vec<u8>, data: &[u8]) {
    message(out, b'd', |b| b.extend(data));
}

/// CopyDone.
pub fn copy_done(out: &mut Vec<u8>) {
    message(out, b'c', |_| ());
}

/// Terminate.
pub fn terminate(out: &mut Vec<u8>) {
    message(out, b'X', |_| ());
}

/// The first whole message in `bytes` and its length, if there is one.
pub fn first_answer(bytes: &[u8]) -> anyhow::Result<Option<(Answer<'_>, usize)>> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
    anyhow::ensure!(
        (4..=MESSAGE_BYTES_MAX).contains(&length),
        "the server sent a message of type {:?} and length {length}",
        char::from(header[0])
    );
    let end = 1 + length;
    Ok(bytes.get(HEADER_BYTES..end).map(|body| (Answer { kind: header[0], body }, end)))
}

/// Reads an ErrorResponse's body.
pub fn server_error(body: &[u8]) -> ServerError {
    let field = |wanted: u8| {
        let found = body.split(|&b| b == 0).find_map(|f| f.strip_prefix(&[wanted]));
        found.map_or_else(String::new, |f| String::from_utf8_lossy(f).into_owned())
    };
    ServerError { state: field(b'C'), message: field(b'M') }
}

/// Reads a DataRow's body: each column's text, nothing for NULL.
pub fn data_row(body: &[u8]) -> anyhow::Result<Vec<Option<String>>> {
    let cut = || "a row the server sent is cut short".to_string();
    let (count, mut rest) = body.split_first_chunk::<2>().with_context(cut)?;
    let mut row = Vec::new();
    for _ in 0..u16::from_be_bytes(*count) {
        let (length, after) = rest.split_first_chunk::<4>().with_context(cut)?;
        let length = i32::from_be_bytes(*length);
        let bytes = usize::try_from(length).unwrap_or(0);
        let value = after.get(..bytes).with_context(cut)?;
        row.push((length >= 0).then(|| String::from_utf8_lossy(value).into_owned()));
        rest = &after[bytes..];
    }
    Ok(row)
}

/// Sends all of it over a connection that does not block; waits for the other end to read where the socket's buffer is full.
pub fn send_all(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(n) => rest = &rest[n..],
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                let mut fds = [rustix::event::PollFd::new(&*stream, rustix::event::PollFlags::OUT)];
                rustix::event::poll(&mut fds, None)?;
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => (),
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_what_the_manual_says() {
        let mut out = Vec::new();
        query(&mut out, "select 1");
        assert_eq!(out, b"Q\0\0\0\x0dselect 1\0");
        out.clear();
        startup(&mut out, "u", "d", None);
        assert_eq!(out[..8], [0, 0, 0, out.len() as u8, 0, 3, 0, 0]);
        out.clear();
        bind_execute(&mut out, "s", &["ab"]);
        assert_eq!(out, b"B\0\0\0\x13\0s\0\0\0\0\x01\0\0\0\x02ab\0\0E\0\0\0\x09\0\0\0\0\0");
        out.clear();
        sync(&mut out);
        assert_eq!(out, b"S\0\0\0\x04");
    }

    #[test]
    fn answers_are_found_when_whole() {
        let bytes = b"Z\0\0\0\x05IC\0";
        assert_eq!(first_answer(&bytes[..5]).unwrap(), None);
        assert_eq!(first_answer(bytes).unwrap(), Some((Answer { kind: b'Z', body: b"I" }, 6)));
        assert!(first_answer(b"Z\0\0\0\x03").is_err());
        assert!(first_answer(b"Z\xff\0\0\0").is_err());
    }

    #[test]
    fn bodies_are_read() {
        let error = server_error(b"SERROR\0C42P01\0Mno such table\0\0");
        assert_eq!((error.state.as_str(), error.message.as_str()), ("42P01", "no such table"));
        let row = data_row(b"\0\x03\0\0\0\x01a\xff\xff\xff\xff\0\0\0\0").unwrap();
        assert_eq!(row, [Some("a".into()), None, Some(String::new())]);
        assert!(data_row(b"\0\x01\0\0\0\x09a").is_err());
    }
}
