//! The messages of a link. Module [`crate::frame`] has their form in bytes.
//!
//! The node that connects sends first. Its greeting says what it wants:
//!
//! ```text
//! to follow     Hello -> Welcome, then (Ask -> Answer)*, then Start -> (Boxcar | Durable | Ping)* with (Ack | Pong)*
//!               coming back; Stop from either side ends it
//! a base copy, a dump
//!               Hello -> Welcome, CopyPlan, CopyVolume*; then (CopyAsk -> CopyChunk)*, CopyDone
//! the status    Hello -> Welcome, Status
//! a promotion   Hello -> Welcome, Done
//! to stop or start shipping or following   Hello -> Welcome, Done
//! ```
//! Any answer may be a Refused instead; after it the sender closes the link.

use bytes::Bytes;
use holdfast_types::Lsn;
use serde::{Deserialize, Serialize};

use crate::identity::{Ack, Identity, Tip, lsn};
use crate::mastership::Mastership;
use crate::refusal::Refusal;

/// The number of bytes before a chunk's pages: volume, chunk, hash.
pub const CHUNK_HEAD_BYTES: usize = 4 + 4 + 16;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    Hello(Hello),
    Welcome(Welcome),
    Refused(Refusal),
    Ask(Tip),
    Answer(Answer),
    Start(Tip),
    /// A boxcar's shipped bytes, as they are in the trail.
    Boxcar(Bytes),
    /// Everything below this position is durable at the master.
    Durable(Position),
    Ack(Ack),
    /// Sent when nothing else was sent for a heartbeat; the pong returns the number.
    Ping(u64),
    Pong(u64),
    Stop(Stop),
    CopyPlan(CopyPlan),
    CopyVolume(CopyVolume),
    CopyAsk(CopyAsk),
    CopyChunk(CopyChunk),
    CopyDone,
    /// JSON.
    Status(String),
    /// What was done, as a text for the operator.
    Done(String),
}

/// The first message. Its layout only ever grows at the end, so that every release can read every other's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Newest and oldest version of the link protocol that the sender speaks.
    pub newest: u8,
    pub oldest: u8,
    /// The sender's name, which the sync set and the slot use.
    pub name: String,
    /// A random number from the start of the sender's process: it distinguishes a node that reconnects from another one
    /// with the same name.
    pub instance: u64,
    pub wants: Wants,
    /// The sender can unpack packed boxcars.
    pub unpacks: bool,
    /// The sender takes part in a control plane.
    pub grouped: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Wants {
    /// The trail, from where the sender's trail ends.
    Follow(Identity),
    BaseCopy,
    Status,
    /// Promotion of the serving node.
    Promote {
        accept_divergence: bool,
    },
    /// A master stops shipping to this standby, or to all; without a name, a standby stops following.
    Stop {
        standby: Option<String>,
    },
    /// Ends a Stop.
    Start {
        standby: Option<String>,
    },
    /// A master keeps no more trail for a standby that does not return.
    Forget {
        standby: String,
    },
    /// A copy of the databases that no standby begins with: nothing is kept for the receiver afterwards.
    Dump,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// The version that both sides use from now on.
    pub version: u8,
    /// The name of the serving node.
    pub name: String,
    pub identity: Identity,
    /// Where its trail ends.
    pub tip: Tip,
    /// On a standby: the address of the master at the end of the chain, empty if unknown. `None` on a master.
    pub follows: Option<String>,
    /// A control plane decides which node is master.
    pub grouped: bool,
    /// The masterships of its history, the latest first: on a standby those of the node that it follows.
    pub masterships: Vec<Mastership>,
}

/// Whether a boxcar with that checksum ends at that position of the master's trail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    Yes,
    No,
    /// The position is older than what is kept.
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Position {
    #[serde(with = "lsn")]
    pub lsn: Lsn,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stop {
    /// The sender has sent everything before this.
    pub orderly: bool,
    pub why: String,
}

/// What a base copy consists of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CopyPlan {
    /// The list of databases, as the contents of its file.
    pub manifest: String,
    /// The position where the copy's trail begins: the first of a segment.
    #[serde(with = "lsn")]
    pub start: Lsn,
    /// No page of the copy is newer than this end of the master's trail. The copy is valid only for a master that still
    /// has this end: pairing checks that.
    pub anchor: Tip,
    /// The number of CopyVolume messages that follow.
    pub volumes: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CopyVolume {
    pub volume: u32,
    /// The file's name within the directory of volumes.
    pub file: String,
    pub pages: u32,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CopyAsk {
    /// The index of the volume in the plan, from 0.
    pub volume: u32,
    /// The number of the chunk in the volume, from 0.
    pub chunk: u32,
    /// The hash of what the receiver already has.
    pub have: Option<[u8; 16]>,
}

/// A chunk's pages, or none if the receiver has the same pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyChunk {
    pub volume: u32,
    pub chunk: u32,
    /// XXH3, 128 bits, of the master's pages.
    pub hash: [u8; 16],
    pub pages: Bytes,
}
