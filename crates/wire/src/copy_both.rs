//! Data in both directions at the same time: what a connection does between START_REPLICATION and its end.
//!
//! Failure: a message that is not allowed here ends the copy with its reason; a client that disconnects is lost.

use crate::backend;
use crate::client::{Client, Lost, Wake};
use crate::frontend;
use std::time::Duration;

/// What a client sent, or why waiting for it ended.
#[derive(Debug, PartialEq, Eq)]
pub enum CopyBoth {
    Data(Vec<u8>),
    /// The client has ended its direction.
    Done,
    /// CopyFail, or a message that is not allowed here; the text says which.
    Failed(String),
    /// The client ends the connection.
    Terminate,
    /// The server is stopping, or the session was ordered to end.
    Ending,
    TimedOut,
}

impl Client {
    /// Begins to send and receive data.
    pub async fn begin_copy_both(&mut self) -> Result<(), Lost> {
        backend::copy_response(self.reply().out(), b'W', 0);
        self.flush().await
    }

    /// Waits for the client's next message. The future may be dropped: nothing of the input is lost.
    pub async fn copy_both(&mut self, timeout: Option<Duration>) -> Result<CopyBoth, Lost> {
        loop {
            match self.next_message() {
                Ok(Some((kind, bytes))) => {
                    let event = match kind {
                        b'd' => Some(CopyBoth::Data(self.body(bytes).to_vec())),
                        b'c' => Some(CopyBoth::Done),
                        b'f' => {
                            let reason = frontend::query(self.body(bytes)).unwrap_or("no reason given");
                            Some(CopyBoth::Failed(format!("the client ended replication: {reason}")))
                        }
                        b'X' => return Ok(CopyBoth::Terminate),
                        b'H' | b'S' => None,
                        other => {
                            let name = other as char;
                            let why = format!("unexpected message type \"{name}\" during replication");
                            // The message stays in the input: it may begin the client's next request.
                            return Ok(CopyBoth::Failed(why));
                        }
                    };
                    self.consume(bytes);
                    if let Some(event) = event {
                        return Ok(event);
                    }
                }
                Ok(None) => match self.fill(timeout).await? {
                    Wake::Input => {}
                    Wake::Stop | Wake::Terminate => return Ok(CopyBoth::Ending),
                    Wake::TimedOut => return Ok(CopyBoth::TimedOut),
                },
                Err(malformed) => {
                    self.set_malformed(malformed);
                    return Err(Lost);
                }
            }
        }
    }

    /// Appends data messages that are framed already, and sends them.
    pub async fn send_copy_data(&mut self, framed: &[u8]) -> Result<(), Lost> {
        self.reply().out().extend_from_slice(framed);
        self.flush().await
    }

    /// Ends the server's direction.
    pub fn end_copy_both(&mut self) {
        backend::copy_done(self.reply().out());
    }
}

/// Appends one data message with what `body` writes.
pub fn copy_data(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    backend::message(out, b'd', body);
}
