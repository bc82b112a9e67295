//! The key that proves pulses: random, made when a group with leases by pulses is founded, and part of its record. So every member
//! has it, over the connections of the control plane, and no other program.
//!
//! Failure: text that is not 64 hexadecimal digits is no key.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The length in bytes.
pub const PULSE_KEY_BYTES: usize = 32;

/// A key. It is not shown: neither in a log nor in an error.
#[derive(Clone, PartialEq, Eq)]
pub struct PulseKey([u8; PULSE_KEY_BYTES]);

impl PulseKey {
    /// `random`: from the kernel.
    pub fn random(random: &dyn Fn() -> u64) -> PulseKey {
        let mut key = [0; PULSE_KEY_BYTES];
        key.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&random().to_le_bytes()));
        PulseKey(key)
    }

    pub fn bytes(&self) -> &[u8; PULSE_KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for PulseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PulseKey(..)")
    }
}

impl Serialize for PulseKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        serializer.serialize_str(&digits)
    }
}

impl<'de> Deserialize<'de> for PulseKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PulseKey, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).ok_or_else(|| de::Error::custom("a key of pulses is 64 hexadecimal digits"))
    }
}

fn parse(text: &str) -> Option<PulseKey> {
    let is_key = text.len() == 2 * PULSE_KEY_BYTES && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let mut key = [0; PULSE_KEY_BYTES];
    for (at, byte) in key.iter_mut().enumerate().filter(|_| is_key) {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    is_key.then_some(PulseKey(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_hexadecimal_digits_in_json_and_hidden_elsewhere() {
        let key = PulseKey::random(&|| 0x0807_0605_0403_0201);
        let json = serde_json::to_string(&key).unwrap();
        assert_eq!(json, format!("\"{}\"", "0102030405060708".repeat(4)));
        assert_eq!(serde_json::from_str::<PulseKey>(&json).unwrap(), key);
        assert_eq!(format!("{key:?}"), "PulseKey(..)");
        for wrong in ["", "01", &"0g".repeat(32), &"+1".repeat(32), &"é".repeat(32)] {
            let error = serde_json::from_str::<PulseKey>(&format!("{wrong:?}")).unwrap_err();
            assert!(error.to_string().contains("64 hexadecimal digits"), "{wrong}: {error}");
        }
    }
}
