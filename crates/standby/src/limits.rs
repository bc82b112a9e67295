//! The limits of what a peer may send and of how long it may be silent.

use std::time::Duration;

use crate::packing::Packing;

/// Largest body of a control message: greetings, requests, acks.
pub const CONTROL_BYTES_MAX: usize = 16 * 1024;

/// Largest body of a message with a text from the server: a status, the list of databases.
pub const TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Pages of one chunk of a base copy.
pub const CHUNK_PAGES: u32 = 256;

/// Bytes of a database page.
pub const PAGE_BYTES: usize = 4096;

/// Largest body of a chunk of a base copy: its head and its pages.
pub const CHUNK_BYTES_MAX: usize = crate::message::CHUNK_HEAD_BYTES + CHUNK_PAGES as usize * PAGE_BYTES;

/// Longest name of a standby in bytes.
pub const NAME_BYTES_MAX: usize = 63;

/// Memory is allocated in steps of this size while bytes arrive, never by a length that is only claimed.
pub const READ_BYTES: usize = 256 * 1024;

/// The number of bytes to buffer before they are written to the socket.
pub const SEND_BYTES: usize = 1024 * 1024;

/// The number of chunk requests that a base copy has outstanding at one time.
pub const CHUNKS_AHEAD: usize = 8;

/// The time that the receiver of a base copy may be silent: it may be syncing large files.
pub const COPY_SILENCE_MAX: Duration = Duration::from_secs(600);

/// Times and sizes of a link that the operator may set.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// A side that has sent nothing for this time sends a ping.
    pub heartbeat: Duration,
    /// The link ends if no byte arrives from the peer for this time: several heartbeats.
    pub silence_max: Duration,
    /// The time from connecting to the end of pairing.
    pub greeting_max: Duration,
    /// The time that an orderly stop waits for the other side.
    pub stop_max: Duration,
    /// The size of received boxcars that wait for the standby's disk; beyond it the socket is not read.
    pub queue_bytes_max: usize,
    /// This node takes part in a control plane.
    pub grouped: bool,
    /// Whether boxcars are packed, if the other side can unpack them.
    pub packing: Packing,
    /// The first pause before reconnecting; it is doubled up to `retry_max`.
    pub retry: Duration,
    pub retry_max: Duration,
}

impl Default for LinkOptions {
    fn default() -> LinkOptions {
        LinkOptions {
            heartbeat: Duration::from_secs(1),
            silence_max: Duration::from_secs(5),
            greeting_max: Duration::from_secs(10),
            stop_max: Duration::from_secs(10),
            queue_bytes_max: 64 * 1024 * 1024,
            grouped: false,
            packing: Packing::default(),
            retry: Duration::from_millis(100),
            retry_max: Duration::from_secs(5),
        }
    }
}
