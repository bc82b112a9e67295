//! An epoch as a plain number in the record and in messages, for serde's `with`.

use holdfast_types::Epoch;
use serde::{Deserialize, Deserializer, Serializer};

/// For fields that are left out before the first epoch.
pub fn is_none(epoch: &Epoch) -> bool {
    *epoch == Epoch(0)
}

pub fn serialize<S: Serializer>(epoch: &Epoch, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u32(epoch.0)
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Epoch, D::Error> {
    u32::deserialize(from).map(Epoch)
}
