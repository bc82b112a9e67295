//! Asks a client for a proof of its identity: the messages of SASL, between the start-up packet and AuthenticationOk.
//!
//! | message | body |
//! |---|---|
//! | AuthenticationSASL `R` 10 | the mechanisms, each ended by a zero byte, then a zero byte |
//! | SASLInitialResponse `p` | mechanism, ended by a zero byte; length of the response, -1 for none; the response |
//! | AuthenticationSASLContinue `R` 11, SASLResponse `p`, AuthenticationSASLFinal `R` 12 | a message of SCRAM |
//!
//! What is asked for is the session factory's decision: it gets a [`Prover`]. The caller limits the time.
//!
//! How it fails: [`Unproven::Lost`] where the client disconnects, as psql does to ask its user for the password; otherwise an
//! error, after which the connection is closed.

use crate::backend;
use crate::client::{Client, Lost, Wake};
use crate::frontend::{Fields, Malformed};
use crate::peer::TlsSession;
use holdfast_scram::{Binding, Exchange, MESSAGE_BYTES_MAX, Mechanism, Nonce, Outcome, Verifier};
use holdfast_types::{SqlError, SqlState};
use std::sync::Arc;

/// Why a client is not admitted.
#[derive(Debug)]
pub enum Unproven {
    /// The client has disconnected.
    Lost,
    Refused(SqlError),
}

impl From<Lost> for Unproven {
    fn from(_: Lost) -> Unproven {
        Unproven::Lost
    }
}

impl From<SqlError> for Unproven {
    fn from(error: SqlError) -> Unproven {
        Unproven::Refused(error)
    }
}

impl From<Malformed> for Unproven {
    fn from(malformed: Malformed) -> Unproven {
        SqlError::new(SqlState::PROTOCOL_VIOLATION, malformed.0).into()
    }
}

/// Lets a session factory ask the client for a proof.
pub struct Prover<'a> {
    client: &'a mut Client,
    tls: Option<Arc<TlsSession>>,
}

impl<'a> Prover<'a> {
    pub(crate) fn new(client: &'a mut Client, tls: Option<Arc<TlsSession>>) -> Prover<'a> {
        Prover { client, tls }
    }

    /// Asks for the proof that the client knows a password, by SCRAM-SHA-256. `false`: the proof is wrong, or `doomed` is set.
    pub async fn scram(&mut self, verifier: Verifier, doomed: bool) -> Result<bool, Unproven> {
        let hash = self.tls.as_ref().map(|tls| tls.server_end_point.clone()).filter(|hash| !hash.is_empty());
        let binding = hash.as_deref().map_or(Binding::None, Binding::ServerEndPoint);
        backend::authentication_sasl(self.client.reply().out(), Mechanism::offered(hash.is_some()));
        let (mechanism, response) = initial_response(&self.message().await?)?;
        let mechanism = Mechanism::selected(&mechanism, hash.is_some())?;
        let first = match response {
            Some(first) => first,
            None => {
                backend::authentication_sasl_continue(self.client.reply().out(), Vec::new());
                self.message().await?
            }
        };
        let (exchange, answer) = Exchange::begin(verifier, doomed, mechanism, binding, Nonce::draw()?, &first)?;
        backend::authentication_sasl_continue(self.client.reply().out(), answer);
        match exchange.finish(&self.message().await?)? {
            Outcome::Refused => Ok(false),
            Outcome::Accepted(answer) => {
                // It leaves with the AuthenticationOk, or with the error that the session does not open.
                backend::authentication_sasl_final(self.client.reply().out(), answer);
                Ok(true)
            }
        }
    }

    /// Sends what was asked, and waits for the body of the client's answer.
    async fn message(&mut self) -> Result<Vec<u8>, Unproven> {
        self.client.flush().await?;
        loop {
            if let Some((kind, bytes)) = self.client.next_message()? {
                if kind != b'p' {
                    let text = format!("expected SASL response, got message type {kind}");
                    return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, text).into());
                }
                if bytes > MESSAGE_BYTES_MAX {
                    let text = format!("SASL message has {bytes} bytes; the limit is {MESSAGE_BYTES_MAX}");
                    return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, text).into());
                }
                let body = self.client.body(bytes).to_vec();
                self.client.consume(bytes);
                return Ok(body);
            }
            match self.client.fill(None).await? {
                Wake::Input => {}
                Wake::Stop | Wake::TimedOut | Wake::Terminate => return Err(SqlError::shutting_down().into()),
            }
        }
    }
}

/// Reads a SASLInitialResponse: the mechanism, and the response where the client has sent one.
pub fn initial_response(body: &[u8]) -> Result<(String, Option<Vec<u8>>), Malformed> {
    let mut fields = Fields::new(body);
    let mechanism = fields.text()?.to_owned();
    let response = match fields.i32()? {
        -1 => None,
        n => {
            let bytes = usize::try_from(n).map_err(|_| Malformed(format!("invalid length {n} of a SASL response")))?;
            Some(fields.bytes(bytes)?.to_vec())
        }
    };
    fields.end()?;
    Ok((mechanism, response))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_responses() {
        let read = |body: &[u8]| initial_response(body);
        assert_eq!(read(b"SCRAM\0\0\0\0\x03abc").unwrap(), ("SCRAM".into(), Some(b"abc".to_vec())));
        assert_eq!(read(b"SCRAM\0\xff\xff\xff\xff").unwrap(), ("SCRAM".into(), None));
        assert_eq!(read(b"\0\0\0\0\0").unwrap(), (String::new(), Some(Vec::new())));
        for bad in [
            &b""[..],
            b"SCRAM",
            b"SCRAM\0",
            b"SCRAM\0\0\0\0\x04abc",
            b"SCRAM\0\0\0\0\x02abc",
            b"SCRAM\0\xff\xff\xff\xfe",
            b"SCRAM\0\x7f\xff\xff\xff",
            b"SCRAM\0\xff\xff\xff\xffx",
            b"\xff\0\0\0\0\0",
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
