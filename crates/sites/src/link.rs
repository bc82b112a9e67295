//! The contents of the CopyData messages between a publisher and its subscriber.
//!
//! | message | from | bytes |
//! |---|---|---|
//! | data | publisher | `w`, start LSN u64, end LSN u64, time i64, a message of the output plugin |
//! | keepalive | publisher | `k`, end LSN u64, time i64, 1 if an answer is wanted at once, else 0 |
//! | status | subscriber | `r`, written, flushed and applied LSN u64 each, time i64, 1 if an answer is wanted at once |
//!
//! A subscriber may confirm any LSN that a header names, also in the middle of a transaction. So until a transaction's last message
//! headers and keepalives name the end of the one before it.
//!
//! Source: the PostgreSQL 15 manual, 55.4 "Streaming Replication Protocol".
//!
//! Failure: a message of another form is refused; the caller ends the connection with 08P01.

use crate::pgoutput::EPOCH_US;

/// What a subscriber says it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Status {
    pub written: u64,
    pub flushed: u64,
    pub applied: u64,
    /// It wants a keepalive at once.
    pub wants_answer: bool,
}

/// Appends the head of a data message; a message of the output plugin follows.
pub fn data(out: &mut Vec<u8>, lsn: u64, unix_us: i64) {
    out.push(b'w');
    out.extend_from_slice(&lsn.to_be_bytes());
    out.extend_from_slice(&lsn.to_be_bytes());
    out.extend_from_slice(&(unix_us - EPOCH_US).to_be_bytes());
}

pub fn keepalive(out: &mut Vec<u8>, lsn: u64, unix_us: i64, wants_answer: bool) {
    out.push(b'k');
    out.extend_from_slice(&lsn.to_be_bytes());
    out.extend_from_slice(&(unix_us - EPOCH_US).to_be_bytes());
    out.push(wants_answer.into());
}

/// Appends a status update. Each LSN names what the subscriber has everything below of.
pub fn status_update(out: &mut Vec<u8>, status: &Status, unix_us: i64) {
    out.push(b'r');
    for lsn in [status.written, status.flushed, status.applied] {
        out.extend_from_slice(&lsn.to_be_bytes());
    }
    out.extend_from_slice(&(unix_us - EPOCH_US).to_be_bytes());
    out.push(status.wants_answer.into());
}

/// Reads a message of a subscriber. `None`: hot standby feedback, which concerns physical replication only.
pub fn status(bytes: &[u8]) -> Result<Option<Status>, String> {
    let number = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes);
    match bytes.first() {
        Some(b'h') => Ok(None),
        Some(b'r') if bytes.len() == 34 => Ok(Some(Status {
            written: number(1).unwrap_or_default(),
            flushed: number(9).unwrap_or_default(),
            applied: number(17).unwrap_or_default(),
            wants_answer: bytes[33] != 0,
        })),
        Some(b'r') => Err(format!("a status update has 34 bytes, not {}", bytes.len())),
        Some(other) => Err(format!("unexpected message type \"{}\"", char::from(*other).escape_default())),
        None => Err("an empty message".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let mut out = Vec::new();
        data(&mut out, 0x0102, EPOCH_US + 3);
        assert_eq!(out, b"w\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\x03");
        out.clear();
        keepalive(&mut out, 0x0102, EPOCH_US + 3, true);
        assert_eq!(out, b"k\0\0\0\0\0\0\x01\x02\0\0\0\0\0\0\0\x03\x01");
        let update = b"r\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\x01";
        let expected = Status { written: 3, flushed: 2, applied: 1, wants_answer: true };
        assert_eq!(status(update), Ok(Some(expected)));
        out.clear();
        status_update(&mut out, &expected, EPOCH_US);
        assert_eq!(out, update);
        assert_eq!(status(b"h"), Ok(None));
        for cut in 1..update.len() {
            assert!(status(&update[..cut]).is_err(), "cut at {cut}");
        }
        assert!(status(b"").is_err() && status(b"\xff").is_err());
    }
}
