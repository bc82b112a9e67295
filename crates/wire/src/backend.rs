//! Messages to the client, appended to an output buffer. Frequent messages are written in place; errors, notices and
//! start-up messages use the structures of the pgwire crate.

use crate::encode::{integer, type_len};
use crate::frontend::Formats;
use crate::status::Status;
use bytes::BytesMut;
use holdfast_types::{ColumnDesc, SqlError, Tag};
use pgwire::messages::Message;
use pgwire::messages::response::{ErrorResponse, NoticeResponse};
use pgwire::messages::startup::{Authentication, BackendKeyData, NegotiateProtocolVersion, ParameterStatus, SecretKey};

/// Appends a message of the pgwire crate. Its only errors are lengths that no message of Holdfast reaches.
fn put(out: &mut Vec<u8>, message: &impl Message) {
    let mut buffer = BytesMut::new();
    match message.encode(&mut buffer) {
        Ok(()) => out.extend_from_slice(&buffer),
        Err(error) => tracing::error!(%error, "a message to the client could not be encoded"),
    }
}

/// Appends a message: type letter, length, and what `body` writes.
pub fn message(out: &mut Vec<u8>, kind: u8, body: impl FnOnce(&mut Vec<u8>)) {
    let at = open(out, kind);
    body(out);
    close(out, at);
}

/// Starts a message; [`close`] completes its length.
pub fn open(out: &mut Vec<u8>, kind: u8) -> usize {
    out.extend_from_slice(&[kind, 0, 0, 0, 0]);
    out.len() - 4
}

/// Completes the length of the message started at `at`. Callers keep messages below 2 GB.
pub fn close(out: &mut [u8], at: usize) {
    let bytes = (out.len() - at) as u32;
    out[at..at + 4].copy_from_slice(&bytes.to_be_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    // A zero byte would end the string early, and the client would read the rest as protocol.
    out.extend(text.bytes().map(|b| if b == 0 { b'?' } else { b }));
    out.push(0);
}

pub fn parse_complete(out: &mut Vec<u8>) {
    out.extend_from_slice(b"1\0\0\0\x04");
}

pub fn bind_complete(out: &mut Vec<u8>) {
    out.extend_from_slice(b"2\0\0\0\x04");
}

pub fn close_complete(out: &mut Vec<u8>) {
    out.extend_from_slice(b"3\0\0\0\x04");
}

pub fn no_data(out: &mut Vec<u8>) {
    out.extend_from_slice(b"n\0\0\0\x04");
}

pub fn portal_suspended(out: &mut Vec<u8>) {
    out.extend_from_slice(b"s\0\0\0\x04");
}

pub fn empty_query_response(out: &mut Vec<u8>) {
    out.extend_from_slice(b"I\0\0\0\x04");
}

pub fn copy_done(out: &mut Vec<u8>) {
    out.extend_from_slice(b"c\0\0\0\x04");
}

pub fn ready_for_query(out: &mut Vec<u8>, status: Status) {
    let letter = match status {
        Status::Idle => b'I',
        Status::InTransaction => b'T',
        Status::Failed => b'E',
    };
    out.extend_from_slice(&[b'Z', 0, 0, 0, 5, letter]);
}

pub fn command_complete(out: &mut Vec<u8>, tag: &Tag) {
    message(out, b'C', |out| {
        out.extend_from_slice(tag.verb.as_bytes());
        if let Some(rows) = tag.rows {
            out.push(b' ');
            integer(out, i64::try_from(rows).unwrap_or(i64::MAX));
        }
        out.push(0);
    });
}

pub fn parameter_description(out: &mut Vec<u8>, types: &[u32]) {
    message(out, b't', |out| {
        out.extend_from_slice(&(types.len() as u16).to_be_bytes());
        for type_oid in types {
            out.extend_from_slice(&type_oid.to_be_bytes());
        }
    });
}

/// Appends a RowDescription.
pub fn row_description(out: &mut Vec<u8>, columns: &[ColumnDesc], formats: &Formats) {
    message(out, b'T', |out| {
        out.extend_from_slice(&(columns.len() as u16).to_be_bytes());
        for (i, column) in columns.iter().enumerate() {
            text(out, &column.name);
            out.extend_from_slice(&column.table_oid.to_be_bytes());
            out.extend_from_slice(&column.attnum.to_be_bytes());
            out.extend_from_slice(&column.type_oid.to_be_bytes());
            out.extend_from_slice(&type_len(column.type_oid).to_be_bytes());
            out.extend_from_slice(&column.typmod.to_be_bytes());
            out.extend_from_slice(&i16::from(formats.is_binary(i)).to_be_bytes());
        }
    });
}

/// Appends a CopyInResponse (`G`) or CopyOutResponse (`H`) for this number of columns in text format.
pub fn copy_response(out: &mut Vec<u8>, kind: u8, columns: usize) {
    message(out, kind, |out| {
        out.push(0);
        out.extend_from_slice(&(columns as u16).to_be_bytes());
        out.resize(out.len() + 2 * columns, 0);
    });
}

fn fields(severity: &str, error: &SqlError) -> Vec<(u8, String)> {
    let parts = error.parts();
    let mut fields = vec![
        (b'S', severity.to_owned()),
        (b'V', severity.to_owned()),
        (b'C', parts.state.0.to_owned()),
        (b'M', parts.message.replace('\0', "?")),
    ];
    let optional = [
        (b'D', parts.detail.clone()),
        (b'H', parts.hint.clone()),
        (b'P', parts.position.map(|p| p.to_string())),
        (b'n', parts.constraint.clone()),
    ];
    fields.extend(optional.into_iter().filter_map(|(code, value)| Some((code, value?.replace('\0', "?")))));
    fields
}

/// Appends an ErrorResponse; `FATAL` if the connection is closed after it.
pub fn error(out: &mut Vec<u8>, fatal: bool, error: &SqlError) {
    put(out, &ErrorResponse::new(fields(if fatal { "FATAL" } else { "ERROR" }, error)));
}

/// Appends a NoticeResponse with a severity such as `WARNING` or `NOTICE`.
pub fn notice(out: &mut Vec<u8>, severity: &str, notice: &SqlError) {
    put(out, &NoticeResponse::new(fields(severity, notice)));
}

pub fn authentication_ok(out: &mut Vec<u8>) {
    put(out, &Authentication::Ok);
}

/// Appends an AuthenticationSASL with the names of the mechanisms.
pub fn authentication_sasl(out: &mut Vec<u8>, mechanisms: &[&str]) {
    put(out, &Authentication::SASL(mechanisms.iter().map(|name| (*name).to_owned()).collect()));
}

pub fn authentication_sasl_continue(out: &mut Vec<u8>, message: Vec<u8>) {
    put(out, &Authentication::SASLContinue(message.into()));
}

pub fn authentication_sasl_final(out: &mut Vec<u8>, message: Vec<u8>) {
    put(out, &Authentication::SASLFinal(message.into()));
}

pub fn parameter_status(out: &mut Vec<u8>, name: &str, value: &str) {
    put(out, &ParameterStatus::new(name.to_owned(), value.replace('\0', "?")));
}

pub fn backend_key_data(out: &mut Vec<u8>, pid: i32, key: i32) {
    put(out, &BackendKeyData::new(pid, SecretKey::I32(key)));
}

/// Appends a NegotiateProtocolVersion, for a client that asked for a newer minor version or unknown options.
pub fn negotiate_protocol_version(out: &mut Vec<u8>, unknown_options: Vec<String>) {
    put(out, &NegotiateProtocolVersion::new(0, unknown_options));
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_types::SqlState;

    #[test]
    fn golden_bytes() {
        let mut out = Vec::new();
        command_complete(&mut out, &Tag { verb: "INSERT 0", rows: Some(1) });
        assert_eq!(out, b"C\0\0\0\x0fINSERT 0 1\0");
        out.clear();
        row_description(&mut out, &[ColumnDesc::new("a", 23)], &Formats::Text);
        assert_eq!(out, b"T\0\0\0\x1a\0\x01a\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0");
        out.clear();
        ready_for_query(&mut out, Status::Failed);
        assert_eq!(out, b"Z\0\0\0\x05E");
        out.clear();
        copy_response(&mut out, b'G', 2);
        assert_eq!(out, b"G\0\0\0\x0b\0\0\x02\0\0\0\0");
    }

    #[test]
    fn an_error_carries_its_fields() {
        let mut out = Vec::new();
        let e = SqlError::new(SqlState::UNIQUE_VIOLATION, "dup").with_position(3).with_constraint("t_pkey");
        error(&mut out, false, &e);
        assert_eq!(&out[5..], b"SERROR\0VERROR\0C23505\0Mdup\0P3\0nt_pkey\0\0");
    }
}
