//! The server side of PostgreSQL's protocol, version 3.0: start-up, the simple and the extended query protocol,
//! pipelining, COPY, cancel requests. The crate knows nothing about SQL or storage: [`session::Session`] hides what a
//! session does.
//!
//! Start-up messages, errors and descriptions are structures of the pgwire crate. The messages that a client sends, and
//! the few that a server sends for every row or statement, are read and written directly in the buffers, because the
//! pgwire crate's decoders panic on truncated bodies and allocate per message. The session loop flushes only on Sync,
//! Flush and a full buffer: one write for all answers of a batch.
//!
//! Clients come over TCP, with or without TLS, and over a Unix socket (`listen`, `stream`, [`tls`]).
//!
//! How it fails: a malformed message ends the connection with SQLSTATE 08P01. A client that disconnects ends its
//! session, which rolls back open transactions. No length that a client sends is trusted before its bytes have arrived.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod auth;
pub mod backend;
mod client;
pub mod completions;
mod connection;
pub mod copy;
mod copy_both;
pub mod datetime;
pub mod decode;
pub mod encode;
pub mod frontend;
mod handshake;
mod held;
pub mod limits;
mod listen;
pub mod memory;
mod newcomers;
mod numeric;
pub mod peer;
mod pipeline;
mod refusing;
pub mod registry;
pub mod reply;
mod result_limits;
pub mod server;
pub mod session;
mod severity;
mod status;
mod stream;
mod termination;
pub mod tls;

pub use auth::{Prover, Unproven, initial_response};
pub use client::{Client, CopyChunk, Lost};
pub use copy_both::{CopyBoth, copy_data};
pub use handshake::{LINK_REQUEST, check_packet};
pub use limits::{Keepalives, Limits};
pub use listen::{SocketUsers, Sockets};
pub use memory::{Kept, SessionMemory};
pub use peer::{ClientCertificate, Peer, PeerAddress, TlsSession};
pub use refusing::Refusal;
pub use reply::Reply;
pub use result_limits::ResultLimits;
pub use server::{Lingering, Server, ServerError};
pub use session::{Cancel, End, Failure, Session, SessionFactory, Startup, Step};
pub use severity::Severity;
pub use status::Status;
pub use termination::Termination;
pub use tls::{TlsConfig, TlsError, TlsFiles, TlsSlot, TlsVersion};
