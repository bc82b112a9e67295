//! Names of objects.
//!
//! ```text
//! TTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT/EEEEEEEE-SSSSSSSS-CCCCCCCC.hfa
//! trail id                         epoch    segment  checksum, all hexadecimal
//! ```
//! Epoch and checksum are those of the segment's last boxcar. A segment may hold boxcars of several epochs, in
//! ascending order: a restart or a promotion begins an epoch in the middle of a segment. Nodes that diverged may reach
//! the same epoch (an old master that is restarted); the checksum, which depends on every boxcar before, distinguishes
//! their objects.

use std::fmt;

use holdfast_trail::TrailId;
use holdfast_types::Epoch;

/// The name of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectName {
    pub trail_id: TrailId,
    /// Epoch of the last boxcar.
    pub epoch: Epoch,
    pub segment: u32,
    /// Checksum of the last boxcar, to which the next segment's first boxcar refers.
    pub last_checksum: u32,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:08x}-{:08x}-{:08x}.hfa", self.trail_id, self.epoch.0, self.segment, self.last_checksum)
    }
}

impl ObjectName {
    /// Parses a name; `None` for any other file.
    pub fn parse(name: &str) -> Option<ObjectName> {
        let (trail, file) = name.split_once('/')?;
        let (epoch, rest) = file.strip_suffix(".hfa")?.split_once('-')?;
        let (segment, checksum) = rest.split_once('-')?;
        let (trail_id, epoch) = (parse_trail_id(trail)?, Epoch(hex(epoch)?));
        Some(ObjectName { trail_id, epoch, segment: hex(segment)?, last_checksum: hex(checksum)? })
    }
}

/// How names of objects of this epoch and segment begin, without the directory. In the order of bytes come behind it, in its
/// directory, all objects of later epochs, and those of this epoch from this segment on.
pub fn file_from(epoch: Epoch, segment: u32) -> String {
    format!("{:08x}-{segment:08x}", epoch.0)
}

/// Parses a trail id as it is written in names.
pub fn parse_trail_id(text: &str) -> Option<TrailId> {
    if text.len() != 32 || !text.is_ascii() {
        return None;
    }
    let mut id = [0; 16];
    for (byte, digits) in id.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = hex(&format!("000000{}", std::str::from_utf8(digits).ok()?))? as u8;
    }
    Some(TrailId(id))
}

/// Parses eight hexadecimal digits in lower case, so that each name has only one spelling.
fn hex(text: &str) -> Option<u32> {
    let plain = text.len() == 8 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if plain { u32::from_str_radix(text, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        let trail_id = TrailId(*b"0123456789abcdef");
        let name = ObjectName { trail_id, epoch: Epoch(3), segment: 0x1f, last_checksum: 0xa0b1 };
        let text = "30313233343536373839616263646566/00000003-0000001f-0000a0b1.hfa";
        assert_eq!((name.to_string().as_str(), ObjectName::parse(text)), (text, Some(name)));
        for bad in [
            "30313233343536373839616263646566/00000003-0000001F-0000a0b1.hfa",
            "30313233343536373839616263646566/00000003-0000001f-0000a0b1.hfa.a.new",
            "30313233343536373839616263646566/00000003-0000001f.hfa",
            "30313233343536373839616263646566/00000003-0000001f-0000a0b1-00000000.hfa",
            "30313233343536373839616263646566/3-1f-a0b1.hfa",
            "3031323334353637383961626364656/00000003-0000001f-0000a0b1.hfa",
            "00000003-0000001f-0000a0b1.hfa",
            "",
        ] {
            assert_eq!(ObjectName::parse(bad), None, "{bad}");
        }
    }
}
