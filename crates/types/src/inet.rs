//! Internet addresses, PostgreSQL's type `inet`: a host of IPv4 or IPv6 with the length of its network's prefix.
//!
//! Text: `10.1.2.3`, `10.1.2.3/8`, `fe80::1/64`. The length is left out where it is the whole address.
//!
//! | offset | size | binary form, as PostgreSQL sends it |
//! |---|---|---|
//! | 0 | 1 | family: 2 is IPv4, 3 is IPv6 |
//! | 1 | 1 | length of the prefix in bits |
//! | 2 | 1 | 0 (1 would be the type `cidr`) |
//! | 3 | 1 | bytes of the address: 4 or 16 |
//! | 4 | 4 or 16 | the address |
//!
//! Anything else is `None`.

use core::net::IpAddr;
use std::fmt;

/// A host, and the length of its network's prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inet {
    pub address: IpAddr,
    pub bits: u8,
}

const FAMILY_V4: u8 = 2;
const FAMILY_V6: u8 = 3;

impl From<IpAddr> for Inet {
    fn from(address: IpAddr) -> Inet {
        Inet { address, bits: bits_max(address) }
    }
}

fn bits_max(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

impl Inet {
    /// Reads the text form.
    pub fn parse(text: &str) -> Option<Inet> {
        let text = text.trim();
        let (host, bits) = match text.split_once('/') {
            Some((host, bits)) => (host, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = host.parse().ok()?;
        let bits = match bits {
            None => bits_max(address),
            Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().ok().filter(|bits| *bits <= bits_max(address))?
            }
            Some(_) => return None,
        };
        Some(Inet { address, bits })
    }

    /// The text with the length of the prefix in any case: what PostgreSQL casts to `text`.
    pub fn with_length(&self) -> String {
        format!("{}/{}", self.address, self.bits)
    }

    /// The number that PostgreSQL's `family()` returns.
    pub fn family(&self) -> i64 {
        if self.address.is_ipv4() { 4 } else { 6 }
    }

    /// Appends the binary form.
    pub fn to_binary(&self, out: &mut Vec<u8>) {
        match self.address {
            IpAddr::V4(v4) => {
                out.extend_from_slice(&[FAMILY_V4, self.bits, 0, 4]);
                out.extend_from_slice(&v4.octets());
            }
            IpAddr::V6(v6) => {
                out.extend_from_slice(&[FAMILY_V6, self.bits, 0, 16]);
                out.extend_from_slice(&v6.octets());
            }
        }
    }

    /// Reads the binary form.
    pub fn from_binary(bytes: &[u8]) -> Option<Inet> {
        let [family, bits, _, length, address @ ..] = bytes else { return None };
        let address = match (*family, *length) {
            (FAMILY_V4, 4) => IpAddr::from(<[u8; 4]>::try_from(address).ok()?),
            (FAMILY_V6, 16) => IpAddr::from(<[u8; 16]>::try_from(address).ok()?),
            _ => return None,
        };
        (*bits <= bits_max(address)).then_some(Inet { address, bits: *bits })
    }
}

impl fmt::Display for Inet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bits == bits_max(self.address) {
            true => self.address.fmt(f),
            false => f.write_str(&self.with_length()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_go_there_and_back() {
        for text in ["127.0.0.1", "10.1.2.3/8", "::1", "fe80::1/64", "0.0.0.0/0"] {
            assert_eq!(Inet::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Inet::parse(" 127.0.0.1/32 ").unwrap().to_string(), "127.0.0.1");
        assert_eq!(Inet::parse("::1").unwrap().with_length(), "::1/128");
        for bad in ["", "1.2.3", "1.2.3.4/33", "::1/129", "1.2.3.4/", "1.2.3.4/+1", "host", "1.2.3.4/8/8", "256.1.1.1"]
        {
            assert_eq!(Inet::parse(bad), None, "{bad}");
        }
    }

    /// The bytes that PostgreSQL 15 sends.
    #[test]
    fn golden_binary_forms() {
        let binary = |text: &str| {
            let mut out = Vec::new();
            Inet::parse(text).unwrap().to_binary(&mut out);
            assert_eq!(Inet::from_binary(&out).unwrap().to_string(), text);
            out
        };
        assert_eq!(binary("127.0.0.1"), [2, 32, 0, 4, 127, 0, 0, 1]);
        assert_eq!(binary("10.0.0.1/8"), [2, 8, 0, 4, 10, 0, 0, 1]);
        assert_eq!(binary("::1")[..4], [3, 128, 0, 16]);
        for bad in [&[][..], &[2, 33, 0, 4, 1, 2, 3, 4], &[2, 32, 0, 4, 1, 2, 3], &[4, 32, 0, 4, 1, 2, 3, 4]] {
            assert_eq!(Inet::from_binary(bad), None);
        }
    }
}
