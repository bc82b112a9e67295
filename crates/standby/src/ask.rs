//! Questions to a node that are no following: its status, that it becomes master, that it stops or starts.

use crate::error::LinkError;
use crate::limits::LinkOptions;
use crate::link::{Stream, greet};
use crate::message::{Message, Wants};

/// The status of the node at the other end, as JSON. `name`: who asks.
pub async fn status<S: Stream>(stream: S, name: &str, options: &LinkOptions) -> Result<String, LinkError> {
    let (mut link, _) = greet(stream, name, 0, Wants::Status, options).await?;
    match link.answer().await? {
        Message::Status(text) => Ok(text),
        other => Err(LinkError::Unexpected { kind: other.kind(), expected: "a Status" }),
    }
}

/// Has the node at the other end become master, stop or start; what it did, in words. It may take its time:
/// `options.silence_max` bounds it.
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
