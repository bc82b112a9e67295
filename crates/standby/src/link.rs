//! One end of a link: frames in both directions, and the greeting.

use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

use crate::error::LinkError;
use crate::frame::{FrameReader, FrameWriter, PREAMBLE};
use crate::limits::{LinkOptions, NAME_BYTES_MAX};
use crate::message::{Hello, Message, Wants, Welcome};
use crate::refusal::{Reason, Refusal};
use crate::versions::{agree, spoken};

/// Any stream a link can run over: TCP, TLS, a simulated network.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for S {}

/// The time that a last message may take: the peer may no longer be reading.
const LAST_WORD_MAX: Duration = Duration::from_secs(1);

pub struct Link<S> {
    pub reader: FrameReader<ReadHalf<S>>,
    pub writer: FrameWriter<WriteHalf<S>>,
}

impl<S: Stream> Link<S> {
    pub fn over(stream: S, options: &LinkOptions) -> Link<S> {
        let (read, write) = tokio::io::split(stream);
        Link { reader: FrameReader::new(read, options.silence_max), writer: FrameWriter::new(write) }
    }

    pub fn allow_boxcars(&mut self, segment_bytes: u64) {
        self.reader.allow_boxcars(segment_bytes);
        self.writer.allow_boxcars(segment_bytes);
    }

    /// Sends a message and returns the answer; a refusal is an error.
    pub async fn ask(&mut self, message: &Message) -> Result<Message, LinkError> {
        self.writer.send(message).await?;
        self.answer().await
    }

    /// The next message other than a heartbeat; a refusal is an error.
    pub async fn answer(&mut self) -> Result<Message, LinkError> {
        loop {
            match self.reader.next().await? {
                Message::Refused(refusal) => return Err(LinkError::Refused(refusal)),
                Message::Ping(number) => self.writer.send(&Message::Pong(number)).await?,
                Message::Pong(_) => {}
                message => return Ok(message),
            }
        }
    }

    /// Runs slow work, and sends heartbeats to the other side meanwhile.
    pub async fn busy<T>(
        &mut self,
        heartbeat: Duration,
        work: impl Future<Output = Result<T, LinkError>>,
    ) -> Result<T, LinkError> {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = tokio::time::sleep(heartbeat) => self.writer.send(&Message::Ping(0)).await?,
            }
        }
    }

    /// Sends the other side the reason why the link ends, if that is possible, and ends it.
    pub async fn end(&mut self, outcome: &Result<(), LinkError>) {
        let refusal = outcome.as_ref().err().and_then(LinkError::refusal);
        let last_word = async {
            if let Some(refusal) = refusal {
                self.writer.send(&Message::Refused(refusal)).await?;
            }
            self.writer.close().await.map_err(LinkError::from_io)
        };
        // The link ends in either case.
        let _ = tokio::time::timeout(LAST_WORD_MAX, last_word).await;
    }
}

/// Refuses a link before its greeting is looked at. The greeting is read first: closing a connection with bytes that were not read
/// would take the answer away from the other side.
pub async fn refuse<S: Stream>(stream: S, refusal: Refusal) {
    let mut link = Link::over(stream, &LinkOptions::default());
    // Whatever it is, the answer is the same.
    let _ = tokio::time::timeout(LAST_WORD_MAX, link.reader.next()).await;
    link.end(&Err(LinkError::Refused(refusal))).await;
}

/// The greeting of the side that connects.
pub async fn greet<S: Stream>(
    mut stream: S,
    name: &str,
    instance: u64,
    wants: Wants,
    options: &LinkOptions,
) -> Result<(Link<S>, Welcome), LinkError> {
    let greeting = async {
        stream.write_all(&PREAMBLE).await.map_err(LinkError::from_io)?;
        let mut link = Link::over(stream, options);
        let versions = spoken();
        let hello = Hello {
            newest: *versions.end(),
            oldest: *versions.start(),
            name: name.to_owned(),
            instance,
            wants,
            unpacks: true,
            grouped: options.grouped,
        };
        match link.ask(&Message::Hello(hello)).await {
            Ok(Message::Welcome(welcome)) => {
                agree(welcome.version, welcome.version)?;
                Ok((link, welcome))
            }
            // The first bytes are not of the link protocol: a TLS alert, or another program's answer.
            Err(LinkError::UnknownKind { .. } | LinkError::TooLong { .. }) => Err(LinkError::NoNode),
            Err(error) => Err(error),
            Ok(other) => Err(LinkError::Unexpected { kind: other.kind(), expected: "a Welcome" }),
        }
    };
    let in_time = tokio::time::timeout(options.greeting_max, greeting).await;
    in_time.unwrap_or(Err(LinkError::TooSlow { what: "greet" }))
}

/// Reads the start-up packet of a link from a stream, for servers that have not already read it.
pub async fn take_preamble(stream: &mut (impl AsyncRead + Unpin)) -> Result<(), LinkError> {
    let mut found = [0; PREAMBLE.len()];
    stream.read_exact(&mut found).await.map_err(LinkError::from_io)?;
    if found == PREAMBLE { Ok(()) } else { Err(LinkError::UnknownKind { code: found[4] }) }
}

/// Checks a node's name, which is written to settings, files and logs.
pub fn check_name(name: &str) -> Result<(), Refusal> {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
    if (1..=NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('.') {
        return Ok(());
    }
    let message = format!("{name:?} is not a valid name for a node");
    Err(Refusal::new(
        Reason::Protocol,
        message,
        format!("A name has 1 to {NAME_BYTES_MAX} bytes of letters, digits, \"_\", \"-\" and \".\", \".\" not first"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert!(["a", "rack-2.b_1", "ä"].iter().all(|name| check_name(name).is_ok()));
        for bad in ["", ".a", "a/b", "a b", "a\n", &"x".repeat(64)] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }
}
