//! What a peer may send, and how long it may be silent; each limit with its name.

use std::time::Duration;

use crate::packing::Packing;

/// Body of a control message: greetings, questions, acks.
pub const CONTROL_BYTES_MAX: usize = 16 * 1024;

/// Body of a message that carries a text of the server's: a status, the list of databases.
pub const TEXT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Pages of one chunk of a base copy.
pub const CHUNK_PAGES: u32 = 256;

/// Bytes of a database page.
pub const PAGE_BYTES: usize = 4096;

/// Body of a chunk of a base copy: its head and its pages.
pub const CHUNK_BYTES_MAX: usize = crate::message::CHUNK_HEAD_BYTES + CHUNK_PAGES as usize * PAGE_BYTES;

/// The name a standby gives itself.
pub const NAME_BYTES_MAX: usize = 63;

/// Memory is set aside in steps of this size while bytes arrive, never by a length that is only claimed.
pub const READ_BYTES: usize = 256 * 1024;

/// What is gathered before it is given to the socket.
pub const SEND_BYTES: usize = 1024 * 1024;

/// Questions about chunks that a base copy has on the way at one time.
pub const CHUNKS_AHEAD: usize = 8;

/// How long the receiver of a base copy may say nothing: it may be syncing large files.
pub const COPY_SILENCE_MAX: Duration = Duration::from_secs(600);

/// Times and sizes of a link that the operator may set.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// A side that has sent nothing for so long sends a ping.
    pub heartbeat: Duration,
    /// A peer from which no byte came for so long is given up. Several heartbeats.
    pub silence_max: Duration,
    /// From connecting to the end of pairing.
    pub greeting_max: Duration,
    /// How long an orderly stop waits for the other side.
    pub stop_max: Duration,
    /// Received boxcars that wait for the standby's disk; beyond that its socket is not read.
    pub queue_bytes_max: usize,
    /// This node takes part in a control plane.
    pub grouped: bool,
    /// Whether boxcars go out packed, where the other side can unpack them.
    pub packing: Packing,
    /// The first pause before connecting again, doubled up to `retry_max`.
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
