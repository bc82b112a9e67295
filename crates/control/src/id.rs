//! Names of nodes and ids of their disks.
//!
//! A node is called by a short name an operator gave it ("a", "oslo", "witness"); it is stored inline, because Raft
//! copies it into every log position. A disk has a random number, made when the control directory was made: a node that
//! comes back with an empty directory has another one, and is not taken for the node that promised its vote.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest name of a node, in bytes.
pub const NODE_NAME_BYTES_MAX: usize = 16;

/// A node's name: 1 to 16 of `a-z A-Z 0-9 - _`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeId([u8; NODE_NAME_BYTES_MAX]);

/// Why a text is not a valid name of a node.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("\"{0}\" is not a valid name for a node: a name has 1 to 16 letters, digits, '-' or '_'")]
pub struct BadName(String);

impl NodeId {
    /// The name with zeros behind it.
    pub(crate) fn bytes(&self) -> &[u8; NODE_NAME_BYTES_MAX] {
        &self.0
    }

    /// What [`NodeId::bytes`] gave.
    pub(crate) fn from_bytes(name: [u8; NODE_NAME_BYTES_MAX]) -> NodeId {
        NodeId(name)
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(NODE_NAME_BYTES_MAX);
        // A name contains only ASCII.
        std::str::from_utf8(&self.0[..len]).unwrap_or_default()
    }
}

impl NodeId {
    /// The node of that name, without an allocation when it is not a valid one.
    pub(crate) fn from_ascii(text: &str) -> Option<NodeId> {
        let fits = (1..=NODE_NAME_BYTES_MAX).contains(&text.len());
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !fits || !text.bytes().all(allowed) {
            return None;
        }
        let mut name = [0; NODE_NAME_BYTES_MAX];
        name[..text.len()].copy_from_slice(text.as_bytes());
        Some(NodeId(name))
    }
}

impl FromStr for NodeId {
    type Err = BadName;

    fn from_str(text: &str) -> Result<NodeId, BadName> {
        NodeId::from_ascii(text).ok_or_else(|| BadName(text.chars().take(40).collect()))
    }
}

impl TryFrom<String> for NodeId {
    type Error = BadName;

    /// The empty text means no node: Raft's first log position belongs to no node.
    fn try_from(text: String) -> Result<NodeId, BadName> {
        if text.is_empty() { Ok(NodeId::default()) } else { text.parse() }
    }
}

impl From<NodeId> for String {
    fn from(node: NodeId) -> String {
        node.as_str().to_owned()
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Tells one control directory from another, also of the same node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct DiskId(pub u64);

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for good in ["a", "oslo-1", "W_2", "0123456789abcdef"] {
            assert_eq!(good.parse::<NodeId>().unwrap().to_string(), good);
        }
        for bad in ["", "a b", "ä", "a\0", "0123456789abcdefg"] {
            assert!(bad.parse::<NodeId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_are_texts_in_json() {
        let node: NodeId = "oslo".parse().unwrap();
        assert_eq!(serde_json::to_string(&node).unwrap(), "\"oslo\"");
        assert_eq!(serde_json::from_str::<NodeId>("\"oslo\"").unwrap(), node);
        assert!(serde_json::from_str::<NodeId>("\"o/slo\"").is_err());
        assert_eq!(serde_json::from_str::<NodeId>("\"\"").unwrap(), NodeId::default());
    }
}
