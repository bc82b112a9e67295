//! What every request meets first: the Host that it names, and the headers of its answer.
//!
//! | attack | what is done |
//! |---|---|
//! | a page of the Internet whose name leads to 127.0.0.1 (DNS rebinding) | without TLS only Host: localhost or an address is answered, with 421 otherwise |
//! | a page that frames the console, or sends requests in its operator's name | CSP, X-Frame-Options, SameSite=Strict, a token in each action, Origin |
//! | script in a name or a statement | the console sets text only; CSP allows scripts of this server only |
//! | guessing the token | it is compared in constant time |
//!
//! Load balancers send any Host, or none: the health endpoints tell nothing secret and answer all.

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::uri::Authority;
use axum::response::Response;
use ring::hmac;
use std::net::IpAddr;

/// Sent with every answer.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Adds the headers that every answer has.
pub fn harden(response: &mut Response) {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
}

/// Whether the request names this machine in a way that only a client on purpose does: by address, or as localhost.
pub fn names_this_machine(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let Some(authority) = host.to_str().ok().and_then(|text| text.parse::<Authority>().ok()) else { return false };
    let name = authority.host().trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

/// Whether the request comes from a page of this server, as far as the browser tells: other programs tell nothing.
pub fn is_own_page(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let from_here = match (text("origin"), text("host")) {
        (None, _) => true,
        (Some(origin), host) => origin.split_once("://").map(|(_, authority)| authority) == host,
    };
    from_here && matches!(text("sec-fetch-site"), None | Some("same-origin" | "none"))
}

/// Compares secrets without telling by the time how much of them is equal.
pub struct Secret {
    key: hmac::Key,
    tag: hmac::Tag,
}

impl Secret {
    /// `None`: the system has no random numbers.
    pub fn new(secret: &str) -> Option<Secret> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &ring::rand::SystemRandom::new()).ok()?;
        let tag = hmac::sign(&key, secret.as_bytes());
        Some(Secret { key, tag })
    }

    /// Whether `given` is the secret.
    pub fn is(&self, given: &str) -> bool {
        hmac::verify(&self.key, given.as_bytes(), self.tag.as_ref()).is_ok()
    }

    /// Whether the request has it as its bearer token.
    pub fn is_borne(&self, headers: &HeaderMap) -> bool {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = given.and_then(|text| text.split_once(' ')).filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer"));
        token.is_some_and(|(_, token)| self.is(token.trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(list: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        list.iter().map(pair).collect()
    }

    #[test]
    fn only_this_machine_is_named() {
        for host in ["localhost", "LOCALHOST:8008", "127.0.0.1:8008", "[::1]:8008", "10.0.0.7"] {
            assert!(names_this_machine(&headers(&[("host", host)])), "{host}");
        }
        for host in
            ["evil.example:8008", "localhost.evil.example", "127.0.0.1.nip.io", "", "a b", "[::1", "localhost@evil"]
        {
            assert!(!names_this_machine(&headers(&[("host", host)])), "{host}");
        }
        assert!(!names_this_machine(&HeaderMap::new()));
        let mut two = headers(&[("host", "localhost")]);
        two.append("host", HeaderValue::from_static("localhost"));
        assert!(!names_this_machine(&two));
    }

    #[test]
    fn a_foreign_page_is_recognised() {
        let own = |list: &[(&'static str, &str)]| is_own_page(&headers(list));
        assert!(own(&[("host", "localhost:1")]) && own(&[("host", "a:1"), ("origin", "http://a:1")]));
        assert!(own(&[("host", "a:1"), ("origin", "https://a:1"), ("sec-fetch-site", "same-origin")]));
        assert!(!own(&[("host", "a:1"), ("origin", "http://a:2")]) && !own(&[("host", "a:1"), ("origin", "null")]));
        assert!(!own(&[("host", "a:1"), ("sec-fetch-site", "cross-site")]) && !own(&[("origin", "http://a")]));
    }

    #[test]
    fn a_token_is_borne() {
        let secret = Secret::new("s3cret").unwrap();
        let borne = |value: &str| secret.is_borne(&headers(&[("authorization", value)]));
        assert!(borne("Bearer s3cret") && borne("bearer  s3cret "));
        for wrong in ["Bearer s3cre", "Bearer s3cret1", "Basic s3cret", "s3cret", "Bearer", "Bearer "] {
            assert!(!borne(wrong), "{wrong}");
        }
        assert!(!secret.is_borne(&HeaderMap::new()));
    }
}
