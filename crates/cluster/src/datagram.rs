//! A pulse as it travels: its bytes, and the proof that a member of this cluster has sent them.
//!
//! ```text
//! offset length
//!      0    192  the pulse (holdfast_control::grant::Pulse)
//!    192     32  HMAC-SHA-256 (RFC 2104) of bytes 0..192 with the key of the cluster
//! ```
//! A forged grant would give a master a lease that no voter waits out, so nothing else is taken. The key is in the record of the group,
//! which only its members have. The pulse loop finds out which messages are copies of earlier ones.
//!
//! Failure: what has another length, another proof or no pulse in it is nothing.

use holdfast_control::PulseKey;
use holdfast_control::grant::{PULSE_BYTES, Pulse};
use ring::hmac;

const PROOF_BYTES: usize = 32;
/// The length of every message.
pub const DATAGRAM_BYTES: usize = PULSE_BYTES + PROOF_BYTES;

/// Proves and checks messages. It allocates nothing.
pub struct Prover(hmac::Key);

impl Prover {
    pub fn new(key: &PulseKey) -> Prover {
        Prover(hmac::Key::new(hmac::HMAC_SHA256, key.bytes()))
    }

    pub fn seal(&self, pulse: &Pulse) -> [u8; DATAGRAM_BYTES] {
        let mut bytes = [0; DATAGRAM_BYTES];
        bytes[..PULSE_BYTES].copy_from_slice(&pulse.encode());
        let proof = hmac::sign(&self.0, &bytes[..PULSE_BYTES]);
        bytes[PULSE_BYTES..].copy_from_slice(proof.as_ref());
        bytes
    }

    pub fn open(&self, bytes: &[u8]) -> Option<Pulse> {
        let (pulse, proof) = bytes.split_at_checked(PULSE_BYTES)?;
        // It has to be whole: `verify` compares all of it, in constant time.
        hmac::verify(&self.0, pulse, proof).ok()?;
        Pulse::decode(pulse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u64) -> PulseKey {
        PulseKey::random(&move || seed)
    }

    fn pulse() -> Pulse {
        let node = "a".parse().unwrap();
        Pulse { cluster: 7, node, incarnation: 1, sequence: 2, ..Pulse::default() }
    }

    #[test]
    fn golden_proof_and_every_changed_bit() {
        let prover = Prover::new(&key(1));
        let bytes = prover.seal(&pulse());
        assert_eq!(bytes[..PULSE_BYTES], pulse().encode());
        let hex: String = bytes[PULSE_BYTES..].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);
        assert_eq!(prover.open(&bytes), Some(pulse()));
        for bit in 0..DATAGRAM_BYTES * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(prover.open(&changed), None, "bit {bit}");
        }
        assert!((0..DATAGRAM_BYTES).all(|length| prover.open(&bytes[..length]).is_none()));
        assert_eq!(prover.open(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn a_message_of_another_cluster_is_nothing() {
        let bytes = Prover::new(&key(2)).seal(&pulse());
        assert_eq!(Prover::new(&key(1)).open(&bytes), None);
    }

    /// By Python: `hmac.new((1).to_bytes(8, 'little') * 4, PULSE, 'sha256')`.
    const GOLDEN: &str = "1edd0d289b48e7bc7cf84787dfb1bb636dac04ed337bf907239faabfdf0b4447";
}
