//! One-time logins: `holdfast console` makes one for an operator that can read the server's key, a file of the server's own user.
//!
//! A ticket is `TIME-NONCE-MAC`: seconds since 1970, 16 random bytes, HMAC-SHA256 of both under the key, in hexadecimal. It is good
//! for [`GOOD_FOR_S`] seconds, once: the server remembers the tickets that it has taken for as long as they would be good.

use parking_lot::Mutex;
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use std::collections::BTreeMap;
use std::fmt::Write;

/// How long a ticket is good.
pub const GOOD_FOR_S: u64 = 60;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// Random bytes in hexadecimal; `None`: the system has none.
pub fn random_hex<const N: usize>() -> Option<String> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of a text in hexadecimal.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

/// Makes a ticket.
pub fn ticket(key: &[u8], unix_s: u64) -> Option<String> {
    let body = format!("{unix_s}-{}", random_hex::<16>()?);
    let mac = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), body.as_bytes());
    Some(format!("{body}-{}", hex(mac.as_ref())))
}

/// Takes tickets.
pub struct Tickets {
    key: hmac::Key,
    /// What was taken, and when it stops being good.
    taken: Mutex<BTreeMap<String, u64>>,
}

impl Tickets {
    pub fn new(key: &[u8]) -> Tickets {
        Tickets { key: hmac::Key::new(hmac::HMAC_SHA256, key), taken: Mutex::default() }
    }

    /// Whether a ticket is good, which it is once.
    pub fn take(&self, ticket: &str, unix_s: u64) -> bool {
        let Some((body, mac)) = ticket.rsplit_once('-') else { return false };
        let Some(mac) = from_hex(mac) else { return false };
        if hmac::verify(&self.key, body.as_bytes(), &mac).is_err() {
            return false;
        }
        let Some(made) = body.split('-').next().and_then(|text| text.parse::<u64>().ok()) else { return false };
        // The clocks are the same machine's.
        if unix_s.abs_diff(made) > GOOD_FOR_S {
            return false;
        }
        let mut taken = self.taken.lock();
        taken.retain(|_, until| *until >= unix_s);
        taken.insert(body.to_owned(), unix_s + 2 * GOOD_FOR_S).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_good_once_and_briefly() {
        let (key, now) = ([7; KEY_BYTES], 1_000_000);
        let tickets = Tickets::new(&key);
        let one = ticket(&key, now).unwrap();
        assert!(tickets.take(&one, now + GOOD_FOR_S));
        assert!(!tickets.take(&one, now + GOOD_FOR_S), "taken");
        assert!(!tickets.take(&ticket(&key, now).unwrap(), now + GOOD_FOR_S + 1), "too old");
        assert!(!tickets.take(&ticket(&[8; KEY_BYTES], now).unwrap(), now), "another server's");
        let two = ticket(&key, now).unwrap();
        assert!(!tickets.take(&two.replacen("1000000", "1000001", 1), now), "changed");
        for garbage in ["", "-", "--", "1-2-3", "1000000-ab-zz", "ä-ö-ü"] {
            assert!(!tickets.take(garbage, now), "{garbage}");
        }
        assert!(tickets.take(&two, now));
    }

    #[test]
    fn hexadecimal_there_and_back() {
        assert_eq!(from_hex("00ff7a"), Some(vec![0, 255, 122]));
        assert!(from_hex("0").is_none() && from_hex("zz").is_none() && from_hex("éé").is_none());
        assert_eq!(random_hex::<4>().map(|text| text.len()), Some(8));
    }
}
