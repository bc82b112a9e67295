//! The verifier of a password: `SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY`, the last three in base64.
//!
//! | part | what |
//! |---|---|
//! | SaltedPassword | PBKDF2 with HMAC-SHA-256 of the prepared password, salt and iterations |
//! | STORED_KEY | SHA-256 of HMAC(SaltedPassword, "Client Key"); the client's proof is checked with it |
//! | SERVER_KEY | HMAC(SaltedPassword, "Server Key"); the server proves with it that it has the verifier |
//!
//! The password is prepared by SASLprep ([`crate::saslprep`]).

use crate::saslprep::prepared;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_types::SqlResult;
use ring::{digest, hmac, pbkdf2};
use std::fmt;
use std::num::NonZeroU32;
use subtle::ConstantTimeEq;

/// PBKDF2 rounds of new verifiers (PostgreSQL's SCRAM_DEFAULT_ITERATIONS).
pub const ITERATIONS: u32 = 4096;

/// The most rounds of a verifier that a role may be given: the server runs them itself where it compares a password, as at
/// the console, and nothing interrupts them.
pub const ITERATIONS_MAX: u32 = 1_000_000;

/// Bytes of salt of new verifiers (PostgreSQL's SCRAM_DEFAULT_SALT_LEN).
const SALT_BYTES: usize = 16;

/// Bytes of a key.
pub(crate) const KEY_BYTES: usize = 32;

const PREFIX: &str = "SCRAM-SHA-256$";

pub(crate) type Key = [u8; KEY_BYTES];

/// The verifier of a password. `Debug` hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    pub(crate) iterations: u32,
    pub(crate) salt: Vec<u8>,
    pub(crate) stored_key: Key,
    pub(crate) server_key: Key,
}

/// Makes the verifier of a password, with a new salt: what a server stores for `PASSWORD 'text'`.
pub fn verifier(password: &str) -> SqlResult<String> {
    let salt = crate::random::<SALT_BYTES>()?;
    Ok(Verifier::of(password, &salt, ITERATIONS).to_string())
}

/// Whether a text is a verifier, which `PASSWORD 'text'` stores as it is.
pub fn is_verifier(text: &str) -> bool {
    Verifier::parse(text).is_some()
}

impl Verifier {
    /// The verifier of a password with this salt; 0 iterations count as 1.
    pub fn of(password: &str, salt: &[u8], iterations: u32) -> Verifier {
        let mut salted: Key = [0; KEY_BYTES];
        let rounds = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, salt, prepared(password).as_bytes(), &mut salted);
        let stored_key = sha256(&hmac_sha256(&salted, b"Client Key"));
        Verifier {
            iterations: rounds.get(),
            salt: salt.to_vec(),
            stored_key,
            server_key: hmac_sha256(&salted, b"Server Key"),
        }
    }

    /// Reads a verifier.
    pub fn parse(text: &str) -> Option<Verifier> {
        let (parameters, keys) = text.strip_prefix(PREFIX)?.split_once('$')?;
        let ((iterations, salt), (stored_key, server_key)) = (parameters.split_once(':')?, keys.split_once(':')?);
        if !iterations.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        // PostgreSQL's are int32.
        let iterations = iterations.parse::<u32>().ok().filter(|n| (1..=i32::MAX as u32).contains(n))?;
        let key = |text: &str| STANDARD.decode(text).ok()?.try_into().ok();
        let (stored_key, server_key) = (key(stored_key)?, key(server_key)?);
        Some(Verifier { iterations, salt: STANDARD.decode(salt).ok()?, stored_key, server_key })
    }

    /// A verifier that no password fits, for a role that does not exist or has none. It is always the same for a name, so
    /// that a client cannot find out by asking twice. `secret` is the server's.
    pub fn mock(user: &str, secret: &[u8; KEY_BYTES]) -> Verifier {
        let key = |what: &[u8]| hmac_sha256(secret, &[what, user.as_bytes()].concat());
        let salt = key(b"salt ")[..SALT_BYTES].to_vec();
        Verifier { iterations: ITERATIONS, salt, stored_key: key(b"stored "), server_key: key(b"server ") }
    }

    /// Rounds of PBKDF2 that a comparison costs.
    pub fn iterations(&self) -> u32 {
        self.iterations
    }

    /// Whether this is the password. Costs the iterations of PBKDF2; beyond [`ITERATIONS_MAX`] the answer is no.
    pub fn accepts(&self, password: &str) -> bool {
        if self.iterations > ITERATIONS_MAX {
            return false;
        }
        let other = Verifier::of(password, &self.salt, self.iterations);
        self.stored_key.ct_eq(&other.stored_key).into()
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [salt, stored, server] =
            [&self.salt[..], &self.stored_key, &self.server_key].map(|bytes| STANDARD.encode(bytes));
        write!(f, "{PREFIX}{}:{salt}${stored}:{server}", self.iterations)
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(..)")
    }
}

pub(crate) fn hmac_sha256(key: &Key, message: &[u8]) -> Key {
    bytes(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref())
}

pub(crate) fn sha256(message: &[u8]) -> Key {
    bytes(digest::digest(&digest::SHA256, message).as_ref())
}

/// An output of SHA-256, which always has this length.
fn bytes(output: &[u8]) -> Key {
    let mut key = [0; KEY_BYTES];
    key.iter_mut().zip(output).for_each(|(to, from)| *to = *from);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verifier of RFC 7677's example, with the password `pencil`.
    const OF_PENCIL: &str = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
                             WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";

    #[test]
    fn a_verifier_is_written_as_postgresql_writes_it() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        assert_eq!(Verifier::of("pencil", &salt, 4096).to_string(), OF_PENCIL);
        let parsed = Verifier::parse(OF_PENCIL).unwrap();
        assert_eq!(parsed.to_string(), OF_PENCIL);
        assert!(parsed.accepts("pencil") && !parsed.accepts("pencil ") && !parsed.accepts(""));
        assert_eq!(format!("{parsed:?}"), "Verifier(..)");
    }

    #[test]
    fn two_verifiers_of_a_password_differ_and_both_accept_it() {
        let (a, b) = (verifier("secret").unwrap(), verifier("secret").unwrap());
        assert_ne!(a, b);
        assert!([a, b].iter().all(|v| Verifier::parse(v).unwrap().accepts("secret")));
    }

    #[test]
    fn saslprep_as_rfc_4013_shows_it() {
        let fits = |stored: &str, given: &str| Verifier::of(stored, b"salt", 1).accepts(given);
        assert!(fits("I\u{ad}X", "IX"), "SOFT HYPHEN is mapped to nothing");
        assert!(fits("\u{aa}", "a") && fits("\u{2168}", "IX"), "NFKC");
        assert!(!fits("user", "USER"));
        assert!(fits("a\u{a0}b", "a b"), "other spaces become SPACE");
        assert!(fits("a\u{7}b", "a\u{7}b"), "a prohibited password is taken as it is");
        assert!(fits("\u{627}1", "\u{627}1") && fits("\u{ad}", "\u{ad}") && !fits("\u{ad}", "\u{200b}"));
    }

    #[test]
    fn what_is_not_a_verifier() {
        let parts: Vec<&str> = OF_PENCIL.split(['$', ':']).collect();
        let with = |i: usize, text: &str| {
            let mut parts = parts.clone();
            parts[i] = text;
            format!("{}${}:{}${}:{}", parts[0], parts[1], parts[2], parts[3], parts[4])
        };
        assert!(is_verifier(&with(1, "1")));
        for (i, text) in [
            (0, "SCRAM-SHA-512"),
            (0, ""),
            (1, "0"),
            (1, "-1"),
            (1, "+4096"),
            (1, "2147483648"),
            (1, "99999999999999999999"),
            (1, ""),
            (2, "W22ZaJ0SNY7soEsUEjb6gQ="),
            (2, "W22ZaJ0SNY7soEsUEjb6gQ==$"),
            (3, "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4g=="),
            (4, ""),
            (4, "wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU= "),
        ] {
            assert!(!is_verifier(&with(i, text)), "{i} {text:?}");
        }
        assert!(!is_verifier("md5d0d6cb8d9e8ab0b2fc7a2f1c1ea3e8a3") && !is_verifier(""));
    }

    #[test]
    fn a_mock_is_stable_for_a_name_and_looks_like_any_other() {
        let (a, again) = (Verifier::mock("ann", &[1; 32]), Verifier::mock("ann", &[1; 32]));
        assert_eq!(a, again);
        assert_eq!((a.iterations, a.salt.len()), (ITERATIONS, SALT_BYTES));
        assert_ne!(a.salt, Verifier::mock("bob", &[1; 32]).salt);
        assert_ne!(a.salt, Verifier::mock("ann", &[2; 32]).salt);
        assert!(!a.accepts(""));
    }
}
