//! Passwords: the verifier that a server stores in place of a password ([`Verifier`]), and the server's side of the
//! SCRAM-SHA-256 exchange ([`Exchange`]), with and without channel binding.
//!
//! A verifier has PostgreSQL's format, so it can be carried over from there and back. Knowing it is not enough to log in:
//! it proves a password, and does not contain it. The server does not run PBKDF2 when a client logs in; the client does.
//!
//! The cryptography is ring's, the comparison subtle's, the tables of SASLprep stringprep's. No I/O; the messages are handed in and out
//! as bytes.
//!
//! How it fails: a text that is not a verifier is `None`; a message that violates the protocol is an error with
//! PostgreSQL's SQLSTATE and text; a wrong proof is [`Outcome::Refused`], and an unknown role has the same outcome.
//!
//! Sources: RFC 5802 (SCRAM), RFC 7677 (SHA-256), RFC 5929 (`tls-server-end-point`), RFC 4013 (SASLprep), PostgreSQL 15,
//! section 55.3.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod exchange;
mod message;
mod saslprep;
mod verifier;

pub use exchange::{Binding, Exchange, Mechanism, Nonce, Outcome};
pub use message::MESSAGE_BYTES_MAX;
pub use verifier::{ITERATIONS, ITERATIONS_MAX, Verifier, is_verifier, verifier};

use holdfast_types::{SqlError, SqlResult};
use ring::rand::{SecureRandom, SystemRandom};

/// Random bytes of the operating system.
pub fn random<const N: usize>() -> SqlResult<[u8; N]> {
    let mut bytes = [0; N];
    match SystemRandom::new().fill(&mut bytes) {
        Ok(()) => Ok(bytes),
        Err(_) => Err(SqlError::internal("the operating system gave no random bytes")),
    }
}
