//! The messages between control nodes, and their frames.
//!
//! ```text
//! offset length
//!      0      4  length of the text in bytes, little-endian, at most 1 MiB
//!      4      1  version of the protocol, 1
//!      5      1  kind: 1 hello, 2 welcome, 3 request, 4 reply, 5 refusal, 6 rolled back
//!      6      n  the text, JSON
//! ```
//! The side that connected sends a hello and gets a welcome or a refusal; then it sends requests, each answered by one
//! reply before the next is sent. Anything else ends the connection. Kind 6 is a refusal, too: the side that connected has a
//! control directory that is older than it was ([`crate::starts`]), and must stop.

use std::collections::BTreeMap;
use std::io;

use openraft::error::{Fatal, RaftError};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::id::{DiskId, NodeId};
use crate::raft::{SnapshotMeta, State, Types, Vote};
use crate::record::{Answer, Command, Role};
use crate::sight::Explanation;
use crate::starts::{LogEnd, Shown, Start};
use crate::trail_tip::TrailTip;

/// Version of the protocol that this program speaks.
pub const PROTOCOL_VERSION: u8 = 1;
/// Longest text of a frame.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
const HEAD_BYTES: usize = 6;

/// First words of the side that connected.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    pub from: NodeId,
    pub to: NodeId,
    /// The disk of `to` that the log speaks of; without it only proposals and questions are answered.
    pub to_disk: Option<DiskId>,
    /// The group that `from` belongs to, once it knows.
    pub group: Option<u64>,
    /// All members as `from` is configured; the other side has to have the same.
    pub members: BTreeMap<NodeId, Role>,
    /// Which start of its directory `from` is; older programs do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
    /// Where its log ends; older programs do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogEnd>,
}

impl Hello {
    pub fn shown(&self) -> Shown {
        Shown { start: self.start.clone(), log: self.log }
    }
}

/// The answer to a hello.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Welcome {
    pub node: NodeId,
    pub disk: DiskId,
    /// This node's directory belongs to a group already.
    pub founded: bool,
    /// Which start of its directory this node is; older programs do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Start>,
    /// Where its log ends; older programs do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<LogEnd>,
    /// Where this node takes the links of other nodes, HOST:PORT. A release that does not know this field ignores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<String>,
}

impl Welcome {
    pub fn shown(&self) -> Shown {
        Shown { start: self.start.clone(), log: self.log }
    }
}

/// What is asked of a node behind the welcome.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<NodeId>),
    Snapshot {
        vote: Vote,
        meta: SnapshotMeta,
        record: Box<State>,
    },
    /// Put this into the log, if you lead.
    Propose(Command),
    /// Where does your trail end on your disk, now?
    Tip,
    /// A proposal of a member that does not reach the leader: put it into the log, if you lead; with `further`, else hand it to
    /// the leader that you know. A release that does not know this request closes the connection.
    Pass {
        origin: NodeId,
        command: Command,
        further: bool,
    },
    /// Why is the master the master, and no other node? Asked of the leader; with `further` a member that does not lead hands it to
    /// the leader that it knows. A release that does not know this request closes the connection.
    Explain {
        further: bool,
    },
    /// Stand for election when your log reaches so far: the leader asks, because it stops. A release that does not know this request
    /// closes the connection.
    Lead {
        log: u64,
    },
}

/// The answer to a request, of the same kind.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Append(Result<AppendEntriesResponse<NodeId>, RaftError<NodeId>>),
    Vote(Result<VoteResponse<NodeId>, RaftError<NodeId>>),
    Snapshot(Result<SnapshotResponse<NodeId>, Fatal<NodeId>>),
    Proposed(Answer),
    /// Not put into the log, or it is not known whether it was.
    NotLeading {
        leader: Option<NodeId>,
    },
    /// Or why that cannot be said.
    Tip(Result<TrailTip, String>),
    Explained(Explanation),
}

/// A frame's kind and content.
#[derive(Debug)]
pub enum Frame {
    Hello(Hello),
    Welcome(Welcome),
    Request(Request),
    Reply(Reply),
    Refusal(String),
    /// As a refusal: the directory of the node that connected is older than it was.
    RolledBack(String),
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn json<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(io::Error::other)
}

fn parsed<T: DeserializeOwned>(text: &[u8]) -> io::Result<T> {
    serde_json::from_slice(text).map_err(|error| invalid(format!("a frame of the control plane: {error}")))
}

/// Sends a frame, in one write.
pub async fn send(to: &mut (impl AsyncWrite + Unpin), frame: &Frame) -> io::Result<()> {
    let (kind, text) = match frame {
        Frame::Hello(hello) => (1, json(hello)?),
        Frame::Welcome(welcome) => (2, json(welcome)?),
        Frame::Request(request) => (3, json(request)?),
        Frame::Reply(reply) => (4, json(reply)?),
        Frame::Refusal(why) => (5, json(why)?),
        Frame::RolledBack(why) => (6, json(why)?),
    };
    if text.len() > TEXT_BYTES_MAX {
        return Err(invalid(format!("a frame of {} bytes; the limit is {TEXT_BYTES_MAX}", text.len())));
    }
    let mut bytes = Vec::with_capacity(HEAD_BYTES + text.len());
    bytes.extend_from_slice(&(text.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&[PROTOCOL_VERSION, kind]);
    bytes.extend_from_slice(&text);
    to.write_all(&bytes).await?;
    to.flush().await
}

/// Receives a frame. No length is trusted before its bytes have arrived.
pub async fn receive(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Frame> {
    let mut head = [0; HEAD_BYTES];
    from.read_exact(&mut head).await?;
    let [a, b, c, d, version, kind] = head;
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    if version != PROTOCOL_VERSION {
        return Err(invalid(format!(
            "the other side speaks version {version} of the protocol, this program version {PROTOCOL_VERSION}"
        )));
    }
    if len > TEXT_BYTES_MAX {
        return Err(invalid(format!("a frame of {len} bytes; the limit is {TEXT_BYTES_MAX}")));
    }
    let mut text = Vec::new();
    if from.take(len as u64).read_to_end(&mut text).await? < len {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    match kind {
        1 => parsed(&text).map(Frame::Hello),
        2 => parsed(&text).map(Frame::Welcome),
        3 => parsed(&text).map(Frame::Request),
        4 => parsed(&text).map(Frame::Reply),
        5 => parsed(&text).map(Frame::Refusal),
        6 => parsed(&text).map(Frame::RolledBack),
        other => Err(invalid(format!("received a frame of unknown kind {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn bytes_of(frame: &Frame) -> Vec<u8> {
        let mut bytes = Vec::new();
        send(&mut bytes, frame).await.unwrap();
        bytes
    }

    #[tokio::test]
    async fn golden_hello() {
        let (from, to): (NodeId, NodeId) = ("a".parse().unwrap(), "w".parse().unwrap());
        let members = BTreeMap::from([(from, Role::Data), (to, Role::Witness)]);
        let hello = Hello { from, to, to_disk: Some(DiskId(9)), group: None, members, start: None, log: None };
        let bytes = bytes_of(&Frame::Hello(hello.clone())).await;
        let golden = b"\x53\0\0\0\x01\x01{\"from\":\"a\",\"to\":\"w\",\"to_disk\":9,\"group\":null,\"members\":{\"a\":\"data\",\"w\":\"witness\"}}";
        assert_eq!(bytes, golden);
        let Frame::Hello(read) = receive(&mut &bytes[..]).await.unwrap() else { panic!("no hello") };
        assert_eq!(read, hello);
        let start = Start { disk: DiskId(1), number: 2, mark: 3, before: vec![4] };
        let bytes = bytes_of(&Frame::Hello(Hello { start: Some(start.clone()), ..hello })).await;
        assert!(bytes.ends_with(b",\"start\":{\"disk\":1,\"number\":2,\"mark\":3,\"before\":[4]}}"));
        let Frame::Hello(read) = receive(&mut &bytes[..]).await.unwrap() else { panic!("no hello") };
        assert_eq!(read.start, Some(start));
        let bytes = bytes_of(&Frame::Hello(Hello { start: None, log: Some(LogEnd::default()), ..read })).await;
        assert!(bytes.ends_with(b",\"log\":{\"last\":null}}"));
    }

    #[tokio::test]
    async fn golden_welcome_with_and_without_the_address_of_links() {
        let welcome =
            |link| Welcome { node: "a".parse().unwrap(), disk: DiskId(9), founded: true, start: None, log: None, link };
        let with = br#"{"node":"a","disk":9,"founded":true,"link":"h:1"}"#;
        let without = br#"{"node":"a","disk":9,"founded":true}"#;
        for (welcome, golden) in [(welcome(Some("h:1".to_owned())), &with[..]), (welcome(None), &without[..])] {
            let bytes = bytes_of(&Frame::Welcome(welcome.clone())).await;
            assert_eq!(String::from_utf8_lossy(&bytes[HEAD_BYTES..]), String::from_utf8_lossy(golden));
            let Frame::Welcome(read) = receive(&mut &bytes[..]).await.unwrap() else { panic!("no welcome") };
            assert_eq!(read, welcome);
        }
    }

    #[tokio::test]
    async fn a_vote_arrives_as_it_was_sent() {
        let vote = VoteRequest::<NodeId>::new(Vote::new(7, "b".parse().unwrap()), None);
        let bytes = bytes_of(&Frame::Request(Request::Vote(vote))).await;
        let read = receive(&mut &bytes[..]).await.unwrap();
        let Frame::Request(Request::Vote(read)) = read else { panic!("{read:?}") };
        assert_eq!(read.vote.leader_id().term, 7);
    }

    #[tokio::test]
    async fn golden_tip() {
        let asked = bytes_of(&Frame::Request(Request::Tip)).await;
        assert_eq!(asked, b"\x05\0\0\0\x01\x03\"tip\"");
        let tip = TrailTip {
            trail: "t".to_owned(),
            epoch: holdfast_types::Epoch(3),
            lsn: 4096,
            checksum: 7,
            leads: None,
            settled: None,
            ..TrailTip::default()
        };
        let bytes = bytes_of(&Frame::Reply(Reply::Tip(Ok(tip.clone())))).await;
        let golden = b"\x4b\0\0\0\x01\x04{\"tip\":{\"Ok\":{\"trail\":\"t\",\"epoch\":3,\"lsn\":4096,\"checksum\":7,\"leads\":null}}}";
        assert_eq!(String::from_utf8_lossy(&bytes), String::from_utf8_lossy(golden));
        let Frame::Reply(Reply::Tip(read)) = receive(&mut &bytes[..]).await.unwrap() else { panic!("no tip") };
        assert_eq!(read, Ok(tip));
    }

    #[tokio::test]
    async fn golden_pass() {
        let pass = Request::Pass { origin: "b".parse().unwrap(), command: Command::Look, further: true };
        let bytes = bytes_of(&Frame::Request(pass)).await;
        let golden = br#"{"pass":{"origin":"b","command":"look","further":true}}"#;
        assert_eq!(String::from_utf8_lossy(&bytes[HEAD_BYTES..]), String::from_utf8_lossy(golden));
        let Frame::Request(Request::Pass { further: true, .. }) = receive(&mut &bytes[..]).await.unwrap() else {
            panic!("no pass")
        };
    }

    #[tokio::test]
    async fn golden_explain() {
        let bytes = bytes_of(&Frame::Request(Request::Explain { further: true })).await;
        assert_eq!(String::from_utf8_lossy(&bytes[HEAD_BYTES..]), r#"{"explain":{"further":true}}"#);
        let (a, b): (NodeId, NodeId) = ("a".parse().unwrap(), "b".parse().unwrap());
        let lacks = vec![(a, vec!["it is the master".to_owned()]), (b, Vec::new())];
        let explained = Explanation { leader: b, why: "why".to_owned(), lacks };
        let bytes = bytes_of(&Frame::Reply(Reply::Explained(explained.clone()))).await;
        let golden = r#"{"explained":{"leader":"b","why":"why","lacks":[["a",["it is the master"]],["b",[]]]}}"#;
        assert_eq!(String::from_utf8_lossy(&bytes[HEAD_BYTES..]), golden);
        let Frame::Reply(Reply::Explained(read)) = receive(&mut &bytes[..]).await.unwrap() else { panic!("no answer") };
        assert_eq!(read, explained);
    }

    #[tokio::test]
    async fn forged_frames_are_refused() {
        let good = bytes_of(&Frame::Refusal("no".to_owned())).await;
        assert!(matches!(receive(&mut &good[..]).await, Ok(Frame::Refusal(why)) if why == "no"));
        let long = [0xff, 0xff, 0xff, 0x7f, 1, 3];
        let newer = [2, 0, 0, 0, 2, 5, b'"', b'"'];
        let unknown = [2, 0, 0, 0, 1, 9, b'"', b'"'];
        let no_json = [2, 0, 0, 0, 1, 5, b'{', b'"'];
        for bytes in [&long[..], &newer, &unknown, &no_json] {
            let error = receive(&mut &*bytes).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
        for len in 0..good.len() {
            assert!(receive(&mut &good[..len]).await.is_err(), "cut at {len}");
        }
    }
}
