//! The server's side of one SCRAM exchange (RFC 5802, section 5).
//!
//! ```text
//! client  n,,n=,r=NONCE
//! server  r=NONCE+OURS,s=SALT,i=ITERATIONS
//! client  c=BINDING,r=NONCE+OURS,p=PROOF
//! server  v=SIGNATURE
//! ```
//!
//! OURS is drawn for each exchange, so recorded messages prove nothing in another one. With channel binding the proof
//! covers the hash of the server's certificate that the client has seen: a proof that passed a man in the middle, which
//! has another certificate, does not fit. A client that supports channel binding and was not offered it says so (`y`);
//! where the server offers it, the offer was removed on the way, and the exchange fails.
//!
//! How it fails: [`Outcome::Refused`] for a wrong proof; an error for a message that violates the protocol.

use crate::message::{self, BindingFlag, malformed};
use crate::verifier::{KEY_BYTES, Key, Verifier, hmac_sha256, sha256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use holdfast_types::{SqlError, SqlResult, SqlState};
use subtle::ConstantTimeEq;

/// Random bytes in the server's part of the nonce (PostgreSQL's SCRAM_RAW_NONCE_LEN).
const NONCE_BYTES: usize = 18;

/// The one type of channel binding that is supported, as in PostgreSQL.
const END_POINT: &str = "tls-server-end-point";

/// The mechanisms that a client can select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mechanism {
    ScramSha256,
    ScramSha256Plus,
}

impl Mechanism {
    /// Names of the mechanisms in the order in which the server offers them; `-PLUS` only on a TLS connection.
    pub fn offered(tls: bool) -> &'static [&'static str] {
        if tls { &["SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"] } else { &["SCRAM-SHA-256"] }
    }

    /// The mechanism that a client has selected; it must have been offered.
    pub fn selected(name: &str, tls: bool) -> SqlResult<Mechanism> {
        match name {
            "SCRAM-SHA-256" => Ok(Mechanism::ScramSha256),
            "SCRAM-SHA-256-PLUS" if tls => Ok(Mechanism::ScramSha256Plus),
            _ => Err(SqlError::new(
                SqlState::PROTOCOL_VIOLATION,
                "client selected an invalid SASL authentication mechanism",
            )),
        }
    }
}

/// What the connection can be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding<'a> {
    /// The connection is not encrypted.
    None,
    /// The hash of the server's certificate (RFC 5929, section 4.1).
    ServerEndPoint(&'a [u8]),
}

/// The server's part of the nonce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nonce(String);

impl Nonce {
    /// A new one.
    pub fn draw() -> SqlResult<Nonce> {
        Ok(Nonce(STANDARD.encode(crate::random::<NONCE_BYTES>()?)))
    }
}

/// The result of an exchange.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The client knows the password; this is the server's last message.
    Accepted(Vec<u8>),
    /// The proof is wrong.
    Refused,
}

/// An exchange after the client's first message.
#[derive(Debug)]
pub struct Exchange {
    verifier: Verifier,
    /// No proof is accepted: the verifier is a mock.
    doomed: bool,
    mechanism: Mechanism,
    /// `client-first-message-bare,server-first-message`.
    so_far: String,
    /// Both parts.
    nonce: String,
    /// What `c=` must be, in base64.
    binding: String,
}

impl Exchange {
    /// Reads the client's first message and returns the server's. With `doomed` the outcome is [`Outcome::Refused`]
    /// whatever the proof.
    pub fn begin(
        verifier: Verifier,
        doomed: bool,
        mechanism: Mechanism,
        binding: Binding<'_>,
        nonce: Nonce,
        client_first: &[u8],
    ) -> SqlResult<(Exchange, Vec<u8>)> {
        let first = message::client_first(client_first)?;
        let bound = check_flag(first.flag, mechanism, binding)?;
        let nonce = format!("{}{}", first.nonce, nonce.0);
        let (salt, iterations) = (STANDARD.encode(&verifier.salt), verifier.iterations);
        let answer = format!("r={nonce},s={salt},i={iterations}");
        let so_far = format!("{},{answer}", first.bare);
        let binding = STANDARD.encode([first.header.as_bytes(), bound].concat());
        Ok((Exchange { verifier, doomed, mechanism, so_far, nonce, binding }, answer.into_bytes()))
    }

    /// Reads the client's final message.
    pub fn finish(self, client_final: &[u8]) -> SqlResult<Outcome> {
        let last = message::client_final(client_final)?;
        self.check_binding(last.binding)?;
        if last.nonce != self.nonce {
            return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, "invalid SCRAM response")
                .with_detail("Nonce does not match."));
        }
        let proof: Option<Key> = STANDARD.decode(last.proof).ok().and_then(|proof| proof.try_into().ok());
        let proof = proof.ok_or_else(|| malformed("Malformed proof in client-final-message."))?;
        let message = format!("{},{}", self.so_far, last.without_proof);
        let signature = hmac_sha256(&self.verifier.stored_key, message.as_bytes());
        let mut client_key = [0; KEY_BYTES];
        client_key.iter_mut().zip(proof.iter().zip(signature)).for_each(|(key, (p, s))| *key = p ^ s);
        let fits = bool::from(sha256(&client_key).ct_eq(&self.verifier.stored_key));
        // Computed in either case, so that a wrong proof takes as long as a right one.
        let ours = STANDARD.encode(hmac_sha256(&self.verifier.server_key, message.as_bytes()));
        if fits && !self.doomed {
            Ok(Outcome::Accepted(format!("v={ours}").into_bytes()))
        } else {
            Ok(Outcome::Refused)
        }
    }

    fn check_binding(&self, given: &str) -> SqlResult<()> {
        if bool::from(given.as_bytes().ct_eq(self.binding.as_bytes())) {
            return Ok(());
        }
        Err(match self.mechanism {
            Mechanism::ScramSha256Plus => {
                SqlError::new(SqlState::INVALID_AUTHORIZATION_SPECIFICATION, "SCRAM channel binding check failed")
                    .with_detail("The client has seen another certificate than the one of this server.")
            }
            Mechanism::ScramSha256 => {
                let text = "unexpected SCRAM channel-binding attribute in client-final-message";
                SqlError::new(SqlState::PROTOCOL_VIOLATION, text)
            }
        })
    }
}

/// Checks what the client says about channel binding against what it selected and what the connection has; returns what the
/// proof is bound to.
fn check_flag<'a>(flag: BindingFlag<'_>, mechanism: Mechanism, binding: Binding<'a>) -> SqlResult<&'a [u8]> {
    match (mechanism, flag) {
        (Mechanism::ScramSha256Plus, BindingFlag::None | BindingFlag::NotOffered) => Err(malformed(
            "The client selected SCRAM-SHA-256-PLUS, but the SCRAM message does not include channel binding data.",
        )),
        (Mechanism::ScramSha256, BindingFlag::Used(_)) => Err(malformed(
            "The client selected SCRAM-SHA-256 without channel binding, but the SCRAM message includes channel binding \
             data.",
        )),
        (Mechanism::ScramSha256, BindingFlag::NotOffered) if binding != Binding::None => Err(SqlError::new(
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            "SCRAM channel binding negotiation error",
        )
        .with_detail(
            "The client supports SCRAM channel binding but thinks the server does not.  However, this server does \
             support channel binding.",
        )),
        (Mechanism::ScramSha256, _) => Ok(&[]),
        (Mechanism::ScramSha256Plus, BindingFlag::Used(kind)) => match binding {
            Binding::ServerEndPoint(hash) if kind == END_POINT => Ok(hash),
            _ => Err(SqlError::new(
                SqlState::PROTOCOL_VIOLATION,
                format!("unsupported SCRAM channel-binding type \"{}\"", kind.escape_default()),
            )),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postgres_protocol::authentication::sasl::{ChannelBinding, ScramSha256};

    const SALT: &str = "W22ZaJ0SNY7soEsUEjb6gQ==";
    const FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const FINAL: &[u8] = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                           p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";

    fn pencil() -> Verifier {
        Verifier::of("pencil", &STANDARD.decode(SALT).unwrap(), 4096)
    }

    /// The nonce of RFC 7677's example.
    fn nonce() -> Nonce {
        Nonce("%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0".into())
    }

    fn begin(mechanism: Mechanism, binding: Binding<'_>, first: &[u8]) -> SqlResult<Exchange> {
        Exchange::begin(pencil(), false, mechanism, binding, nonce(), first).map(|(exchange, _)| exchange)
    }

    #[test]
    fn the_example_of_rfc_7677() {
        let plain = Mechanism::ScramSha256;
        let (exchange, answer) = Exchange::begin(pencil(), false, plain, Binding::None, nonce(), FIRST).unwrap();
        let expected = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        assert_eq!(String::from_utf8(answer).unwrap(), expected);
        let outcome = exchange.finish(FINAL).unwrap();
        assert_eq!(outcome, Outcome::Accepted(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=".to_vec()));
    }

    #[test]
    fn a_wrong_proof_and_a_doomed_exchange_are_refused() {
        let plain = Mechanism::ScramSha256;
        let wrong = String::from_utf8(FINAL.to_vec()).unwrap().replace("p=d", "p=e");
        assert_eq!(begin(plain, Binding::None, FIRST).unwrap().finish(wrong.as_bytes()), Ok(Outcome::Refused));
        let (doomed, _) = Exchange::begin(pencil(), true, plain, Binding::None, nonce(), FIRST).unwrap();
        assert_eq!(doomed.finish(FINAL), Ok(Outcome::Refused), "even with the right proof");
    }

    #[test]
    fn recorded_messages_prove_nothing_in_another_exchange() {
        let plain = Mechanism::ScramSha256;
        let fresh = Nonce::draw().unwrap();
        assert_ne!(fresh, Nonce::draw().unwrap());
        let (exchange, _) = Exchange::begin(pencil(), false, plain, Binding::None, fresh, FIRST).unwrap();
        let error = exchange.finish(FINAL).unwrap_err();
        assert_eq!((error.state().0, error.message()), ("08P01", "invalid SCRAM response"));
    }

    #[test]
    fn a_removed_offer_of_channel_binding_is_noticed() {
        let tls = Binding::ServerEndPoint(b"hash");
        let error = begin(Mechanism::ScramSha256, tls, b"y,,n=,r=abc").unwrap_err();
        assert_eq!((error.state().0, error.message()), ("28000", "SCRAM channel binding negotiation error"));
        assert!(begin(Mechanism::ScramSha256, tls, b"n,,n=,r=abc").is_ok(), "a client without channel binding");
        assert!(begin(Mechanism::ScramSha256, Binding::None, b"y,,n=,r=abc").is_ok());
        for (mechanism, first) in [
            (Mechanism::ScramSha256Plus, &b"n,,n=,r=abc"[..]),
            (Mechanism::ScramSha256Plus, b"y,,n=,r=abc"),
            (Mechanism::ScramSha256Plus, b"p=tls-unique,,n=,r=abc"),
            (Mechanism::ScramSha256, b"p=tls-server-end-point,,n=,r=abc"),
        ] {
            assert_eq!(begin(mechanism, tls, first).unwrap_err().state().0, "08P01");
        }
        assert!(
            Mechanism::selected("SCRAM-SHA-256-PLUS", false).is_err() && Mechanism::selected("PLAIN", true).is_err()
        );
    }

    #[test]
    fn a_proof_for_another_certificate_is_refused() {
        let first = b"p=tls-server-end-point,,n=,r=abc";
        let exchange = begin(Mechanism::ScramSha256Plus, Binding::ServerEndPoint(b"ours"), first).unwrap();
        let seen = STANDARD.encode(b"p=tls-server-end-point,,theirs");
        let last = format!("c={seen},r={},p=AAAA", exchange.nonce);
        let error = exchange.finish(last.as_bytes()).unwrap_err();
        assert_eq!((error.state().0, error.message()), ("28000", "SCRAM channel binding check failed"));
        let plain = begin(Mechanism::ScramSha256, Binding::None, FIRST).unwrap();
        let last = format!("c={seen},r={},p=AAAA", plain.nonce);
        assert_eq!(plain.finish(last.as_bytes()).unwrap_err().state().0, "08P01");
    }

    /// The client of tokio-postgres, another implementation, against this server.
    #[test]
    fn another_implementation_of_the_client() {
        for (password, given, accepted) in
            [("pencil", "pencil", true), ("pencil", "Pencil", false), ("I\u{ad}X", "IX", true), ("\u{ff21}", "A", true)]
        {
            for tls in [None, Some(b"hash of the certificate".to_vec())] {
                let verifier = Verifier::parse(&crate::verifier(password).unwrap()).unwrap();
                let (mechanism, binding, theirs) = match &tls {
                    None => (Mechanism::ScramSha256, Binding::None, ChannelBinding::unsupported()),
                    Some(hash) => (
                        Mechanism::ScramSha256Plus,
                        Binding::ServerEndPoint(hash),
                        ChannelBinding::tls_server_end_point(hash.clone()),
                    ),
                };
                let mut client = ScramSha256::new(given.as_bytes(), theirs);
                let nonce = Nonce::draw().unwrap();
                let (exchange, answer) =
                    Exchange::begin(verifier, false, mechanism, binding, nonce, client.message()).unwrap();
                client.update(&answer).unwrap();
                match exchange.finish(client.message()).unwrap() {
                    Outcome::Accepted(last) => {
                        assert!(accepted, "{password:?} {given:?}");
                        client.finish(&last).unwrap();
                    }
                    Outcome::Refused => assert!(!accepted, "{password:?} {given:?}"),
                }
            }
        }
    }
}
