//! Reads the files of TLS and says which one is wrong.

use super::{DerError, TlsVersion};
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use std::fmt::Display;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where TLS's files are, all in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, and any between it and its CA.
    pub certificate: PathBuf,
    pub key: PathBuf,
    /// The CA that signs clients' certificates; without it clients are not asked for one.
    pub client_ca: Option<PathBuf>,
    /// Revoked certificates of that CA.
    pub crl: Option<PathBuf>,
    pub min_version: TlsVersion,
}

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("cannot read {what} {}: {source}", path.display())]
    Read { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{} is not {what} in PEM: {why}", path.display())]
    Content { what: &'static str, path: PathBuf, why: String },
    #[error(
        "private key file \"{}\" has group or world access; file must have permissions u=rw (0600) or less if owned by the \
         user that runs the server, or permissions u=rw,g=r (0640) or less if owned by root: chmod 600 {}",
        path.display(), path.display()
    )]
    KeyIsReadable { path: PathBuf },
    #[error("private key file \"{}\" must be owned by the user that runs the server (uid {own}) or by root, not by uid {owner}", path.display())]
    KeyOwner { path: PathBuf, owner: u32, own: u32 },
    #[error("private key file \"{}\" is not a regular file", path.display())]
    KeyKind { path: PathBuf },
    #[error("{} and {} cannot be used for TLS: {why}", certificate.display(), key.display())]
    DoNotFit { certificate: PathBuf, key: PathBuf, why: String },
}

const CERTIFICATE: &str = "a certificate";
const AUTHORITY: &str = "a CA's certificate";

impl TlsFiles {
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        certificates(&self.certificate, CERTIFICATE)
    }

    pub(super) fn no_certificate(&self) -> TlsError {
        content(CERTIFICATE, &self.certificate, "it contains none")
    }

    pub(super) fn unreadable(&self, error: DerError) -> TlsError {
        content(CERTIFICATE, &self.certificate, error)
    }

    pub(super) fn do_not_fit(&self, why: &dyn Display) -> TlsError {
        let (certificate, key) = (self.certificate.clone(), self.key.clone());
        TlsError::DoNotFit { certificate, key, why: why.to_string() }
    }

    pub(super) fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        const KEY: &str = "a private key";
        let path = &self.key;
        let metadata = std::fs::metadata(path).map_err(|source| unreadable(KEY, path, source))?;
        check_key(path, &metadata)?;
        let text = read(KEY, path)?;
        PrivateKeyDer::from_pem_slice(&text).map_err(|error| match text.windows(9).any(|word| word == b"ENCRYPTED") {
            true => content(
                KEY,
                path,
                "it is encrypted with a passphrase; write it without one: openssl pkey -in KEY -out NEW",
            ),
            false => content(KEY, path, pem_text(&error)),
        })
    }

    /// The CA of clients' certificates.
    pub(super) fn client_roots(&self) -> Result<Option<RootCertStore>, TlsError> {
        let Some(path) = &self.client_ca else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path, AUTHORITY)? {
            roots.add(certificate).map_err(|error| content(AUTHORITY, path, error))?;
        }
        if roots.is_empty() { Err(content(AUTHORITY, path, "it contains none")) } else { Ok(Some(roots)) }
    }

    pub(super) fn revoked(&self) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
        const CRL: &str = "a list of revoked certificates";
        let Some(path) = &self.crl else { return Ok(Vec::new()) };
        let text = read(CRL, path)?;
        let lists: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(&text).collect();
        let lists = lists.map_err(|error| content(CRL, path, pem_text(&error)))?;
        if lists.is_empty() { Err(content(CRL, path, "it contains none")) } else { Ok(lists) }
    }
}

/// The certificates in a file, in DER.
pub fn certificates_in(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    certificates(path, CERTIFICATE)
}

/// PostgreSQL's rule: the key is the server's own or root's, and no other user can read it.
fn check_key(path: &Path, metadata: &std::fs::Metadata) -> Result<(), TlsError> {
    let path = path.to_owned();
    if !metadata.is_file() {
        return Err(TlsError::KeyKind { path });
    }
    let (owner, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != own && owner != 0 {
        return Err(TlsError::KeyOwner { path, owner, own });
    }
    let others = if owner == own { 0o077 } else { 0o027 };
    if metadata.mode() & others != 0 { Err(TlsError::KeyIsReadable { path }) } else { Ok(()) }
}

fn certificates(path: &Path, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(what, path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    found.map_err(|error| content(what, path, pem_text(&error)))
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| unreadable(what, path, source))
}

fn unreadable(what: &'static str, path: &Path, source: io::Error) -> TlsError {
    TlsError::Read { what, path: path.to_owned(), source }
}

fn content(what: &'static str, path: &Path, why: impl ToString) -> TlsError {
    TlsError::Content { what, path: path.to_owned(), why: why.to_string() }
}

fn pem_text(error: &pem::Error) -> String {
    match error {
        pem::Error::NoItemsFound => "it contains none".to_owned(),
        other => other.to_string(),
    }
}
