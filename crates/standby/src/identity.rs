//! The identities of the two ends of a link, and their positions.

use std::fmt;

use holdfast_trail::TrailId;
use holdfast_types::{Epoch, Lsn};
use serde::{Deserialize, Serialize};

/// What must match between a master and a standby before a byte of the trail is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    #[serde(with = "trail_id")]
    pub trail_id: TrailId,
    /// The newest boxcar format that the program knows. The master writes it; the standby must be able to read it.
    pub format: u16,
    pub segment_bytes: u64,
    /// The epoch of the last boxcar or promotion that the node knows.
    #[serde(with = "epoch")]
    pub epoch: Epoch,
}

/// The end of a trail: the position of the next boxcar and the checksum of the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tip {
    #[serde(with = "lsn")]
    pub lsn: Lsn,
    /// 0 while the trail has no boxcar.
    pub checksum: u32,
}

impl Tip {
    pub fn is_empty(&self) -> bool {
        self.checksum == 0
    }
}

impl fmt::Display for Tip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LSN {} (checksum {:08x})", self.lsn, self.checksum)
    }
}

/// A standby's positions. Each is an end: it means everything below it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Ack {
    /// Received completely and in order.
    #[serde(with = "lsn")]
    pub received: Lsn,
    /// In the standby's trail on its disk.
    #[serde(with = "lsn")]
    pub durable: Lsn,
    /// In the standby's databases, visible to its readers.
    #[serde(with = "lsn")]
    pub applied: Lsn,
}

/// serde forms of the ids, which have none themselves.
pub(crate) mod lsn {
    use holdfast_types::Lsn;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(lsn: &Lsn, to: S) -> Result<S::Ok, S::Error> {
        lsn.0.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Lsn, D::Error> {
        u64::deserialize(from).map(Lsn)
    }
}

pub(crate) mod epoch {
    use holdfast_types::Epoch;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(epoch: &Epoch, to: S) -> Result<S::Ok, S::Error> {
        epoch.0.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Epoch, D::Error> {
        u32::deserialize(from).map(Epoch)
    }
}

pub(crate) mod trail_id {
    use holdfast_trail::TrailId;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(id: &TrailId, to: S) -> Result<S::Ok, S::Error> {
        id.0.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<TrailId, D::Error> {
        <[u8; 16]>::deserialize(from).map(TrailId)
    }
}
