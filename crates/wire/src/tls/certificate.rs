//! What a certificate says, in the forms that PostgreSQL shows, and its hash for channel binding.
//!
//! | field of a certificate (RFC 5280) | what is read |
//! |---|---|
//! | version, serialNumber | the number, in decimal |
//! | signature | - |
//! | issuer, validity, subject | names as `/CN=ann/O=shop`; the second time |
//! | subjectPublicKeyInfo | - |
//! | extensions | the names and addresses of subjectAltName |
//! | signatureAlgorithm | the hash of `tls-server-end-point` (RFC 5929, section 4.1) |
//!
//! How it fails: bytes that are not a certificate are [`DerError`]. A client's certificate gets here only after rustls has
//! verified it.

use super::der::{Der, DerError, decimal, oid_text, tag};
use crate::peer::ClientCertificate;
use holdfast_types::calendar;
use ring::digest;
use std::net::{Ipv4Addr, Ipv6Addr};

/// The contents of a certificate as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateText {
    /// The first common name of the subject; `None` also where it contains a zero byte.
    pub common_name: Option<String>,
    pub subject: String,
    /// The subject as RFC 2253 writes it.
    pub distinguished_name: String,
    pub issuer: String,
    /// In decimal.
    pub serial: String,
    pub not_before_unix_s: i64,
    pub not_after_unix_s: i64,
    /// Host names and addresses that the certificate is valid for.
    pub hosts: Vec<String>,
}

impl CertificateText {
    /// Reads a certificate in DER.
    pub fn parse(certificate: &[u8]) -> Result<CertificateText, DerError> {
        let mut tbs = Der(parts(certificate)?.tbs);
        tbs.optional(tag::explicit(0))?;
        let serial = decimal(tbs.expect(tag::INTEGER)?);
        tbs.expect(tag::SEQUENCE)?;
        let issuer = name(tbs.expect(tag::SEQUENCE)?)?;
        let mut validity = Der(tbs.expect(tag::SEQUENCE)?);
        let (not_before_unix_s, not_after_unix_s) = (time(validity.next()?)?, time(validity.next()?)?);
        let subject = name(tbs.expect(tag::SEQUENCE)?)?;
        tbs.expect(tag::SEQUENCE)?;
        let mut hosts = Vec::new();
        while !tbs.is_empty() {
            if let (tag, extensions) = tbs.next()?
                && tag == super::der::tag::explicit(3)
            {
                hosts = alternative_names(extensions)?;
            }
        }
        Ok(CertificateText {
            common_name: subject.common_name,
            subject: subject.text,
            distinguished_name: subject.distinguished,
            issuer: issuer.text,
            serial,
            not_before_unix_s,
            not_after_unix_s,
            hosts,
        })
    }
}

/// What a verified certificate says of its holder.
pub(super) fn client_certificate(certificate: &[u8]) -> Result<ClientCertificate, DerError> {
    let CertificateText { common_name, subject, distinguished_name, issuer, serial, .. } =
        CertificateText::parse(certificate)?;
    Ok(ClientCertificate { common_name, subject, distinguished_name, issuer, serial })
}

/// The signed part of a certificate, and the algorithm of its signature.
struct Parts<'a> {
    tbs: &'a [u8],
    algorithm: &'a [u8],
}

fn parts(certificate: &[u8]) -> Result<Parts<'_>, DerError> {
    let mut whole = Der(Der(certificate).expect(tag::SEQUENCE)?);
    let tbs = whole.expect(tag::SEQUENCE)?;
    let algorithm = whole.expect(tag::SEQUENCE)?;
    whole.expect(tag::BIT_STRING)?;
    Ok(Parts { tbs, algorithm })
}

/// The certificate's hash for the channel binding `tls-server-end-point`: by the hash of its signature, SHA-256 in place of
/// MD5 and SHA-1. Empty where the signature has no single hash, as Ed25519: then there is no channel binding.
pub(super) fn end_point_hash(certificate: &[u8]) -> Result<Vec<u8>, DerError> {
    let mut algorithm = Der(parts(certificate)?.algorithm);
    let oid = oid_text(algorithm.expect(tag::OID)?);
    let hash = match oid.as_str() {
        // RSA with MD5, SHA-1, SHA-256; ECDSA with SHA-1, SHA-256.
        "1.2.840.113549.1.1.4"
        | "1.2.840.113549.1.1.5"
        | "1.2.840.113549.1.1.11"
        | "1.2.840.10045.4.1"
        | "1.2.840.10045.4.3.2" => &digest::SHA256,
        "1.2.840.113549.1.1.12" | "1.2.840.10045.4.3.3" => &digest::SHA384,
        "1.2.840.113549.1.1.13" | "1.2.840.10045.4.3.4" => &digest::SHA512,
        "1.2.840.113549.1.1.10" => match pss_hash(algorithm)? {
            Some(hash) => hash,
            None => return Ok(Vec::new()),
        },
        _ => return Ok(Vec::new()),
    };
    Ok(digest::digest(hash, certificate).as_ref().to_vec())
}

/// The hash in the parameters of RSASSA-PSS (RFC 4055); SHA-1 is the default.
fn pss_hash(mut algorithm: Der<'_>) -> Result<Option<&'static digest::Algorithm>, DerError> {
    let mut parameters = Der(algorithm.expect(tag::SEQUENCE)?);
    let Some(hash) = parameters.optional(tag::explicit(0))? else { return Ok(Some(&digest::SHA256)) };
    let mut hash = Der(Der(hash).expect(tag::SEQUENCE)?);
    Ok(match oid_text(hash.expect(tag::OID)?).as_str() {
        "1.3.14.3.2.26" | "2.16.840.1.101.3.4.2.1" => Some(&digest::SHA256),
        "2.16.840.1.101.3.4.2.2" => Some(&digest::SHA384),
        "2.16.840.1.101.3.4.2.3" => Some(&digest::SHA512),
        _ => None,
    })
}

struct Name {
    text: String,
    /// As RFC 2253 writes it: the last part first, separated by commas.
    distinguished: String,
    common_name: Option<String>,
}

/// A distinguished name, in the order of the certificate, as PostgreSQL writes it.
fn name(contents: &[u8]) -> Result<Name, DerError> {
    let (mut text, mut common_names, mut distinguished) = (String::new(), Vec::new(), String::new());
    let mut sets = Der(contents);
    while !sets.is_empty() {
        let mut attributes = Der(sets.expect(tag::SET)?);
        let mut part = String::new();
        while !attributes.is_empty() {
            let mut attribute = Der(attributes.expect(tag::SEQUENCE)?);
            let oid = oid_text(attribute.expect(tag::OID)?);
            let value = string(attribute.next()?)?;
            let short = attribute_name(&oid);
            if short == Some("CN") {
                common_names.push(value.clone());
            }
            text.push('/');
            text.push_str(short.unwrap_or(&oid));
            text.push('=');
            escape(&value, &mut text);
            if !part.is_empty() {
                part.push('+');
            }
            part.push_str(short.unwrap_or(&oid));
            part.push('=');
            escape_2253(&value, &mut part);
        }
        let before = if distinguished.is_empty() { String::new() } else { format!(",{distinguished}") };
        distinguished = part + &before;
    }
    // A zero byte could end the name early for another program.
    let common_name = common_names.into_iter().next().filter(|name| !name.contains('\0'));
    Ok(Name { text, distinguished, common_name })
}

/// A value as RFC 2253 and OpenSSL write it in a distinguished name; bytes that are not ASCII in hexadecimal.
fn escape_2253(value: &str, out: &mut String) {
    let last = value.len().saturating_sub(1);
    for (at, byte) in value.bytes().enumerate() {
        let is_edge = (at == 0 && matches!(byte, b'#' | b' ')) || (at == last && byte == b' ');
        match byte {
            b',' | b'+' | b'"' | b'\\' | b'<' | b'>' | b';' => out.extend(['\\', char::from(byte)]),
            _ if is_edge => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("\\{byte:02X}")),
        }
    }
}

/// OpenSSL's short names.
fn attribute_name(oid: &str) -> Option<&'static str> {
    Some(match oid {
        "2.5.4.3" => "CN",
        "2.5.4.4" => "SN",
        "2.5.4.5" => "serialNumber",
        "2.5.4.6" => "C",
        "2.5.4.7" => "L",
        "2.5.4.8" => "ST",
        "2.5.4.9" => "street",
        "2.5.4.10" => "O",
        "2.5.4.11" => "OU",
        "2.5.4.12" => "title",
        "2.5.4.13" => "description",
        "2.5.4.17" => "postalCode",
        "2.5.4.41" => "name",
        "2.5.4.42" => "GN",
        "2.5.4.43" => "initials",
        "2.5.4.44" => "generationQualifier",
        "2.5.4.46" => "dnQualifier",
        "2.5.4.65" => "pseudonym",
        "0.9.2342.19200300.100.1.1" => "UID",
        "0.9.2342.19200300.100.1.25" => "DC",
        "1.2.840.113549.1.9.1" => "emailAddress",
        _ => return None,
    })
}

/// A string of ASN.1 as text.
fn string((kind, bytes): (u8, &[u8])) -> Result<String, DerError> {
    let wide = |bytes: &[u8]| char::decode_utf16(pairs(bytes)).collect::<Result<String, _>>().ok();
    let text = match kind {
        tag::UTF8_STRING | tag::PRINTABLE_STRING | tag::IA5_STRING => String::from_utf8(bytes.to_vec()).ok(),
        tag::T61_STRING => Some(bytes.iter().map(|byte| char::from(*byte)).collect()),
        tag::BMP_STRING if bytes.len().is_multiple_of(2) => wide(bytes),
        tag::UNIVERSAL_STRING if bytes.len().is_multiple_of(4) => {
            let code = |four: &[u8]| four.iter().fold(0, |code, byte| code << 8 | u32::from(*byte));
            bytes.chunks_exact(4).map(|four| char::from_u32(code(four))).collect()
        }
        // As OpenSSL shows what it has no text for.
        _ => Some(bytes.iter().fold("#".to_owned(), |text, byte| format!("{text}{byte:02X}"))),
    };
    text.ok_or(DerError("a name is not valid text"))
}

fn pairs(bytes: &[u8]) -> impl Iterator<Item = u16> + '_ {
    bytes.chunks_exact(2).map(|two| two.iter().fold(0, |code, byte| code << 8 | u16::from(*byte)))
}

/// The escapes of RFC 2253, as OpenSSL makes them; characters beyond ASCII stay.
fn escape(value: &str, into: &mut String) {
    let last = value.chars().count().saturating_sub(1);
    for (i, char) in value.chars().enumerate() {
        let at_the_ends = (char == ' ' && (i == 0 || i == last)) || (char == '#' && i == 0);
        match char {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' => into.extend(['\\', char]),
            _ if at_the_ends => into.extend(['\\', char]),
            '\0'..='\x1f' => into.push_str(&format!("\\{:02X}", char as u32)),
            '\x7f' => into.push_str("\\7F"),
            _ => into.push(char),
        }
    }
}

/// UTCTime or GeneralizedTime, in seconds since 1970.
fn time((kind, bytes): (u8, &[u8])) -> Result<i64, DerError> {
    const WRONG: DerError = DerError("a time is not valid");
    let text = std::str::from_utf8(bytes).ok().and_then(|text| text.strip_suffix('Z')).ok_or(WRONG)?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(WRONG);
    }
    let number = |from: usize, to: usize| text.get(from..to).and_then(|digits| digits.parse::<i64>().ok()).ok_or(WRONG);
    let (year, rest) = match kind {
        tag::UTC_TIME if text.len() == 12 => {
            let year = number(0, 2)?;
            (if year < 50 { 2000 + year } else { 1900 + year }, 2)
        }
        tag::GENERALIZED_TIME if text.len() == 14 => (number(0, 4)?, 4),
        _ => return Err(WRONG),
    };
    let at = |n: usize| number(rest + 2 * n, rest + 2 * n + 2);
    let (month, day) = (at(0)?, at(1)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return Err(WRONG);
    }
    Ok(calendar::days_from_civil(year, month, day) * 86_400 + at(2)? * 3600 + at(3)? * 60 + at(4)?)
}

fn alternative_names(extensions: &[u8]) -> Result<Vec<String>, DerError> {
    const SUBJECT_ALT_NAME: &[u8] = &[0x55, 0x1d, 0x11];
    let mut all = Der(Der(extensions).expect(tag::SEQUENCE)?);
    while !all.is_empty() {
        let mut extension = Der(all.expect(tag::SEQUENCE)?);
        let is_names = extension.expect(tag::OID)? == SUBJECT_ALT_NAME;
        extension.optional(tag::BOOLEAN)?;
        let value = extension.expect(tag::OCTET_STRING)?;
        if is_names {
            return hosts(Der(Der(value).expect(tag::SEQUENCE)?));
        }
    }
    Ok(Vec::new())
}

fn hosts(mut names: Der<'_>) -> Result<Vec<String>, DerError> {
    const DNS: u8 = tag::implicit(2);
    const ADDRESS: u8 = tag::implicit(7);
    let mut hosts = Vec::new();
    while !names.is_empty() {
        let (kind, bytes) = names.next()?;
        match kind {
            DNS => hosts.push(String::from_utf8_lossy(bytes).into_owned()),
            ADDRESS => {
                let four = <[u8; 4]>::try_from(bytes).map(|bytes| Ipv4Addr::from(bytes).to_string());
                let sixteen = <[u8; 16]>::try_from(bytes).map(|bytes| Ipv6Addr::from(bytes).to_string());
                hosts.extend(four.or(sixteen));
            }
            _ => {}
        }
    }
    Ok(hosts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, SanType, SerialNumber, date_time_ymd};

    fn made(change: impl Fn(&mut CertificateParams), key: &KeyPair) -> Vec<u8> {
        let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "ann");
        change(&mut params);
        params.self_signed(key).unwrap().der().to_vec()
    }

    #[test]
    fn a_certificate_as_postgresql_shows_it() {
        let key = KeyPair::generate().unwrap();
        let certificate = made(
            |params| {
                params.distinguished_name.push(DnType::OrganizationName, "a,b <c> \u{e9}\n");
                params.distinguished_name.push(DnType::CustomDnType(vec![1, 2, 3, 4]), " x ");
                params.serial_number =
                    Some(SerialNumber::from_slice(&[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]));
                params.subject_alt_names.push(SanType::IpAddress("10.1.2.3".parse().unwrap()));
                params.subject_alt_names.push(SanType::IpAddress("::1".parse().unwrap()));
                params.not_before = date_time_ymd(2020, 2, 29);
                params.not_after = date_time_ymd(2060, 1, 1);
            },
            &key,
        );
        let text = CertificateText::parse(&certificate).unwrap();
        assert_eq!(text.subject, "/CN=ann/O=a\\,b \\<c\\> \u{e9}\\0A/1.2.3.4=\\ x\\ ");
        assert_eq!((text.common_name.as_deref(), &text.issuer), (Some("ann"), &text.subject));
        assert_eq!(text.serial, "2361183241434822606847");
        assert_eq!(text.hosts, ["a.example", "10.1.2.3", "::1"]);
        assert_eq!((text.not_before_unix_s, text.not_after_unix_s), (1_582_934_400, 2_840_140_800));
        // ECDSA with SHA-256.
        assert_eq!(end_point_hash(&certificate).unwrap(), digest::digest(&digest::SHA256, &certificate).as_ref());
    }

    #[test]
    fn a_signature_decides_the_hash_of_channel_binding() {
        let of = |algorithm| end_point_hash(&made(|_| {}, &KeyPair::generate_for(algorithm).unwrap())).unwrap().len();
        assert_eq!(of(&rcgen::PKCS_ECDSA_P384_SHA384), 48);
        assert_eq!(of(&rcgen::PKCS_ED25519), 0, "RFC 5929 does not define it");
    }

    #[test]
    fn damaged_certificates_are_refused_and_never_panic() {
        let key = KeyPair::generate().unwrap();
        let whole = made(|_| {}, &key);
        for n in 0..whole.len() {
            assert!(CertificateText::parse(&whole[..n]).is_err(), "cut at {n}");
        }
        for n in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[n] ^= 1 << bit;
                // It may be readable still; it must not panic.
                let _ = (CertificateText::parse(&damaged), end_point_hash(&damaged));
            }
        }
    }

    #[test]
    fn a_zero_byte_is_no_name() {
        let key = KeyPair::generate().unwrap();
        let certificate = made(|params| params.distinguished_name.push(DnType::CommonName, "ann\0.evil"), &key);
        let text = CertificateText::parse(&certificate).unwrap();
        assert_eq!((text.common_name, text.subject.as_str()), (None, "/CN=ann\\00.evil"));
    }
}
