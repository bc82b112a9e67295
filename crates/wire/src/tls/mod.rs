//! TLS of clients' connections: the files, the configuration made from them, and the slot that holds the one in force.
//!
//! | file (PEM) | what |
//! |---|---|
//! | certificate | the server's certificate, and any between it and its CA |
//! | key | its private key; PostgreSQL's rule for its permissions holds |
//! | client CA | with it clients are asked for certificates; one that is sent is verified |
//! | CRL | revoked certificates of that CA |
//!
//! TLS 1.2 and 1.3 by rustls with ring. There are no session tickets, as in PostgreSQL: each connection shows its
//! certificates.
//!
//! How it fails: a file that is missing, wrong or readable by others is an error that names it; a reload that fails leaves
//! the configuration in force.

pub mod authority;
mod certificate;
mod cipher;
mod der;
mod files;

pub use certificate::CertificateText;
pub use der::DerError;
pub use files::{TlsError, TlsFiles, certificates_in};

use crate::peer::TlsSession;
use certificate::{client_certificate, end_point_hash};
use parking_lot::RwLock;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ConfigBuilder, ServerConfig, ServerConnection, WantsVerifier};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The name of PostgreSQL's protocol in TLS.
pub const ALPN: &[u8] = b"postgresql";

/// The lowest version of TLS that is accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVersion {
    #[default]
    V12,
    V13,
}

impl TlsVersion {
    /// As PostgreSQL writes it.
    pub fn name(self) -> &'static str {
        match self {
            TlsVersion::V12 => "TLSv1.2",
            TlsVersion::V13 => "TLSv1.3",
        }
    }
}

/// What a listening server needs for TLS.
#[derive(Debug)]
pub struct TlsConfig {
    pub(crate) rustls: Arc<ServerConfig>,
    /// For HTTP with the same certificate: browsers are not asked for certificates.
    pub http: Arc<ServerConfig>,
    /// The certificate's hash for channel binding; empty where its signature has none.
    server_end_point: Vec<u8>,
    /// What the server's certificate says.
    pub certificate: CertificateText,
    /// Whether clients are asked for certificates.
    pub asks_for_certificates: bool,
}

impl TlsConfig {
    /// Reads the files.
    pub fn load(files: &TlsFiles) -> Result<TlsConfig, TlsError> {
        let certificates = files.certificates()?;
        let own = certificates.first().ok_or_else(|| files.no_certificate())?;
        let certificate = CertificateText::parse(own).map_err(|error| files.unreadable(error))?;
        let server_end_point = end_point_hash(own).map_err(|error| files.unreadable(error))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let versions: &[_] = match files.min_version {
            TlsVersion::V12 => &[&rustls::version::TLS13, &rustls::version::TLS12],
            TlsVersion::V13 => &[&rustls::version::TLS13],
        };
        let builder = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(versions);
        let builder = builder.map_err(|error| files.do_not_fit(&error))?;
        let roots = files.client_roots()?;
        let asks_for_certificates = roots.is_some();
        let http = http_config(builder.clone(), certificates.clone(), files.key()?);
        let http = Arc::new(http.map_err(|error| files.do_not_fit(&error))?);
        let builder = match roots {
            None => builder.with_no_client_auth(),
            Some(roots) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .with_crls(files.revoked()?)
                    .enforce_revocation_expiration()
                    .allow_unauthenticated()
                    .build()
                    .map_err(|error| files.do_not_fit(&error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut rustls =
            builder.with_single_cert(certificates, files.key()?).map_err(|error| files.do_not_fit(&error))?;
        rustls.alpn_protocols = vec![ALPN.to_vec()];
        rustls.session_storage = Arc::new(NoServerSessionStorage {});
        rustls.send_tls13_tickets = 0;
        Ok(TlsConfig { rustls: Arc::new(rustls), http, server_end_point, certificate, asks_for_certificates })
    }

    /// The time until the certificate expires; zero when it has.
    pub fn expires_in(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let left = self.certificate.not_after_unix_s.saturating_sub_unsigned(now);
        Duration::from_secs(u64::try_from(left).unwrap_or(0))
    }

    /// What a finished handshake has established.
    pub(crate) fn session(&self, connection: &ServerConnection) -> Result<TlsSession, DerError> {
        let (version, cipher, bits) = cipher::of(connection);
        let shown = connection.peer_certificates().and_then(<[_]>::first);
        let client_certificate = shown.map(|certificate| client_certificate(certificate)).transpose()?;
        let server_end_point = self.server_end_point.clone();
        Ok(TlsSession { version, cipher, bits, server_end_point, client_certificate })
    }
}

fn http_config(
    builder: ConfigBuilder<ServerConfig, WantsVerifier>,
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let mut config = builder.with_no_client_auth().with_single_cert(certificates, key)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// The TLS configuration in force, shared by every connection that begins. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct TlsSlot(Arc<RwLock<Option<Arc<TlsConfig>>>>);

impl TlsSlot {
    /// A slot without TLS: SSLRequest is answered `N`.
    pub fn none() -> TlsSlot {
        TlsSlot::default()
    }

    pub fn new(config: TlsConfig) -> TlsSlot {
        TlsSlot(Arc::new(RwLock::new(Some(Arc::new(config)))))
    }

    pub fn get(&self) -> Option<Arc<TlsConfig>> {
        self.0.read().clone()
    }

    /// From now on connections begin with this configuration; those that are open stay.
    pub fn set(&self, config: Option<TlsConfig>) {
        *self.0.write() = config.map(Arc::new);
    }
}
