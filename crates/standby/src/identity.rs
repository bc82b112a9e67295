//! Who the two ends of a link are and where they stand.

use std::fmt;

use holdfast_trail::TrailId;
use holdfast_types::{Epoch, Lsn};
use serde::{Deserialize, Serialize};

/// What must fit between a master and a standby before a byte of the trail is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Identity {
    #[serde(with = "trail_id")]
    pub trail_id: TrailId,
    /// Newest boxcar format the program knows. The master writes it, the standby has to read it.
    pub format: u16,
    pub segment_bytes: u64,
    /// Of the last boxcar or promotion the node knows of.
    #[serde(with = "epoch")]
    pub epoch: Epoch,
}

/// The end of a trail: where the next boxcar goes and the checksum of the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tip {
    #[serde(with = "lsn")]
    pub lsn: Lsn,
    /// 0 while the trail holds no boxcar.
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

/// How far a standby has come. Each is an end: everything below it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Ack {
    /// Arrived whole and in order.
    #[serde(with = "lsn")]
    pub received: Lsn,
    /// In the standby's trail on its disk.
    #[serde(with = "lsn")]
    pub durable: Lsn,
    /// In the standby's databases, visible to its readers.
    #[serde(with = "lsn")]
    pub applied: Lsn,
}

/// serde forms of the ids, which carry none themselves.
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
