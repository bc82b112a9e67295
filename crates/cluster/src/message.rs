//! The messages between the supervisor and the server, or a command, over the Unix socket `socket`.
//!
//! Each message, little-endian:
//! ```text
//! offset length
//!      0      4  magic "HFCS"
//!      4      4  length of the text in bytes, at most 1 MiB
//!      8      4  CRC-32C of bytes 0..8 and of the text
//!     12      n  the text: JSON
//! ```
//! | first | then |
//! |---|---|
//! | `hello` of the server or of a command | `welcome` |
//! | `ask` with an id | `answered` with that id, once; a connection that ends leaves open what came of it |
//! | `record`, `leader`, `lost` from the supervisor | nothing: the newest counts. `lost` goes only to a server whose `hello` says that it takes it |
//! | `question` about the server's trail, with an id | `told` with that id |
//! | `trail` from the server | nothing: where its trail ends, at most 100 ms ago |
//!
//! The supervisor is of the same release as the server or of an older or newer one: unknown fields are ignored, an unknown
//! kind ends the connection.
//!
//! Failure: bytes that are no message, and longer ones, end the connection; what waited for an answer is asked again on the next
//! one, or reported as unknown.

use holdfast_control::{Basis, Compared, ControlError, NodeId, Position, Promotion, Record, Refusal, Role, TrailTip};
use holdfast_types::Epoch;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Version of these messages.
pub const VERSION: u16 = 1;
/// The longest text.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
const MAGIC: [u8; 4] = *b"HFCS";
const HEAD_BYTES: usize = 12;

/// What the server, or a command, sends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToSupervisor {
    Hello { version: u16, from: Caller },
    Ask { id: u64, ask: Ask },
    Trail(Option<TrailState>),
    Told { id: u64, told: Told },
}

/// The other end of a connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Caller {
    Server {
        pid: u32,
        start: u64,
        link: Option<String>,
        /// It takes [`ToServer::Lost`].
        #[serde(default)]
        takes_lost: bool,
    },
    Command,
}

/// Where the server's trail ends, and what it and its standbys have of that epoch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TrailState {
    pub end: Position,
    pub positions: BTreeMap<NodeId, u64>,
}

/// What the control plane is asked for; see `holdfast_control::ControlPlane`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    Look,
    Promote {
        node: NodeId,
        expected_epoch: u32,
        epoch_at_least: u32,
        accept_loss: bool,
        trail_end: Option<Position>,
        #[serde(default)]
        basis: Basis,
    },
    Shrink {
        epoch: u32,
        node: NodeId,
        change: u64,
    },
    Grow {
        epoch: u32,
        node: NodeId,
        change: u64,
    },
    NameQuorum {
        epoch: u32,
        standbys: BTreeSet<NodeId>,
        needed: usize,
        change: u64,
    },
    Release {
        epoch: u32,
    },
    LinkOf {
        node: NodeId,
    },
    SetLink {
        link: Option<String>,
    },
    TellPositions {
        epoch: u32,
    },
    /// The node has returned as a standby by itself, or needs an operator for that.
    Returned {
        is_done: bool,
        text: String,
    },
    Status,
    Events,
    Explain,
    Freeze {
        frozen: bool,
    },
    Switchover {
        to: Option<String>,
    },
}

impl Ask {
    pub fn promote(promotion: Promotion) -> Ask {
        let Promotion { node, expected_epoch, epoch_at_least, accept_loss, trail_end, basis } = promotion;
        Ask::Promote {
            node,
            expected_epoch: expected_epoch.0,
            epoch_at_least: epoch_at_least.0,
            accept_loss,
            trail_end,
            basis,
        }
    }

    /// Whether it may be asked again when the answer was lost.
    pub fn is_repeatable(&self) -> bool {
        !matches!(self, Ask::Promote { .. })
    }
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Done {
    Nothing,
    Record(Box<Record>),
    Epoch(u32),
    Link(Option<String>),
    Status(serde_json::Value),
    Events(Vec<Event>),
    Explained(Explained),
    Switched(Switched),
}

/// A planned hand-over that was carried out.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Switched {
    /// The master now.
    pub node: NodeId,
    pub epoch: u32,
    /// From the request on.
    pub ms: u64,
}

/// Why the master is the master, and no other node is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Explained {
    /// The node that leads the control plane and decides; none: the asked one reaches none.
    pub leader: Option<NodeId>,
    pub why: String,
    /// The nodes with data, and what keeps each from being the next master; empty: nothing does.
    pub lacks: Vec<(NodeId, Vec<String>)>,
}

/// Something that happened, for a person.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// By the wall clock.
    pub unix_ms: u64,
    /// One word of the table in docs/cluster.md.
    pub kind: String,
    pub text: String,
}

/// Why it was not done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    NoQuorum,
    Refused(Refusal),
    Behind { node: NodeId, ahead: NodeId },
    Parted { node: NodeId, other: NodeId },
    NotCompared { node: NodeId, others: String },
    Other { sqlstate: String, text: String },
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Failure {
        match error {
            ControlError::NoQuorum => Failure::NoQuorum,
            ControlError::Refused(refusal) => Failure::Refused(refusal),
            ControlError::Behind { node, ahead } => Failure::Behind { node, ahead },
            ControlError::Parted { node, other } => Failure::Parted { node, other },
            ControlError::NotCompared { node, others } => Failure::NotCompared { node, others },
            other => Failure::Other { sqlstate: other.sqlstate().to_owned(), text: other.to_string() },
        }
    }
}

impl From<Failure> for ControlError {
    fn from(failure: Failure) -> ControlError {
        match failure {
            Failure::NoQuorum => ControlError::NoQuorum,
            Failure::Refused(refusal) => ControlError::Refused(refusal),
            Failure::Behind { node, ahead } => ControlError::Behind { node, ahead },
            Failure::Parted { node, other } => ControlError::Parted { node, other },
            Failure::NotCompared { node, others } => ControlError::NotCompared { node, others },
            Failure::Other { sqlstate, text } => ControlError::Reported { sqlstate, text },
        }
    }
}

/// What the supervisor sends.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToServer {
    Welcome(Welcome),
    /// The connection ends, for this reason.
    Refused(String),
    Record(Option<Box<Record>>),
    Leader(Option<NodeId>),
    /// The other nodes with data that count as lost by their pulses.
    Lost(BTreeSet<NodeId>),
    Answered {
        id: u64,
        done: Result<Done, Failure>,
    },
    Question {
        id: u64,
        question: Question,
    },
}

/// What the server has to know of its cluster.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    pub version: u16,
    pub cluster: String,
    pub node: NodeId,
    pub nodes: BTreeMap<NodeId, WelcomeNode>,
    /// The level of `[database]`.
    pub level: String,
    /// Commits wait while no standby is there, in place of continuing without.
    pub waits_alone: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WelcomeNode {
    /// Of its part in the control plane, HOST:PORT.
    pub address: String,
    pub role: Role,
}

/// About the server's trail; see `holdfast_control::ComparedTrail`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    Tip,
    Compare(TrailTip),
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Told {
    Tip(Result<TrailTip, String>),
    Compared(Result<ComparedName, String>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComparedName {
    HasAll,
    OtherIsAhead,
    Parted,
}

impl From<Compared> for ComparedName {
    fn from(compared: Compared) -> ComparedName {
        match compared {
            Compared::HasAll => ComparedName::HasAll,
            Compared::OtherIsAhead => ComparedName::OtherIsAhead,
            Compared::Parted => ComparedName::Parted,
        }
    }
}

impl From<ComparedName> for Compared {
    fn from(name: ComparedName) -> Compared {
        match name {
            ComparedName::HasAll => Compared::HasAll,
            ComparedName::OtherIsAhead => Compared::OtherIsAhead,
            ComparedName::Parted => Compared::Parted,
        }
    }
}

/// The promotion that a message asks for.
pub fn promotion(
    node: NodeId,
    expected_epoch: u32,
    epoch_at_least: u32,
    accept_loss: bool,
    trail_end: Option<Position>,
    basis: Basis,
) -> Promotion {
    let (expected_epoch, epoch_at_least) = (Epoch(expected_epoch), Epoch(epoch_at_least));
    Promotion { node, expected_epoch, epoch_at_least, accept_loss, trail_end, basis }
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// A message as bytes.
pub fn encode<M: Serialize>(message: &M) -> io::Result<Vec<u8>> {
    let text = serde_json::to_vec(message)?;
    if text.len() > TEXT_BYTES_MAX {
        return Err(invalid("the message is longer than 1 MiB"));
    }
    let mut bytes = Vec::with_capacity(HEAD_BYTES + text.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes), &text);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.extend_from_slice(&text);
    Ok(bytes)
}

pub async fn send<M: Serialize>(stream: &mut (impl AsyncWrite + Unpin), message: &M) -> io::Result<()> {
    stream.write_all(&encode(message)?).await
}

pub async fn receive<M: DeserializeOwned>(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<M> {
    let mut head = [0; HEAD_BYTES];
    stream.read_exact(&mut head).await?;
    if head[..4] != MAGIC {
        return Err(invalid("not a message of a supervisor"));
    }
    let [.., a, b, c, d, e, f, g, h] = head;
    let (length, sum) = (u32::from_le_bytes([a, b, c, d]) as usize, u32::from_le_bytes([e, f, g, h]));
    if length > TEXT_BYTES_MAX {
        return Err(invalid("the message is longer than 1 MiB"));
    }
    // Grows with what arrives: a length alone takes no memory.
    let mut text = Vec::new();
    stream.take(length as u64).read_to_end(&mut text).await?;
    if text.len() != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if crc32c::crc32c_append(crc32c::crc32c(&head[..8]), &text) != sum {
        return Err(invalid("the checksum of a message is wrong"));
    }
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn golden_bytes_and_every_changed_bit() {
        let ask = ToSupervisor::Ask { id: 7, ask: Ask::Release { epoch: 3 } };
        let bytes = encode(&ask).unwrap();
        let text = br#"{"ask":{"id":7,"ask":{"release":{"epoch":3}}}}"#;
        assert_eq!((&bytes[..4], &bytes[4..8], &bytes[12..]), (&MAGIC[..], &[46, 0, 0, 0][..], &text[..]));
        assert_eq!(receive::<ToSupervisor>(&mut &bytes[..]).await.unwrap(), ask);
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(receive::<ToSupervisor>(&mut &changed[..]).await.is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(receive::<ToSupervisor>(&mut &bytes[..length]).await.is_err(), "{length} bytes");
        }
        let long = ToSupervisor::Told { id: 1, told: Told::Tip(Err("x".repeat(TEXT_BYTES_MAX))) };
        assert!(encode(&long).is_err());
    }

    #[test]
    fn the_texts_of_every_message() {
        let [a, b]: [NodeId; 2] = ["a", "b"].map(|name| name.parse().unwrap());
        let end = Position { epoch: Epoch(3), lsn: 900 };
        let trail = TrailState { end, positions: BTreeMap::from([(a, 900), (b, 800)]) };
        let promotion = promotion(a, 2, 3, false, Some(end), Basis::Starts);
        let sent = [
            ToSupervisor::Hello { version: 1, from: Caller::Server { pid: 5, start: 6, link: None, takes_lost: true } },
            ToSupervisor::Hello { version: 1, from: Caller::Command },
            ToSupervisor::Ask { id: 1, ask: Ask::promote(promotion) },
            ToSupervisor::Ask { id: 2, ask: Ask::Shrink { epoch: 3, node: b, change: 4 } },
            ToSupervisor::Trail(Some(trail)),
            ToSupervisor::Told { id: 3, told: Told::Compared(Ok(ComparedName::HasAll)) },
        ];
        let texts = [
            r#"{"hello":{"version":1,"from":{"server":{"pid":5,"start":6,"link":null,"takes_lost":true}}}}"#,
            r#"{"hello":{"version":1,"from":"command"}}"#,
            r#"{"ask":{"id":1,"ask":{"promote":{"node":"a","expected_epoch":2,"epoch_at_least":3,"accept_loss":false,"trail_end":{"epoch":3,"lsn":900},"basis":"starts"}}}}"#,
            r#"{"ask":{"id":2,"ask":{"shrink":{"epoch":3,"node":"b","change":4}}}}"#,
            r#"{"trail":{"end":{"epoch":3,"lsn":900},"positions":{"a":900,"b":800}}}"#,
            r#"{"told":{"id":3,"told":{"compared":{"Ok":"has_all"}}}}"#,
        ];
        for (message, text) in sent.iter().zip(texts) {
            assert_eq!(serde_json::to_string(message).unwrap(), text);
            assert_eq!(serde_json::from_str::<ToSupervisor>(text).unwrap(), *message);
        }
        let answered = ToServer::Answered { id: 1, done: Err(Failure::Refused(Refusal::NotFounded)) };
        let text = r#"{"answered":{"id":1,"done":{"Err":{"refused":"not_founded"}}}}"#;
        assert_eq!(serde_json::to_string(&answered).unwrap(), text);
        assert_eq!(serde_json::from_str::<ToServer>(text).unwrap(), answered);
    }

    #[test]
    fn an_error_is_the_same_on_the_other_side() {
        let [node, other]: [NodeId; 2] = ["a", "b"].map(|name| name.parse().unwrap());
        let errors = [
            ControlError::NoQuorum,
            ControlError::Refused(Refusal::StaleEpoch { expected: 1, found: 2 }),
            ControlError::Behind { node, ahead: other },
            ControlError::Parted { node, other },
            ControlError::NotCompared { node, others: "b, c".to_owned() },
            ControlError::Stopped("x".to_owned()),
        ];
        for error in errors {
            let (text, sqlstate) = (error.to_string(), error.sqlstate().to_owned());
            let there = ControlError::from(Failure::from(error));
            assert_eq!((there.to_string(), there.sqlstate()), (text, &*sqlstate));
        }
    }
}
