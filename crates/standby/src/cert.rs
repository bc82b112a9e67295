//! A small certificate authority for the nodes of one operator.
//!
//! Only the authority's key must be kept: the name in its certificate is always the same, so the key alone is enough to
//! sign again. Keys are ECDSA P-256. An authority may sign nodes, not other authorities. A node's certificate is valid
//! for both ends of a link, under the given names and addresses.
//!
//! A certificate names its holder (common name) and its role (organizational unit, [`CertificateRole`]). The holder of
//! a node's certificate may follow under that name, which is the replication role. The holder of an operator's
//! certificate may only request the status and a promotion.

use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};

/// The number of years for which an authority and its certificates are valid.
const YEARS: i32 = 10;

const AUTHORITY_NAME: &str = "Holdfast node authority";

/// The role that a certificate gives its holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CertificateRole {
    /// A server or a witness: it may follow, take base copies, and vote.
    Node,
    /// An operator's commands: status and promotion.
    Operator,
}

impl CertificateRole {
    /// The role's text in the certificate.
    pub fn as_str(self) -> &'static str {
        match self {
            CertificateRole::Node => "holdfast node",
            CertificateRole::Operator => "holdfast operator",
        }
    }

    /// The role that a certificate names.
    pub fn parse(text: &str) -> Option<CertificateRole> {
        [CertificateRole::Node, CertificateRole::Operator].into_iter().find(|role| role.as_str() == text)
    }
}

/// A failure to create or read a key or a certificate.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {source}")]
pub struct CertError {
    what: &'static str,
    source: rcgen::Error,
}

fn cannot(what: &'static str) -> impl FnOnce(rcgen::Error) -> CertError {
    move |source| CertError { what, source }
}

/// An authority, which signs nodes' certificates.
pub struct Authority {
    certificate_pem: String,
    issuer: Issuer<'static, KeyPair>,
    key_pem: String,
}

/// What a node needs in addition to the authority's certificate.
#[derive(Clone, Debug)]
pub struct NodeCertificate {
    pub name: String,
    pub certificate_pem: String,
    pub key_pem: String,
}

impl Authority {
    /// Creates an authority with a new key.
    pub fn new() -> Result<Authority, CertError> {
        Authority::with_key(KeyPair::generate().map_err(cannot("make a key"))?)
    }

    /// Loads the authority with this key.
    pub fn from_key_pem(key_pem: &str) -> Result<Authority, CertError> {
        Authority::with_key(KeyPair::from_pem(key_pem).map_err(cannot("read the authority's key"))?)
    }

    fn with_key(key: KeyPair) -> Result<Authority, CertError> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, AUTHORITY_NAME);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        set_validity(&mut params);
        let certificate_pem = params.self_signed(&key).map_err(cannot("sign the authority's certificate"))?.pem();
        let key_pem = key.serialize_pem();
        Ok(Authority { certificate_pem, issuer: Issuer::new(params, key), key_pem })
    }

    /// The authority's certificate, which every node gets.
    pub fn certificate_pem(&self) -> &str {
        &self.certificate_pem
    }

    /// The authority's key. The operator keeps it secret: any program that has it can join.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// Creates a certificate for `name` with these host names and addresses.
    pub fn issue(&self, name: &str, role: CertificateRole, hosts: &[String]) -> Result<NodeCertificate, CertError> {
        let mut params = CertificateParams::new(hosts).map_err(cannot("use these host names"))?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationalUnitName, role.as_str());
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params);
        let key = KeyPair::generate().map_err(cannot("make a key"))?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(cannot("sign the node's certificate"))?;
        Ok(NodeCertificate { name: name.to_owned(), certificate_pem: certificate.pem(), key_pem: key.serialize_pem() })
    }
}

/// Sets the validity: from the beginning of last year, so that clocks may differ, to the end of the tenth year.
fn set_validity(params: &mut CertificateParams) {
    let year = this_year();
    params.not_before = date_time_ymd(year - 1, 1, 1);
    params.not_after = date_time_ymd(year + YEARS, 12, 31);
}

fn this_year() -> i32 {
    const SECONDS_OF_A_YEAR: u64 = 31_556_952;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    1970 + (seconds / SECONDS_OF_A_YEAR) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_comes_back_from_its_key() {
        let first = Authority::new().unwrap();
        let again = Authority::from_key_pem(first.key_pem()).unwrap();
        assert_eq!(again.key_pem(), first.key_pem());
        assert!(
            again
                .issue("b", CertificateRole::Node, &["b.example".to_owned()])
                .unwrap()
                .certificate_pem
                .contains("BEGIN CERTIFICATE")
        );
        assert!(Authority::from_key_pem("nothing").is_err());
        assert!(first.issue("b", CertificateRole::Node, &["no host\u{fc}".to_owned()]).is_err());
    }
}
