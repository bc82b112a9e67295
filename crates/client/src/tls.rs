//! TLS as libpq's `sslmode` says it.
//!
//! Failure: a certificate that is not accepted ends the connection, with the reason.

use crate::server::ClientError;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

/// `sslmode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        Ok(match text {
            "disable" => Mode::Disable,
            "allow" | "prefer" => Mode::Prefer,
            "require" => Mode::Require,
            "verify-ca" => Mode::VerifyCa,
            "verify-full" => Mode::VerifyFull,
            other => {
                let known = "disable, allow, prefer, require, verify-ca and verify-full are";
                return Err(format!("the sslmode {other:?} is not known; {known}"));
            }
        })
    }
}

impl Mode {
    /// How far the client library has to know it; certificates are judged here.
    pub fn libpq(self) -> SslMode {
        match self {
            Mode::Disable => SslMode::Disable,
            Mode::Prefer => SslMode::Prefer,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => SslMode::Require,
        }
    }
}

/// What is set about TLS.
#[derive(Clone, Debug, Default)]
pub struct Tls {
    pub mode: Option<Mode>,
    /// `sslrootcert`
    pub authority: Option<PathBuf>,
    /// `sslcert` and `sslkey`: the client's own.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

impl Tls {
    /// The mode that counts, see the table in [`crate`].
    pub fn resolved(&self, is_socket: bool, is_here: bool) -> Result<Mode, String> {
        let has_authority = self.authority.is_some();
        let mode = match self.mode {
            _ if is_socket => return Ok(Mode::Disable),
            None if has_authority => Mode::VerifyFull,
            None => Mode::Prefer,
            Some(Mode::Require) if has_authority => Mode::VerifyCa,
            Some(mode) => mode,
        };
        match mode {
            Mode::Disable | Mode::Prefer if !is_here => {
                Err("the server is on another machine, and passwords and rows do not leave this one in plain text: set \
                     sslmode=verify-full and name the authority of its certificate, by --ca holdfast-data/tls/ca.crt, PGSSLROOTCERT, \
                     or sslrootcert in a URL"
                    .to_owned())
            }
            Mode::VerifyCa | Mode::VerifyFull if !has_authority => {
                Err("sslmode verify-ca and verify-full need the authority of the server's certificate: name it by --ca, \
                     PGSSLROOTCERT, or sslrootcert in a URL"
                    .to_owned())
            }
            mode => Ok(mode),
        }
    }
}

/// What makes TLS connections.
pub fn connector(mode: Mode, tls: &Tls) -> Result<MakeRustlsConnect, ClientError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Verifier { authority: None, checks_host: mode == Mode::VerifyFull, provider: provider.clone() };
    let verifier = match (&tls.authority, mode) {
        (Some(authority), Mode::VerifyCa | Mode::VerifyFull) => {
            let failed = file_error(authority);
            let roots = Arc::new(roots(authority)?);
            let checked = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
            Verifier { authority: Some(checked.map_err(|error| failed(error.to_string()))?), ..verifier }
        }
        _ => verifier,
    };
    let none = Path::new("the settings of TLS");
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| file_error(none)(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let config = match (&tls.certificate, &tls.key) {
        (Some(certificate), Some(key)) => {
            let chain = certificates(certificate)?;
            let own = PrivateKeyDer::from_pem_file(key).map_err(|error| file_error(key)(error.to_string()))?;
            builder.with_client_auth_cert(chain, own).map_err(|error| file_error(certificate)(error.to_string()))?
        }
        (None, None) => builder.with_no_client_auth(),
        (Some(one), None) | (None, Some(one)) => {
            return Err(file_error(one)("sslcert and sslkey belong together: name both".to_owned()));
        }
    };
    Ok(MakeRustlsConnect::new(config))
}

fn file_error(path: &Path) -> impl Fn(String) -> ClientError + '_ {
    move |what| ClientError::File { path: path.display().to_string(), what }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ClientError> {
    let failed = file_error(path);
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| failed(error.to_string()))?;
    match read.is_empty() {
        true => Err(failed("it has no certificate in the PEM format".to_owned())),
        false => Ok(read),
    }
}

fn roots(path: &Path) -> Result<RootCertStore, ClientError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| file_error(path)(error.to_string()))?;
    }
    Ok(roots)
}

/// Judges the server's certificate as `sslmode` says. That the server has the certificate's key is checked in any case.
#[derive(Debug)]
struct Verifier {
    /// `None`: any certificate.
    authority: Option<Arc<WebPkiServerVerifier>>,
    checks_host: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authority) = &self.authority else { return Ok(ServerCertVerified::assertion()) };
        match authority.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now) {
            // The name is looked at last: everything else is right.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.checks_host => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
