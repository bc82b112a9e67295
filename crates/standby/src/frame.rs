//! The link protocol in bytes: frames, and the body of each kind.
//!
//! | bytes | what |
//! |---|---|
//! | 4 | length of kind and body, little-endian |
//! | 1 | kind |
//! | n | body |
//!
//! | kind | message | body | at most |
//! |---|---|---|---|
//! | 1 | Hello | postcard; may grow at its end | 16 KiB |
//! | 2 | Welcome | postcard | 16 KiB |
//! | 3 | Refused | postcard; may grow at its end | 16 KiB |
//! | 4, 5 | Ask, Answer | postcard | 16 KiB |
//! | 6 | Start | postcard | 16 KiB |
//! | 7 | Boxcar | its bytes from offset 32 on, head and body, as in the trail | a boxcar of that trail |
//! | 8 | Durable | postcard | 16 KiB |
//! | 9 | Ack | postcard | 16 KiB |
//! | 10, 11 | Ping, Pong | postcard | 16 KiB |
//! | 12 | Stop | postcard | 16 KiB |
//! | 13, 14 | CopyPlan, CopyVolume | postcard | 4 MiB, 16 KiB |
//! | 15 | CopyAsk | postcard | 16 KiB |
//! | 16 | CopyChunk | volume u32, chunk u32 (little-endian), hash 16 bytes, then whole pages of 4096 bytes | 1 MiB + 24 |
//! | 17 | CopyDone | empty | 0 |
//! | 18, 19 | Status, Done | postcard: a text | 4 MiB |
//! | 20 | Packed | a Boxcar, packed: see [`crate::packing`] | a boxcar of that trail |
//!
//! Before the first frame the connecting side sends [`PREAMBLE`]: a start-up packet like those of PostgreSQL's clients
//! with a different code, so that links and clients share a port. The server reads it before the link begins.
//!
//! Postcard: <https://postcard.jamesmunns.com/wire-format>, stable since its version 1.0.
//!
//! How it fails: a frame of an unknown kind, a frame that is too long for its kind, or one whose body does not match
//! its kind or has bytes left over is a [`LinkError`] that names it; the link ends. Memory grows with the bytes that
//! have arrived, never by a length that a peer claims. A peer that is silent for too long is also an error, so that a
//! dead link is noticed.

use std::io;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::error::LinkError;
use crate::kind::MessageKind;
use crate::limits::{CHUNK_BYTES_MAX, CONTROL_BYTES_MAX, PAGE_BYTES, READ_BYTES, SEND_BYTES, TEXT_BYTES_MAX};
use crate::message::{CHUNK_HEAD_BYTES, CopyChunk, Message};
use crate::packing::unpack;

/// The newest version of the link protocol that this program speaks.
pub const VERSION: u8 = 1;
/// The oldest version of the link protocol that this program speaks: that of the previous release.
pub const VERSION_OLDEST: u8 = 1;

/// Length 8 and the code "HFLK", big-endian.
pub const PREAMBLE: [u8; 8] = *b"\0\0\0\x08HFLK";

/// The length of a frame's head in bytes: length and kind.
const HEAD_BYTES: usize = 5;

impl MessageKind {
    fn body_bytes_max(self, boxcar_bytes_max: usize) -> usize {
        match self {
            MessageKind::Boxcar | MessageKind::Packed => boxcar_bytes_max,
            MessageKind::CopyPlan | MessageKind::Status | MessageKind::Done => TEXT_BYTES_MAX,
            MessageKind::CopyChunk => CHUNK_BYTES_MAX,
            MessageKind::CopyDone => 0,
            _ => CONTROL_BYTES_MAX,
        }
    }
}

impl Message {
    pub fn kind(&self) -> MessageKind {
        match self {
            Message::Hello(_) => MessageKind::Hello,
            Message::Welcome(_) => MessageKind::Welcome,
            Message::Refused(_) => MessageKind::Refused,
            Message::Ask(_) => MessageKind::Ask,
            Message::Answer(_) => MessageKind::Answer,
            Message::Start(_) => MessageKind::Start,
            Message::Boxcar(_) => MessageKind::Boxcar,
            Message::Durable(_) => MessageKind::Durable,
            Message::Ack(_) => MessageKind::Ack,
            Message::Ping(_) => MessageKind::Ping,
            Message::Pong(_) => MessageKind::Pong,
            Message::Stop(_) => MessageKind::Stop,
            Message::CopyPlan(_) => MessageKind::CopyPlan,
            Message::CopyVolume(_) => MessageKind::CopyVolume,
            Message::CopyAsk(_) => MessageKind::CopyAsk,
            Message::CopyChunk(_) => MessageKind::CopyChunk,
            Message::CopyDone => MessageKind::CopyDone,
            Message::Status(_) => MessageKind::Status,
            Message::Done(_) => MessageKind::Done,
        }
    }

    /// Appends the message as a frame. A message that is too long for its kind is refused here.
    pub fn put(&self, out: &mut BytesMut, boxcar_bytes_max: usize) -> Result<(), LinkError> {
        let start = out.len();
        out.put_bytes(0, HEAD_BYTES);
        match self {
            Message::Hello(body) => put_body(out, body)?,
            Message::Welcome(body) => put_body(out, body)?,
            Message::Refused(body) => put_body(out, body)?,
            Message::Ask(body) | Message::Start(body) => put_body(out, body)?,
            Message::Answer(body) => put_body(out, body)?,
            Message::Boxcar(bytes) => out.put_slice(bytes),
            Message::Durable(body) => put_body(out, body)?,
            Message::Ack(body) => put_body(out, body)?,
            Message::Ping(number) | Message::Pong(number) => put_body(out, number)?,
            Message::Stop(body) => put_body(out, body)?,
            Message::CopyPlan(body) => put_body(out, body)?,
            Message::CopyVolume(body) => put_body(out, body)?,
            Message::CopyAsk(body) => put_body(out, body)?,
            Message::CopyChunk(body) => put_chunk(out, body),
            Message::CopyDone => {}
            Message::Status(text) | Message::Done(text) => put_body(out, text)?,
        }
        let (kind, bytes) = (self.kind(), out.len() - start - HEAD_BYTES);
        let bytes_max = kind.body_bytes_max(boxcar_bytes_max);
        if bytes > bytes_max {
            out.truncate(start);
            return Err(LinkError::TooLong { kind, bytes: bytes as u64, bytes_max: bytes_max as u64 });
        }
        out[start..start + HEAD_BYTES].copy_from_slice(&head(kind, bytes));
        Ok(())
    }

    /// Reads the message in a frame's body.
    pub fn parse(kind: MessageKind, body: Bytes) -> Result<Message, LinkError> {
        Ok(match kind {
            // Releases that do not know each other read these two: fields that a newer release added are skipped.
            MessageKind::Hello => Message::Hello(front(kind, &body)?),
            MessageKind::Refused => Message::Refused(front(kind, &body)?),
            MessageKind::Welcome => Message::Welcome(whole(kind, &body)?),
            MessageKind::Ask => Message::Ask(whole(kind, &body)?),
            MessageKind::Answer => Message::Answer(whole(kind, &body)?),
            MessageKind::Start => Message::Start(whole(kind, &body)?),
            MessageKind::Boxcar => Message::Boxcar(body),
            MessageKind::Durable => Message::Durable(whole(kind, &body)?),
            MessageKind::Ack => Message::Ack(whole(kind, &body)?),
            MessageKind::Ping => Message::Ping(whole(kind, &body)?),
            MessageKind::Pong => Message::Pong(whole(kind, &body)?),
            MessageKind::Stop => Message::Stop(whole(kind, &body)?),
            MessageKind::CopyPlan => Message::CopyPlan(whole(kind, &body)?),
            MessageKind::CopyVolume => Message::CopyVolume(whole(kind, &body)?),
            MessageKind::CopyAsk => Message::CopyAsk(whole(kind, &body)?),
            MessageKind::CopyChunk => Message::CopyChunk(parse_chunk(body)?),
            MessageKind::CopyDone => Message::CopyDone,
            MessageKind::Status => Message::Status(whole(kind, &body)?),
            MessageKind::Done => Message::Done(whole(kind, &body)?),
            MessageKind::Packed => return Err(LinkError::Unexpected { kind, expected: "a message" }),
        })
    }
}

fn head(kind: MessageKind, body_bytes: usize) -> [u8; HEAD_BYTES] {
    let [a, b, c, d] = (body_bytes as u32 + 1).to_le_bytes();
    [a, b, c, d, kind as u8]
}

fn put_body(out: &mut BytesMut, body: &impl Serialize) -> Result<(), LinkError> {
    // Only a type that postcard cannot encode fails here, and tests cover every message.
    let bytes = postcard::to_allocvec(body).map_err(|error| LinkError::Encode(error.to_string()))?;
    out.put_slice(&bytes);
    Ok(())
}

fn put_chunk(out: &mut BytesMut, chunk: &CopyChunk) {
    out.put_u32_le(chunk.volume);
    out.put_u32_le(chunk.chunk);
    out.put_slice(&chunk.hash);
    out.put_slice(&chunk.pages);
}

fn parse_chunk(mut body: Bytes) -> Result<CopyChunk, LinkError> {
    let kind = MessageKind::CopyChunk;
    if body.len() < CHUNK_HEAD_BYTES {
        return Err(LinkError::Malformed { kind, what: format!("{} bytes are not enough", body.len()) });
    }
    let (volume, chunk) = (body.get_u32_le(), body.get_u32_le());
    let mut hash = [0; 16];
    body.copy_to_slice(&mut hash);
    if !body.len().is_multiple_of(PAGE_BYTES) {
        return Err(LinkError::Malformed { kind, what: format!("{} bytes are not whole pages", body.len()) });
    }
    Ok(CopyChunk { volume, chunk, hash, pages: body })
}

fn front<'a, T: Deserialize<'a>>(kind: MessageKind, body: &'a [u8]) -> Result<T, LinkError> {
    let (value, _added_later) = postcard::take_from_bytes(body).map_err(|error| malformed(kind, error))?;
    Ok(value)
}

fn whole<'a, T: Deserialize<'a>>(kind: MessageKind, body: &'a [u8]) -> Result<T, LinkError> {
    let (value, left) = postcard::take_from_bytes(body).map_err(|error| malformed(kind, error))?;
    if left.is_empty() {
        return Ok(value);
    }
    Err(LinkError::Malformed { kind, what: format!("{} bytes left over", left.len()) })
}

fn malformed(kind: MessageKind, error: postcard::Error) -> LinkError {
    LinkError::Malformed { kind, what: error.to_string() }
}

/// Kind and body length of the frame at the start of `input`, once its head has arrived; the length is checked first.
fn read_head(input: &[u8], boxcar_bytes_max: usize) -> Result<Option<(MessageKind, usize)>, LinkError> {
    let Some([a, b, c, d, code]) = input.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
    let kind = MessageKind::from_code(*code).ok_or(LinkError::UnknownKind { code: *code })?;
    let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
    let Some(bytes) = length.checked_sub(1) else {
        return Err(LinkError::Malformed { kind, what: "a length of 0".to_owned() });
    };
    let bytes_max = kind.body_bytes_max(boxcar_bytes_max);
    if bytes > bytes_max {
        return Err(LinkError::TooLong { kind, bytes: bytes as u64, bytes_max: bytes_max as u64 });
    }
    Ok(Some((kind, bytes)))
}

/// Reads messages from a stream.
pub struct FrameReader<R> {
    from: R,
    buf: BytesMut,
    silence_max: Duration,
    /// The largest boxcar that pairing allows; 0 before pairing.
    boxcar_bytes_max: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub fn new(from: R, silence_max: Duration) -> FrameReader<R> {
        FrameReader { from, buf: BytesMut::new(), silence_max, boxcar_bytes_max: 0 }
    }

    /// Accepts boxcars from now on, of a trail with segments of this size.
    pub fn allow_boxcars(&mut self, segment_bytes: u64) {
        self.boxcar_bytes_max = boxcar_bytes_max(segment_bytes);
    }

    /// Sets how long the peer may be silent from now on.
    pub fn set_silence_max(&mut self, silence_max: Duration) {
        self.silence_max = silence_max;
    }

    /// Reads the next message. [`LinkError::Silent`] if the peer sends no byte for too long, [`LinkError::Closed`] if
    /// it closed the link. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Message, LinkError> {
        loop {
            if let Some((kind, bytes)) = read_head(&self.buf, self.boxcar_bytes_max)?
                && self.buf.len() >= HEAD_BYTES + bytes
            {
                self.buf.advance(HEAD_BYTES);
                let body = self.buf.split_to(bytes).freeze();
                return match kind {
                    MessageKind::Packed => unpack(&body, self.boxcar_bytes_max).map(Message::Boxcar),
                    _ => Message::parse(kind, body),
                };
            }
            self.fill().await?;
        }
    }

    async fn fill(&mut self) -> Result<(), LinkError> {
        self.buf.reserve(READ_BYTES);
        let read = tokio::time::timeout(self.silence_max, self.from.read_buf(&mut self.buf)).await;
        match read {
            Err(_) => Err(LinkError::Silent { after: self.silence_max }),
            Ok(Err(error)) => Err(LinkError::from_io(error)),
            Ok(Ok(0)) => Err(LinkError::Closed),
            Ok(Ok(_)) => Ok(()),
        }
    }
}

/// The largest number of shipped bytes of a boxcar in segments of this size.
pub fn boxcar_bytes_max(segment_bytes: u64) -> usize {
    usize::try_from(segment_bytes).unwrap_or(usize::MAX).min(u32::MAX as usize - 1)
}

/// Buffers messages and writes them to a stream.
pub struct FrameWriter<W> {
    to: W,
    buf: BytesMut,
    boxcar_bytes_max: usize,
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    pub fn new(to: W) -> FrameWriter<W> {
        FrameWriter { to, buf: BytesMut::new(), boxcar_bytes_max: 0 }
    }

    pub fn allow_boxcars(&mut self, segment_bytes: u64) {
        self.boxcar_bytes_max = boxcar_bytes_max(segment_bytes);
    }

    pub fn put(&mut self, message: &Message) -> Result<(), LinkError> {
        message.put(&mut self.buf, self.boxcar_bytes_max)
    }

    /// Appends a boxcar's bytes without creating a message from them.
    pub fn put_boxcar(&mut self, bytes: &[u8]) -> Result<(), LinkError> {
        if bytes.len() > self.boxcar_bytes_max {
            let (bytes, bytes_max) = (bytes.len() as u64, self.boxcar_bytes_max as u64);
            return Err(LinkError::TooLong { kind: MessageKind::Boxcar, bytes, bytes_max });
        }
        self.buf.put_slice(&head(MessageKind::Boxcar, bytes.len()));
        self.buf.put_slice(bytes);
        Ok(())
    }

    /// Appends a boxcar's bytes as packed by [`crate::packing::pack`].
    pub fn put_packed(&mut self, body: &[u8]) {
        self.buf.put_slice(&head(MessageKind::Packed, body.len()));
        self.buf.put_slice(body);
    }

    /// The number of buffered bytes.
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// Whether the buffer should be flushed.
    pub fn is_full(&self) -> bool {
        self.buf.len() >= SEND_BYTES
    }

    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Sends everything buffered. If the future is dropped before it is done, the next flush sends the rest, so that a
    /// later message never begins in the middle of a frame.
    pub async fn flush(&mut self) -> Result<(), LinkError> {
        while !self.buf.is_empty() {
            if self.to.write_buf(&mut self.buf).await.map_err(LinkError::from_io)? == 0 {
                return Err(LinkError::Closed);
            }
        }
        if self.buf.capacity() > 2 * SEND_BYTES {
            self.buf = BytesMut::new();
        }
        self.to.flush().await.map_err(LinkError::from_io)
    }

    pub async fn send(&mut self, message: &Message) -> Result<(), LinkError> {
        self.put(message)?;
        self.flush().await
    }

    /// Closes the sending direction. What the other side has not read yet still arrives.
    pub async fn close(&mut self) -> io::Result<()> {
        self.to.shutdown().await
    }
}

#[cfg(test)]
mod tests;
