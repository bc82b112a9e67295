//! Names of cipher suites as OpenSSL has them, which `pg_stat_ssl` and clients show.

use rustls::CipherSuite as Suite;
use rustls::{ProtocolVersion, ServerConnection};

/// Version, cipher and key length of a finished handshake.
pub(super) fn of(connection: &ServerConnection) -> (&'static str, &'static str, u16) {
    let version = match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
        Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
        _ => "unknown",
    };
    let suite = connection.negotiated_cipher_suite().map(|suite| suite.suite());
    let (cipher, bits) = suite.map_or(("unknown", 0), name);
    (version, cipher, bits)
}

/// The cipher suites of rustls with ring.
fn name(suite: Suite) -> (&'static str, u16) {
    match suite {
        Suite::TLS13_AES_256_GCM_SHA384 => ("TLS_AES_256_GCM_SHA384", 256),
        Suite::TLS13_AES_128_GCM_SHA256 => ("TLS_AES_128_GCM_SHA256", 128),
        Suite::TLS13_CHACHA20_POLY1305_SHA256 => ("TLS_CHACHA20_POLY1305_SHA256", 256),
        Suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 => ("ECDHE-ECDSA-AES256-GCM-SHA384", 256),
        Suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 => ("ECDHE-ECDSA-AES128-GCM-SHA256", 128),
        Suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 => ("ECDHE-ECDSA-CHACHA20-POLY1305", 256),
        Suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => ("ECDHE-RSA-AES256-GCM-SHA384", 256),
        Suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => ("ECDHE-RSA-AES128-GCM-SHA256", 128),
        Suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => ("ECDHE-RSA-CHACHA20-POLY1305", 256),
        _ => ("unknown", 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cipher_suite_has_a_name() {
        for suite in rustls::crypto::ring::ALL_CIPHER_SUITES {
            assert_ne!(name(suite.suite()).0, "unknown", "{suite:?}");
        }
    }
}
