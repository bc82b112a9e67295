//! Packs boxcars with zstd on slow links, if both sides can and it saves time.
//!
//! A packed boxcar's body: its plain length, u32, little-endian; then one zstd frame (RFC 8878) that unpacks to exactly
//! that length.
//!
//! Whether it saves time is measured: the bytes per second that the link accepts while writing to it has to wait.
//! Packing takes about as long as a link of 100 MB/s needs for the plain bytes, so:
//!
//! | the link accepts | boxcars are sent |
//! |---|---|
//! | less than [`SLOW_BYTES_PER_S`] | packed |
//! | more than [`FAST_BYTES_PER_S`] | plain |
//! | something between, or nothing measured | as before; plain at first |
//!
//! On one machine they are sent plain.
//!
//! Failure: a boxcar that cannot be unpacked, or unpacks to another length, ends the link. Memory grows with the
//! unpacked bytes, up to the longest boxcar of the trail, never by the claimed length.

use std::io::{BufRead, Read};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;

use crate::error::LinkError;
use crate::kind::MessageKind;

/// A link that accepts less than this is slow.
pub const SLOW_BYTES_PER_S: u64 = 30_000_000;
/// A link that accepts more than this is fast.
pub const FAST_BYTES_PER_S: u64 = 60_000_000;
/// The number of bytes to write before the rate is judged.
const WINDOW_BYTES: u64 = 1 << 20;
/// Shorter boxcars are not packed.
const PACK_BYTES_MIN: usize = 512;
/// The fastest level that still halves the size of row images.
const ZSTD_LEVEL: i32 = 1;
const LENGTH_BYTES: usize = 4;

/// Whether boxcars are packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Packing {
    Off,
    On,
    /// On a link that is measured to be slow.
    #[default]
    Auto,
}

/// Packs a boxcar's bytes; `None` if that saves less than an eighth.
pub fn pack(plain: &[u8]) -> Option<Vec<u8>> {
    if plain.len() < PACK_BYTES_MIN {
        return None;
    }
    let length = u32::try_from(plain.len()).ok()?;
    let packed = zstd::bulk::compress(plain, ZSTD_LEVEL).ok()?;
    if packed.len() + LENGTH_BYTES > plain.len() - plain.len() / 8 {
        return None;
    }
    Some([&length.to_le_bytes()[..], &packed].concat())
}

/// Unpacks a packed body to the boxcar's bytes.
pub fn unpack(body: &[u8], boxcar_bytes_max: usize) -> Result<Bytes, LinkError> {
    let malformed = |what: String| LinkError::Malformed { kind: MessageKind::Packed, what };
    let Some((length, packed)) = body.split_first_chunk::<LENGTH_BYTES>() else {
        return Err(malformed(format!("{} bytes are not enough", body.len())));
    };
    let length = u32::from_le_bytes(*length) as usize;
    if length > boxcar_bytes_max {
        let (bytes, bytes_max) = (length as u64, boxcar_bytes_max as u64);
        return Err(LinkError::TooLong { kind: MessageKind::Packed, bytes, bytes_max });
    }
    let broken = |error: std::io::Error| malformed(error.to_string());
    let mut decoder = zstd::stream::Decoder::new(packed).map_err(broken)?.single_frame();
    let mut plain = Vec::new();
    decoder.by_ref().take(length as u64 + 1).read_to_end(&mut plain).map_err(broken)?;
    if plain.len() != length {
        return Err(malformed(format!("{} bytes instead of the claimed {length}", plain.len())));
    }
    if !decoder.finish().fill_buf().map_err(broken)?.is_empty() {
        return Err(malformed("bytes left over".to_owned()));
    }
    Ok(plain.into())
}

/// Decides for one link whether to pack, by measurement.
#[derive(Debug)]
pub struct Packer {
    packing: Packing,
    packs: bool,
    written_bytes: u64,
    waited: Duration,
}

impl Packing {
    /// The packing of a link with the node at this address; `can_unpack` is what the node says about itself. On this
    /// machine nothing is measured: a wait there is a wait for a processor.
    pub fn with(self, address: &str, can_unpack: bool) -> Packing {
        let is_here = address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback());
        match self {
            _ if !can_unpack => Packing::Off,
            Packing::Auto if is_here => Packing::Off,
            packing => packing,
        }
    }
}

impl Packer {
    /// `packing` is the result of [`Packing::with`].
    pub fn new(packing: Packing) -> Packer {
        Packer { packing, packs: packing == Packing::On, written_bytes: 0, waited: Duration::ZERO }
    }

    pub fn packs(&self) -> bool {
        self.packs
    }

    /// Records that `bytes` were written in the time `took`.
    pub fn wrote(&mut self, bytes: usize, took: Duration) {
        if self.packing != Packing::Auto {
            return;
        }
        self.written_bytes += bytes as u64;
        self.waited += took;
        if self.written_bytes < WINDOW_BYTES {
            return;
        }
        let bytes_per_s = (self.written_bytes as f64 / self.waited.as_secs_f64().max(1e-6)) as u64;
        match bytes_per_s {
            ..SLOW_BYTES_PER_S => self.packs = true,
            FAST_BYTES_PER_S.. => self.packs = false,
            _ => {}
        }
        (self.written_bytes, self.waited) = (0, Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxcars_come_back_and_what_is_not_one_is_refused() {
        let plain: Vec<u8> = (0..100_000u32).map(|i| (i / 50) as u8).collect();
        let packed = pack(&plain).unwrap();
        assert!(packed.len() < plain.len() / 4 && packed[..4] == 100_000u32.to_le_bytes());
        assert_eq!(unpack(&packed, plain.len()).unwrap(), plain);
        assert!(matches!(unpack(&packed, plain.len() - 1), Err(LinkError::TooLong { .. })));
        for wrong in 0..packed.len().min(200) {
            let mut changed = packed.clone();
            changed[wrong] ^= 0x10;
            // Either unpacking fails, or the boxcar's own checksum detects it.
            assert!(unpack(&changed, plain.len()).map_or(true, |bytes| bytes.len() == plain.len()), "byte {wrong}");
        }
        for bad in [&packed[..3], &packed[..packed.len() - 1], &[packed.clone(), vec![0]].concat()] {
            assert!(unpack(bad, plain.len()).is_err());
        }
        // A claimed length that is too large, and one that is too small.
        for length in [100_001u32, 99_999] {
            let lying = [&length.to_le_bytes()[..], &packed[4..]].concat();
            assert!(matches!(unpack(&lying, 1 << 20), Err(LinkError::Malformed { .. })), "{length}");
        }
    }

    /// Created with another zstd: `zstd -1 --no-check`.
    #[test]
    fn golden_bytes() {
        let golden = "2400000028b52ffd20247d000048686f6c64666173742001000ccb11";
        let bytes: Vec<u8> =
            (0..golden.len()).step_by(2).map(|i| u8::from_str_radix(&golden[i..i + 2], 16).unwrap()).collect();
        assert_eq!(unpack(&bytes, 1000).unwrap(), "holdfast holdfast holdfast holdfast ");
    }

    #[test]
    fn what_does_not_get_shorter_is_not_packed() {
        let mut state = 1u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(10_000)
        .collect();
        assert!(pack(&noise).is_none() && pack(&[0; 100]).is_none());
    }

    #[test]
    fn the_link_decides_with_a_gap_between() {
        let mut packer = Packer::new(Packing::Auto);
        let mut at = |bytes_per_s: u64| {
            packer.wrote(1 << 20, Duration::from_secs_f64((1 << 20) as f64 / bytes_per_s as f64));
            packer.packs()
        };
        let rates = [500, 45, 10, 45, 500, 45].map(|mb| at(mb * 1_000_000));
        assert_eq!(rates, [false, false, true, true, false, false]);
        assert!(Packer::new(Packing::On).packs());
        let with = |packing: Packing, address| packing.with(address, true);
        assert_eq!(Packing::On.with("10.0.0.1:1", false), Packing::Off);
        assert_eq!(with(Packing::Auto, "127.0.0.1:5433"), Packing::Off);
        assert_eq!(with(Packing::Auto, "10.0.0.1:5433"), Packing::Auto);
        assert_eq!(with(Packing::On, "[::1]:5433"), Packing::On);
    }
}
