//! What the two ends of a link say to each other. How it looks in bytes is in module [`crate::frame`].
//!
//! The node that connects speaks first. What it wants stands in its greeting:
//!
//! ```text
//! to follow     Hello -> Welcome, then (Ask -> Answer)*, then Start -> (Boxcar | Durable | Ping)* with (Ack | Pong)*
//!               coming back; Stop from either side ends it
//! a base copy   Hello -> Welcome, CopyPlan, CopyVolume*; then (CopyAsk -> CopyChunk)*, CopyDone
//! the status    Hello -> Welcome, Status
//! a promotion   Hello -> Welcome, Done
//! to stop or start shipping or following   Hello -> Welcome, Done
//! ```
//! In place of any answer a Refused may come; after it the sender closes.

use bytes::Bytes;
use holdfast_types::Lsn;
use serde::{Deserialize, Serialize};

use crate::identity::{Ack, Identity, Tip, lsn};
use crate::refusal::Refusal;

/// Bytes in front of a chunk's pages: volume, chunk, hash.
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
    /// Everything below is durable at the master.
    Durable(Position),
    Ack(Ack),
    /// Sent where nothing else was for a while; the number comes back in the pong.
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
    /// What was done, for the operator.
    Done(String),
}

/// The first message. Its layout only ever grows at the end, so that every release can read every other's.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// Newest and oldest version of the link protocol that the sender speaks.
    pub newest: u8,
    pub oldest: u8,
    /// The sender's name: what the sync set and the slot know it by.
    pub name: String,
    /// Drawn when the sender's process started: tells a node that connects again from another one of the same name.
    pub instance: u64,
    pub wants: Wants,
    /// Packed boxcars are understood.
    pub unpacks: bool,
    /// The sender takes part in a control plane.
    pub grouped: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Wants {
    /// The trail, from where the sender's ends.
    Follow(Identity),
    BaseCopy,
    Status,
    /// That the node asked becomes master.
    Promote {
        accept_divergence: bool,
    },
    /// That a master ships to this standby, or any, no more; without a name, that a standby follows no more.
    Stop {
        standby: Option<String>,
    },
    /// The contrary.
    Start {
        standby: Option<String>,
    },
    /// That a master keeps nothing more for a standby that does not come back.
    Forget {
        standby: String,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    /// The version both sides speak from here on.
    pub version: u8,
    /// The name of the node asked.
    pub name: String,
    pub identity: Identity,
    /// Where its trail ends.
    pub tip: Tip,
    /// Of a standby: the address of the master at the end of the chain, empty where it does not know it. `None`: it is
    /// a master.
    pub follows: Option<String>,
    /// A control plane says who is master.
    pub grouped: bool,
}

/// Whether a boxcar with that checksum ends at that position of the master's trail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    Yes,
    No,
    /// Older than what is kept.
    Gone,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Position {
    #[serde(with = "lsn")]
    pub lsn: Lsn,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stop {
    /// Everything the sender had to say was said before.
    pub orderly: bool,
    pub why: String,
}

/// What a base copy consists of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CopyPlan {
    /// The list of databases, as its file is to be.
    pub manifest: String,
    /// Where the copy's trail begins: the first position of a segment.
    #[serde(with = "lsn")]
    pub start: Lsn,
    /// No page of the copy is newer than this end of the master's trail. The copy is good only for a master that still
    /// has it: pairing asks.
    pub anchor: Tip,
    /// How many CopyVolume follow.
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
    /// Which of the plan's volumes, from 0.
    pub volume: u32,
    /// Which chunk of its pages, from 0.
    pub chunk: u32,
    /// Hash of what the asker has there already.
    pub have: Option<[u8; 16]>,
}

/// A chunk's pages, or none where the asker's are the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyChunk {
    pub volume: u32,
    pub chunk: u32,
    /// XXH3, 128 bits, of the pages as the master has them.
    pub hash: [u8; 16],
    pub pages: Bytes,
}
