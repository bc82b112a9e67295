//! A certificate authority for clients' connections: `holdfast cert` makes the server's certificate and those of roles with it.
//!
//! It is another authority than that of the nodes: a client's certificate must never pass for a node's. Keys are ECDSA P-256.
//! The authority's name is always the same, so its key alone is enough to sign again.
//!
//! How it fails: a key that cannot be read, and host names that are not valid, are [`AuthorityError`].

use holdfast_types::calendar::civil_from_days;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use std::time::{SystemTime, UNIX_EPOCH};

const AUTHORITY_NAME: &str = "Holdfast client authority";

/// The number of days for which certificates are valid, if no other is named: ten years, as those of nodes.
pub const DAYS: u32 = 3_652;

/// The most days, a hundred years.
pub const DAYS_MAX: u32 = 36_525;

/// A failure to make or read a key or a certificate.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}")]
pub struct AuthorityError {
    what: &'static str,
    source: rcgen::Error,
}

fn cannot(what: &'static str) -> impl FnOnce(rcgen::Error) -> AuthorityError {
    move |source| AuthorityError { what, source }
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    pub certificate_pem: String,
    pub key_pem: String,
}

/// What a certificate is for.
#[derive(Clone, Copy, Debug)]
pub enum Purpose<'a> {
    /// A server under these host names and addresses.
    Server(&'a [String]),
    /// A client that connects as the role of this name.
    Client(&'a str),
}

/// An authority, which signs the certificates of servers and clients.
pub struct ClientAuthority {
    own: Issued,
    issuer: Issuer<'static, KeyPair>,
}

impl ClientAuthority {
    /// Makes an authority with a new key, valid for this number of days.
    pub fn new(days: u32) -> Result<ClientAuthority, AuthorityError> {
        ClientAuthority::with_key(KeyPair::generate().map_err(cannot("make a key"))?, days)
    }

    /// The authority with this key. Its certificate is made again and is not the one that clients have; what it signs fits both.
    pub fn from_key_pem(key_pem: &str) -> Result<ClientAuthority, AuthorityError> {
        ClientAuthority::with_key(KeyPair::from_pem(key_pem).map_err(cannot("read the authority's key"))?, DAYS)
    }

    fn with_key(key: KeyPair, days: u32) -> Result<ClientAuthority, AuthorityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, AUTHORITY_NAME);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params, days);
        let certificate_pem = params.self_signed(&key).map_err(cannot("sign the authority's certificate"))?.pem();
        let own = Issued { certificate_pem, key_pem: key.serialize_pem() };
        Ok(ClientAuthority { own, issuer: Issuer::new(params, key) })
    }

    /// Its certificate, which servers and clients get, and its key, which the operator keeps secret.
    pub fn own(&self) -> &Issued {
        &self.own
    }

    /// Makes a certificate with a new key.
    pub fn issue(&self, purpose: Purpose<'_>, days: u32) -> Result<Issued, AuthorityError> {
        let (name, usage, hosts) = match purpose {
            Purpose::Server(hosts) => {
                (hosts.first().map_or("", String::as_str), ExtendedKeyUsagePurpose::ServerAuth, hosts)
            }
            Purpose::Client(role) => (role, ExtendedKeyUsagePurpose::ClientAuth, &[][..]),
        };
        let mut params = CertificateParams::new(hosts).map_err(cannot("use these host names"))?;
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, days);
        let key = KeyPair::generate().map_err(cannot("make a key"))?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(cannot("sign the certificate"))?;
        Ok(Issued { certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }
}

/// Sets the validity: from the day before yesterday, so that clocks may differ, to the end of the last day.
fn set_validity(params: &mut CertificateParams, days: u32) {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let today = i64::try_from(seconds / 86_400).unwrap_or(0);
    let date = |day: i64| {
        let (year, month, day) = civil_from_days(day);
        let small = |n: i64| u8::try_from(n).unwrap_or(1);
        date_time_ymd(i32::try_from(year).unwrap_or(i32::MAX), small(month), small(day))
    };
    params.not_before = date(today - 2);
    params.not_after = date(today + i64::from(days.min(DAYS_MAX)) + 1);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::CertificateText;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    fn text(pem: &str) -> CertificateText {
        CertificateText::parse(&CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn certificates_name_their_holders_and_their_end() {
        let authority = ClientAuthority::new(DAYS).unwrap();
        let again = ClientAuthority::from_key_pem(&authority.own().key_pem).unwrap();
        let hosts = ["db.example".to_owned(), "10.1.2.3".to_owned()];
        let server = text(&again.issue(Purpose::Server(&hosts), 10).unwrap().certificate_pem);
        assert_eq!((server.common_name.as_deref(), &server.hosts[..]), (Some("db.example"), &hosts[..]));
        assert_eq!(server.issuer, text(&authority.own().certificate_pem).subject);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        let days_left = (server.not_after_unix_s - now) / 86_400;
        assert!((10..=11).contains(&days_left) && server.not_before_unix_s < now - 86_400, "{days_left}");
        let client = text(&authority.issue(Purpose::Client("ann"), 10).unwrap().certificate_pem);
        assert_eq!((client.subject.as_str(), client.hosts.len()), ("/CN=ann", 0));
        assert!(ClientAuthority::from_key_pem("nothing").is_err());
        assert!(authority.issue(Purpose::Server(&["no host\u{fc}".to_owned()]), 1).is_err());
    }
}
