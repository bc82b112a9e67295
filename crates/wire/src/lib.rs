//! PostgreSQL's protocol, version 3.0, as a server speaks it: start-up, the simple and the extended query protocol,
//! pipelining, COPY, cancel requests. It knows nothing of SQL or storage: what a session does is behind
//! [`session::Session`].
//!
//! Messages at start-up, errors and descriptions are the pgwire crate's structures. The messages a client sends, and
//! the few a server sends for every row or statement, are read and written here directly on the buffers: the crate's
//! decoders panic on truncated bodies and allocate per message. Our session loop flushes only on Sync, Flush and a
//! full buffer, one write for everything a batch has to say.
//!
//! What fails: a malformed message ends the connection with SQLSTATE 08P01; a client that goes away ends its
//! session, which rolls back what was open. No length that a client sends is trusted before its bytes have arrived.

pub mod backend;
mod client;
pub mod completions;
mod connection;
pub mod copy;
pub mod datetime;
pub mod decode;
pub mod encode;
pub mod frontend;
mod handshake;
pub mod limits;
mod numeric;
mod pipeline;
pub mod registry;
pub mod reply;
pub mod server;
pub mod session;

pub use client::{Client, CopyChunk, Lost};
pub use handshake::LINK_REQUEST;
pub use limits::Limits;
pub use reply::Reply;
pub use server::{Server, ServerError};
pub use session::{Cancel, End, Failure, Session, SessionFactory, Startup, Status, Step};
