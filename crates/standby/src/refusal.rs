//! A refusal: why a node does not do what another node asks, and what to do about it.
//!
//! It is sent over the link as the operator sees it. The reason is for programs, the text for people.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The reason of a refusal. Its number is part of the link protocol: never change one, only add.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(from = "u8", into = "u8")]
pub enum Reason {
    /// There is no version of the link protocol that both sides know.
    Version,
    /// Another trail: another database.
    OtherTrail,
    /// The standby's program is too old to read what the master writes.
    Format,
    SegmentSize,
    /// The standby has seen a newer epoch: this master was deposed.
    Deposed,
    /// Each has boxcars that the other does not have.
    Diverged,
    /// What the standby needs is recycled.
    Gone,
    /// The serving node is not a master.
    NotMaster,
    /// The peer may not do this.
    NotAdmitted,
    /// A standby with this name is already connected.
    NameTaken,
    /// The operator has stopped shipping, or the server is stopping.
    Stopped,
    /// The peer violated the protocol.
    Protocol,
    /// A promotion without proof that the old master is stopped.
    NotSafe,
    /// An operation failed on the side that refuses.
    Failed,
    /// The master lacks what was durable there: its directory was put back from an older copy.
    RolledBack,
    /// A reason of a newer program.
    Other(u8),
}

const CODES: [(Reason, u8); 15] = [
    (Reason::Version, 1),
    (Reason::OtherTrail, 2),
    (Reason::Format, 3),
    (Reason::SegmentSize, 4),
    (Reason::Deposed, 5),
    (Reason::Diverged, 6),
    (Reason::Gone, 7),
    (Reason::NotMaster, 8),
    (Reason::NotAdmitted, 9),
    (Reason::NameTaken, 10),
    (Reason::Stopped, 11),
    (Reason::Protocol, 12),
    (Reason::NotSafe, 13),
    (Reason::Failed, 14),
    (Reason::RolledBack, 15),
];

impl From<Reason> for u8 {
    fn from(reason: Reason) -> u8 {
        match reason {
            Reason::Other(code) => code,
            known => CODES.iter().find(|(of, _)| *of == known).map_or(0, |(_, code)| *code),
        }
    }
}

impl From<u8> for Reason {
    fn from(code: u8) -> Reason {
        CODES.iter().find(|(_, of)| *of == code).map_or(Reason::Other(code), |(reason, _)| *reason)
    }
}

impl Reason {
    /// Whether a later retry may succeed without an operator's action.
    pub fn may_pass(self) -> bool {
        // An address may soon lead to another node: from a deposed master to the new one.
        // A master that was put back has to hear it again after each of its starts.
        matches!(
            self,
            Reason::Deposed
                | Reason::NotMaster
                | Reason::NameTaken
                | Reason::Stopped
                | Reason::Failed
                | Reason::RolledBack
        )
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Refusal {
    pub reason: Reason,
    /// What does not match, with the values of both sides.
    pub message: String,
    /// What the operator can do.
    pub advice: String,
}

impl Refusal {
    pub fn new(reason: Reason, message: impl Into<String>, advice: impl Into<String>) -> Refusal {
        Refusal { reason, message: message.into(), advice: advice.into() }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.message, self.advice)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_code_of_its_own() {
        for (reason, code) in CODES {
            assert_eq!((u8::from(reason), Reason::from(code)), (code, reason));
        }
        let mut codes: Vec<u8> = CODES.iter().map(|(_, code)| *code).collect();
        codes.dedup();
        assert_eq!(codes.len(), CODES.len());
        assert_eq!(u8::from(Reason::from(200)), 200);
    }
}
