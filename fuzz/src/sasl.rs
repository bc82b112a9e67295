//! Messages of a client that authenticates: the first response, and both messages of SCRAM, with and without channel binding.
//! The input is the messages, separated by zero bytes; no input proves the password.

use holdfast_scram::{Binding, Exchange, Mechanism, Nonce, Outcome, Verifier};
use holdfast_wire::initial_response;

pub fn run(data: &[u8]) {
    drop(initial_response(data));
    let mut parts = data.split(|byte| *byte == 0);
    let (first, last) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if let Ok(text) = std::str::from_utf8(first) {
        // A text that is a verifier is written again as one.
        let again = Verifier::parse(text).map(|verifier| verifier.to_string());
        assert!(again.is_none_or(|again| Verifier::parse(&again).is_some()));
    }
    for mechanism in [Mechanism::ScramSha256, Mechanism::ScramSha256Plus] {
        for binding in [Binding::None, Binding::ServerEndPoint(b"hash")] {
            let Ok(nonce) = Nonce::draw() else { return };
            let verifier = Verifier::mock("ann", &[1; 32]);
            let Ok((exchange, answer)) = Exchange::begin(verifier, false, mechanism, binding, nonce, first) else {
                continue;
            };
            assert!(answer.starts_with(b"r="));
            assert!(!matches!(exchange.finish(last), Ok(Outcome::Accepted(_))), "a proof out of nothing");
        }
    }
}
