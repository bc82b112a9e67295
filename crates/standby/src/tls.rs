//! Encryption between nodes: TLS 1.3 with certificates of both sides, both signed by the operator's own authority.
//!
//! A certificate without that authority's signature is refused in the handshake, before the link protocol begins. The
//! name of a node's certificate is checked by the side that connects, against the host it connects to.
//!
//! The name and role in the other side's certificate ([`holder`]) decide what it may do: see [`crate::link_server::Peer`].
//!
//! How it fails: the error names a file that is missing, empty or not PEM, and what it must contain.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use x509_certificate::X509Certificate;

use crate::cert::CertificateRole;
use crate::link_server::Holder;

/// The files that a node needs, all in PEM.
#[derive(Clone, Debug)]
pub struct NodeFiles {
    /// The authority's certificate.
    pub authority: PathBuf,
    /// This node's certificate, and any between it and the authority.
    pub certificate: PathBuf,
    /// The key of the certificate.
    pub key: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error(
        "{} cannot be used as {what}: {source}. Create the files with: holdfast cert", .path.display()
    )]
    File { path: PathBuf, what: &'static str, source: rustls::pki_types::pem::Error },
    #[error("{} contains no certificate. Create the files with: holdfast cert", .path.display())]
    Empty { path: PathBuf },
    #[error(
        "{}, {} and {} are not a valid identity of a node: {what}. Create them with: holdfast cert",
        .files.authority.display(), .files.certificate.display(), .files.key.display()
    )]
    Identity { files: Box<NodeFiles>, what: String },
    #[error("{host:?} is not a host name or address: {source}")]
    Host { host: String, source: InvalidDnsNameError },
    #[error("the other side's certificate {0}. Create it with: holdfast cert")]
    Holder(String),
}

/// The holder of the other side's certificate after a finished handshake; `certificates` is what rustls returns.
pub fn holder(certificates: Option<&[CertificateDer<'_>]>) -> Result<Holder, TlsError> {
    let wrong = |why: &str| TlsError::Holder(why.to_owned());
    let certificate = certificates.and_then(<[_]>::first).ok_or_else(|| wrong("was not sent"))?;
    let certificate =
        X509Certificate::from_der(certificate).map_err(|error| wrong(&format!("cannot be read: {error}")))?;
    let name = certificate.subject_common_name().ok_or_else(|| wrong("does not have a name"))?;
    let mut units = certificate.subject_name().iter_organizational_unit();
    let role = units.find_map(|unit| CertificateRole::parse(&unit.to_string().ok()?));
    Ok(Holder { name, role: role.ok_or_else(|| wrong("does not have a role"))? })
}

/// The configuration of the listening side.
pub fn server_config(files: &NodeFiles) -> Result<Arc<ServerConfig>, TlsError> {
    let wrong = |what: String| TlsError::Identity { files: Box::new(files.clone()), what };
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authority(files)?), provider())
        .build()
        .map_err(|error| wrong(error.to_string()))?;
    let (certificates, key) = identity(files)?;
    ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| builder.with_client_cert_verifier(verifier).with_single_cert(certificates, key))
        .map(Arc::new)
        .map_err(|error| wrong(error.to_string()))
}

/// The configuration of the connecting side.
pub fn client_config(files: &NodeFiles) -> Result<Arc<ClientConfig>, TlsError> {
    let wrong = |error: rustls::Error| TlsError::Identity { files: Box::new(files.clone()), what: error.to_string() };
    let (certificates, key) = identity(files)?;
    let authority = authority(files)?;
    ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|builder| builder.with_root_certificates(authority).with_client_auth_cert(certificates, key))
        .map(Arc::new)
        .map_err(wrong)
}

/// The host whose certificate is expected.
pub fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(host.to_owned()).map_err(|source| TlsError::Host { host: host.to_owned(), source })
}

/// The set of algorithms for links, independent of what else the process has installed.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn authority(files: &NodeFiles) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(&files.authority, "an authority's certificate")? {
        let what =
            |error: rustls::Error| TlsError::Identity { files: Box::new(files.clone()), what: error.to_string() };
        roots.add(certificate).map_err(what)?;
    }
    Ok(roots)
}

fn identity(files: &NodeFiles) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
    let certificates = certificates(&files.certificate, "a node's certificate")?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|source| TlsError::File {
        path: files.key.clone(),
        what: "a node's key",
        source,
    })?;
    Ok((certificates, key))
}

fn certificates(path: &Path, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |source| TlsError::File { path: path.to_owned(), what, source };
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(wrong)?.collect();
    let found = found.map_err(wrong)?;
    if found.is_empty() { Err(TlsError::Empty { path: path.to_owned() }) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cert::{Authority, NodeCertificate};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    fn write(dir: &Path, authority: &Authority, node: &NodeCertificate) -> NodeFiles {
        let name = |end: &str| dir.join(format!("{}.{end}", node.name));
        let files = NodeFiles { authority: name("authority"), certificate: name("crt"), key: name("key") };
        std::fs::write(&files.authority, authority.certificate_pem()).unwrap();
        std::fs::write(&files.certificate, &node.certificate_pem).unwrap();
        std::fs::write(&files.key, &node.key_pem).unwrap();
        files
    }

    /// Runs the handshake of both sides and sends a byte in each direction.
    async fn talk(server: Arc<ServerConfig>, client: Arc<ClientConfig>, host: &str) -> Result<(), String> {
        let (near, far) = tokio::io::duplex(64 << 10);
        let text = |error: std::io::Error| error.to_string();
        let listening = async {
            let mut stream = TlsAcceptor::from(server).accept(far).await.map_err(text)?;
            let holder = holder(stream.get_ref().1.peer_certificates()).unwrap();
            assert_eq!(holder, Holder { name: "b".to_owned(), role: CertificateRole::Node });
            let byte = stream.read_u8().await.map_err(text)?;
            stream.write_u8(byte + 1).await.map_err(text)?;
            stream.flush().await.map_err(text)
        };
        let connecting = async {
            let mut stream =
                TlsConnector::from(client).connect(server_name(host).unwrap(), near).await.map_err(text)?;
            stream.write_u8(7).await.map_err(text)?;
            stream.flush().await.map_err(text)?;
            let byte = stream.read_u8().await.map_err(text)?;
            assert_eq!(byte, 8);
            Ok(())
        };
        let (listened, connected): (Result<(), String>, Result<(), String>) = tokio::join!(listening, connecting);
        listened.and(connected)
    }

    #[tokio::test]
    async fn both_sides_need_a_certificate_of_the_same_authority() {
        let dir = tempfile::tempdir().unwrap();
        let (ours, theirs) = (Authority::new().unwrap(), Authority::new().unwrap());
        let a = write(
            dir.path(),
            &ours,
            &ours.issue("a", CertificateRole::Node, &["a.example".into(), "127.0.0.1".into()]).unwrap(),
        );
        let b = write(dir.path(), &ours, &ours.issue("b", CertificateRole::Node, &["b.example".into()]).unwrap());
        let x = write(dir.path(), &theirs, &theirs.issue("x", CertificateRole::Node, &["a.example".into()]).unwrap());
        let (server, client) = (server_config(&a).unwrap(), client_config(&b).unwrap());
        assert_eq!(talk(server.clone(), client.clone(), "a.example").await, Ok(()));
        assert_eq!(talk(server.clone(), client.clone(), "127.0.0.1").await, Ok(()));
        assert!(talk(server.clone(), client.clone(), "c.example").await.is_err(), "another name");
        assert!(talk(server_config(&x).unwrap(), client, "a.example").await.is_err(), "a foreign server");
        // A client of another authority that trusts this server.
        let stranger = NodeFiles { authority: a.authority.clone(), ..x.clone() };
        assert!(talk(server.clone(), client_config(&stranger).unwrap(), "a.example").await.is_err());
        // A client without a certificate.
        let silent = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(authority(&a).unwrap())
            .with_no_client_auth();
        assert!(talk(server, Arc::new(silent), "a.example").await.is_err());
    }

    #[test]
    fn files_that_do_not_fit_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let authority = Authority::new().unwrap();
        let a = write(dir.path(), &authority, &authority.issue("a", CertificateRole::Node, &["a".into()]).unwrap());
        let b = write(dir.path(), &authority, &authority.issue("b", CertificateRole::Node, &["b".into()]).unwrap());
        let missing = NodeFiles { key: dir.path().join("none"), ..a.clone() };
        assert!(server_config(&missing).unwrap_err().to_string().contains("none"));
        let no_pem = NodeFiles { certificate: a.key.clone(), ..a.clone() };
        assert!(matches!(server_config(&no_pem), Err(TlsError::Empty { .. })));
        let others = NodeFiles { key: b.key, ..a };
        assert!(matches!(client_config(&others), Err(TlsError::Identity { .. })));
    }
}
