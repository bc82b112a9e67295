//! Requests to a node other than following it: its status, promotion, stop and start.

use crate::error::LinkError;
use crate::limits::LinkOptions;
use crate::link::{Stream, greet};
use crate::message::{Message, Wants};

/// Returns the status of the node at the other end, as JSON. `name` is the name of the asking node.
pub async fn status<S: Stream>(stream: S, name: &str, options: &LinkOptions) -> Result<String, LinkError> {
    let (mut link, _) = greet(stream, name, 0, Wants::Status, options).await?;
    match link.answer().await? {
        Message::Status(text) => Ok(text),
        other => Err(LinkError::Unexpected { kind: other.kind(), expected: "a Status" }),
    }
}

/// Asks the node at the other end to become master, to stop or to start, and returns a text of what it did.
/// `options.silence_max` bounds the time.
pub async fn command<S: Stream>(
    stream: S,
    name: &str,
    wants: Wants,
    options: &LinkOptions,
) -> Result<String, LinkError> {
    let (mut link, _) = greet(stream, name, 0, wants, options).await?;
    match link.answer().await? {
        Message::Done(done) => Ok(done),
        other => Err(LinkError::Unexpected { kind: other.kind(), expected: "a Done" }),
    }
}
