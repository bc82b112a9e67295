//! Names of objects.
//!
//! ```text
//! TTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT/EEEEEEEE-SSSSSSSS.hfa
//! trail id                         epoch    segment, all hexadecimal
//! ```
//! The epoch is that of the segment's last boxcar. A segment may hold boxcars of several epochs, each higher than the one
//! before: a restart and a promotion begin one in the middle of a segment. A promoted standby that goes on with a segment
//! which its old master finishes, too, finishes it in a higher epoch, so the two never have the same name.

use std::fmt;

use holdfast_trail::TrailId;
use holdfast_types::Epoch;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectName {
    pub trail_id: TrailId,
    /// Of the last boxcar.
    pub epoch: Epoch,
    pub segment: u32,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:08x}-{:08x}.hfa", self.trail_id, self.epoch.0, self.segment)
    }
}

impl ObjectName {
    /// What a name says; `None` for whatever else lies there.
    pub fn parse(name: &str) -> Option<ObjectName> {
        let (trail, file) = name.split_once('/')?;
        let (epoch, segment) = file.strip_suffix(".hfa")?.split_once('-')?;
        Some(ObjectName { trail_id: parse_trail_id(trail)?, epoch: Epoch(hex(epoch)?), segment: hex(segment)? })
    }
}

/// A trail id as it stands in names.
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

/// Eight digits, in small letters: there is one way only to write a name.
fn hex(text: &str) -> Option<u32> {
    let plain = text.len() == 8 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if plain { u32::from_str_radix(text, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        let name = ObjectName { trail_id: TrailId(*b"0123456789abcdef"), epoch: Epoch(3), segment: 0x1f };
        let text = "30313233343536373839616263646566/00000003-0000001f.hfa";
        assert_eq!((name.to_string().as_str(), ObjectName::parse(text)), (text, Some(name)));
        for bad in [
            "30313233343536373839616263646566/00000003-0000001F.hfa",
            "30313233343536373839616263646566/00000003-0000001f.hfa.a.new",
            "30313233343536373839616263646566/3-1f.hfa",
            "3031323334353637383961626364656/00000003-0000001f.hfa",
            "00000003-0000001f.hfa",
            "",
        ] {
            assert_eq!(ObjectName::parse(bad), None, "{bad}");
        }
    }
}
