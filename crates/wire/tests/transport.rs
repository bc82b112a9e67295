//! Transport over real sockets: TLS with rustls as the client, the Unix socket, limits on connections that have not completed
//! their start-up, and what attackers send in place of TLS.

mod fake;

use fake::{Running, start, start_with};
use holdfast_wire::{Limits, TlsConfig, TlsFiles, TlsSlot, TlsVersion};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A time that is longer than any of these tests takes.
const WAIT_MAX: Duration = Duration::from_secs(600);

const SSL_REQUEST: &[u8] = &[0, 0, 0, 8, 4, 210, 22, 47];
const START: &[u8] = b"\0\0\0\x12\0\x03\0\0user\0ann\0\0";

/// A record of TLS that says that the connection ends.
const ALERT: &[u8] = &[21, 3, 3, 0, 2, 1, 0];

/// A CA and what it has signed.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

struct Issued {
    pem: String,
    key_pem: String,
    der: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    fn issue(&self, name: &str, serial: u64, last_year: i32) -> Issued {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.distinguished_name.push(DnType::OrganizationName, "shop");
        params.serial_number = Some(SerialNumber::from(serial));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(last_year, 12, 31);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let (pem, der) = (certificate.pem(), certificate.der().clone());
        Issued { pem, der, key_pem: key.serialize_pem(), key: PrivateKeyDer::try_from(key.serialize_der()).unwrap() }
    }

    fn revoke(&self, serial: u64) -> String {
        let revoked = RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2021, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2021, 1, 1),
            next_update: date_time_ymd(2999, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap()
    }
}

/// A server's TLS files.
struct Material {
    dir: tempfile::TempDir,
    authority: Authority,
    files: TlsFiles,
}

impl Material {
    fn new() -> Material {
        let (dir, authority) = (tempfile::tempdir().unwrap(), Authority::new());
        let at = |name: &str| dir.path().join(name);
        let files = TlsFiles {
            certificate: at("server.crt"),
            key: at("server.key"),
            client_ca: None,
            crl: None,
            min_version: TlsVersion::V12,
        };
        std::fs::write(at("ca.crt"), &authority.pem).unwrap();
        let material = Material { dir, authority, files };
        material.write_server(&material.authority.issue("server", 1, 2999));
        material
    }

    fn write_server(&self, issued: &Issued) {
        std::fs::write(&self.files.certificate, &issued.pem).unwrap();
        std::fs::write(&self.files.key, &issued.key_pem).unwrap();
        std::fs::set_permissions(&self.files.key, PermissionsExt::from_mode(0o600)).unwrap();
    }

    fn with_client_ca(mut self) -> Material {
        self.files.client_ca = Some(self.dir.path().join("ca.crt"));
        self
    }

    fn slot(&self) -> TlsSlot {
        TlsSlot::new(TlsConfig::load(&self.files).unwrap())
    }

    fn start(&self) -> Running {
        start_with(Limits::default(), self.slot(), None)
    }

    /// A client that trusts the authority.
    fn client(&self, how: &How<'_>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        let pem = std::fs::read(self.dir.path().join("ca.crt")).unwrap();
        for certificate in rustls::pki_types::pem::PemObject::pem_slice_iter(&pem) {
            let certificate: CertificateDer<'_> = Result::<_, rustls::pki_types::pem::Error>::unwrap(certificate);
            roots.add(certificate).unwrap();
        }
        let versions: &[_] = if how.tls12 { &[&rustls::version::TLS12] } else { &[&rustls::version::TLS13] };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
        let builder = builder.with_root_certificates(roots);
        let mut config = match how.certificate {
            None => builder.with_no_client_auth(),
            Some(own) => builder.with_client_auth_cert(vec![own.der.clone()], own.key.clone_key()).unwrap(),
        };
        config.alpn_protocols = how.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// How a client connects.
#[derive(Clone, Default)]
struct How<'a> {
    tls12: bool,
    direct: bool,
    alpn: Vec<&'a str>,
    certificate: Option<&'a Issued>,
}

/// A client that sends and receives bytes.
struct Raw<S>(S);

type Tls = StreamOwned<ClientConnection, TcpStream>;

fn tcp(server: &Running) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    stream
}

fn byte(from: &mut impl Read) -> Option<u8> {
    let mut byte = [0];
    from.read_exact(&mut byte).ok().map(|()| byte[0])
}

/// Connects with TLS, up to the first ReadyForQuery. The error is what the client sees of a refusal.
fn connect(server: &Running, material: &Material, how: &How<'_>) -> Result<Raw<Tls>, String> {
    let mut stream = tcp(server);
    if !how.direct {
        stream.write_all(SSL_REQUEST).unwrap();
        assert_eq!(byte(&mut stream), Some(b'S'));
    }
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(material.client(how), name).unwrap();
    let mut raw = Raw(StreamOwned::new(connection, stream));
    raw.0.write_all(START).map_err(|error| error.to_string())?;
    raw.try_until('Z')?;
    Ok(raw)
}

impl<S: Read + Write> Raw<S> {
    fn query(&mut self, text: &str) -> Vec<String> {
        self.send(text);
        let mut rows = Vec::new();
        loop {
            match self.read().unwrap() {
                ('D', body) => rows.push(String::from_utf8_lossy(&body[6..]).into_owned()),
                ('Z', _) => return rows,
                ('E', body) => panic!("{}", String::from_utf8_lossy(&body)),
                _ => {}
            }
        }
    }

    fn send(&mut self, text: &str) {
        let mut message = vec![b'Q'];
        message.extend((text.len() as u32 + 5).to_be_bytes());
        message.extend(text.as_bytes());
        message.push(0);
        self.0.write_all(&message).unwrap();
        self.0.flush().unwrap();
    }

    fn read(&mut self) -> Result<(char, Vec<u8>), String> {
        let mut header = [0; 5];
        self.0.read_exact(&mut header).map_err(|error| error.to_string())?;
        let mut body = vec![0; u32::from_be_bytes(header[1..].try_into().unwrap()) as usize - 4];
        self.0.read_exact(&mut body).map_err(|error| error.to_string())?;
        Ok((header[0] as char, body))
    }

    /// The body of the next message of this type; an error message ends the wait.
    fn try_until(&mut self, last: char) -> Result<Vec<u8>, String> {
        loop {
            match self.read()? {
                (kind, body) if kind == last => return Ok(body),
                ('E', body) => return Err(String::from_utf8_lossy(&body).replace('\0', " ")),
                _ => {}
            }
        }
    }

    fn is_closed(&mut self) -> bool {
        self.0.read(&mut [0]).map_or(true, |n| n == 0)
    }
}

#[test]
fn tls_of_both_versions_and_both_ways_to_begin() {
    let material = Material::new();
    let server = material.start();
    for (tls12, version, cipher) in
        [(false, "TLSv1.3", "TLS_AES_256_GCM_SHA384"), (true, "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384")]
    {
        for direct in [false, true] {
            let alpn = if direct { vec!["postgresql"] } else { vec![] };
            let how = How { tls12, direct, alpn, certificate: None };
            let mut raw = connect(&server, &material, &how).unwrap();
            let [peer] = raw.query("peer").try_into().unwrap();
            for part in [version, cipher, "bits: 256", "client_certificate: None"] {
                assert!(peer.contains(part), "{part} in {peer}");
            }
        }
    }
}

#[test]
fn large_answers_and_large_messages_pass_tls_whole() {
    let material = Material::new();
    let server = material.start();
    let mut raw = connect(&server, &material, &How::default()).unwrap();
    // The server must wait for the client, which reads only after all was asked for.
    assert_eq!(raw.query("rows 200000").len(), 200_000);
    let long = format!("log {}", "x".repeat(5_000_000));
    let rows = raw.query(&long);
    assert_eq!(rows.last().map(|row| row.contains(&"x".repeat(5_000_000))), Some(true));
}

#[test]
fn without_certificates_the_answer_is_no() {
    let server = start(Limits::default());
    let mut stream = tcp(&server);
    stream.write_all(SSL_REQUEST).unwrap();
    assert_eq!(byte(&mut stream), Some(b'N'));
    // The client may continue without; it may not ask again.
    stream.write_all(START).unwrap();
    Raw(stream).try_until('Z').unwrap();
    let mut stream = tcp(&server);
    stream.write_all(SSL_REQUEST).unwrap();
    assert_eq!(byte(&mut stream), Some(b'N'));
    stream.write_all(SSL_REQUEST).unwrap();
    let refused = Raw(stream).try_until('Z').unwrap_err();
    assert!(refused.contains("unsupported frontend protocol 1234.5679"), "{refused}");
    // A client that begins with TLS is closed without an answer that it could take for TLS.
    let mut stream = tcp(&server);
    stream.write_all(&[0x16, 3, 1, 0, 5, 1, 0, 0, 1, 0]).unwrap();
    assert!(Raw(stream).is_closed());
}

#[test]
fn bytes_before_the_handshake_are_refused() {
    let material = Material::new();
    let server = material.start();
    // An attacker between the two ends sends a start-up and a query of its own with the client's SSLRequest.
    let mut stream = tcp(&server);
    let stuffed = [SSL_REQUEST, START, b"Q\0\0\0\x0amake it\0"].concat();
    stream.write_all(&stuffed).unwrap();
    let refused = Raw(stream).try_until('Z').unwrap_err();
    assert!(refused.contains("received unencrypted data after SSL request"), "{refused}");
    // They come after the answer: not TLS.
    let mut stream = tcp(&server);
    stream.write_all(SSL_REQUEST).unwrap();
    assert_eq!(byte(&mut stream), Some(b'S'));
    stream.write_all(START).unwrap();
    let mut rest = Vec::new();
    // A reset in place of an end is possible.
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() <= 7 && rest.first().is_none_or(|byte| *byte == 0x15), "nothing but an alert: {rest:?}");
}

#[test]
fn a_direct_start_names_the_protocol() {
    let material = Material::new();
    let server = material.start();
    for alpn in [vec![], vec!["http/1.1"]] {
        let how = How { direct: true, alpn, ..How::default() };
        assert!(connect(&server, &material, &how).is_err());
        let how = How { direct: false, ..how };
        // After an SSLRequest the name is optional, and must not be another one.
        assert_eq!(connect(&server, &material, &how).is_ok(), how.alpn.is_empty());
    }
}

#[test]
fn tls_is_asked_for_once() {
    let material = Material::new();
    let server = material.start();
    let mut stream = tcp(&server);
    stream.write_all(SSL_REQUEST).unwrap();
    assert_eq!(byte(&mut stream), Some(b'S'));
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(material.client(&How::default()), name).unwrap();
    let mut raw = Raw(StreamOwned::new(connection, stream));
    raw.0.write_all(SSL_REQUEST).unwrap();
    let refused = raw.try_until('Z').unwrap_err();
    assert!(refused.contains("unsupported frontend protocol"), "{refused}");
}

#[test]
fn a_client_certificate_is_verified_when_it_is_sent() {
    let material = Material::new().with_client_ca();
    let server = material.start();
    let own = material.authority.issue("ann", 0x1234, 2999);
    for tls12 in [false, true] {
        let with = |certificate| How { tls12, certificate, ..How::default() };
        let mut raw = connect(&server, &material, &with(Some(&own))).unwrap();
        let [peer] = raw.query("peer").try_into().unwrap();
        for part in
            ["common_name: Some(\"ann\")", "/CN=ann/O=shop", "serial: \"4660\"", "issuer: \"/CN=test authority\""]
        {
            assert!(peer.contains(part), "{part} in {peer}");
        }
        connect(&server, &material, &with(None)).unwrap();
        let expired = material.authority.issue("ann", 2, 2020);
        let foreign = Authority::new().issue("ann", 3, 2999);
        for wrong in [&expired, &foreign] {
            let refused = connect(&server, &material, &with(Some(wrong))).err().unwrap();
            assert!(refused.contains("alert") || refused.contains("reset"), "{refused}");
        }
    }
}

#[test]
fn a_revoked_certificate_is_refused() {
    let mut material = Material::new().with_client_ca();
    let crl = material.dir.path().join("crl.pem");
    std::fs::write(&crl, material.authority.revoke(7)).unwrap();
    material.files.crl = Some(crl);
    let server = material.start();
    let (revoked, valid) = (material.authority.issue("ann", 7, 2999), material.authority.issue("ben", 8, 2999));
    let with = |certificate| How { certificate: Some(certificate), ..How::default() };
    connect(&server, &material, &with(&valid)).unwrap();
    let refused = connect(&server, &material, &with(&revoked)).err().unwrap();
    assert!(refused.contains("Revoked") || refused.contains("reset"), "{refused}");
}

#[test]
fn the_lowest_version_is_kept() {
    let mut material = Material::new();
    material.files.min_version = TlsVersion::V13;
    let server = material.start();
    connect(&server, &material, &How::default()).unwrap();
    assert!(connect(&server, &material, &How { tls12: true, ..How::default() }).is_err());
}

#[test]
fn garbage_in_place_of_records_ends_only_its_connection() {
    let material = Material::new();
    let server = material.start();
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut other = connect(&server, &material, &How::default()).unwrap();
    for round in 0..60u64 {
        // In the handshake, and in an established connection: a renegotiation in plain text, and records of no sense.
        let how = How { tls12: round % 2 == 0, ..How::default() };
        let mut raw = (round % 3 > 0).then(|| connect(&server, &material, &how).unwrap());
        let mut own = tcp(&server);
        let stream = match &mut raw {
            Some(raw) => &mut raw.0.sock,
            None => {
                own.write_all(SSL_REQUEST).unwrap();
                assert_eq!(byte(&mut own), Some(b'S'));
                &mut own
            }
        };
        let kind = [0x16, 0x14, 0x15, 0x17, 0x18, random() as u8][round as usize % 6];
        let body: Vec<u8> = (0..random() % 600).map(|_| random() as u8).collect();
        let mut record = vec![kind, 3, 3];
        record.extend((body.len() as u16).to_be_bytes());
        record.extend(body);
        let _ = stream.write_all(&record);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
    }
    assert_eq!(other.query("rows 3").len(), 3);
}

#[test]
fn new_connections_use_new_certificates_and_sessions_stay() {
    let material = Material::new();
    let slot = material.slot();
    let server = start_with(Limits::default(), slot.clone(), None);
    let shown = |raw: &Raw<Tls>| raw.0.conn.peer_certificates().unwrap()[0].to_vec();
    let mut before = connect(&server, &material, &How::default()).unwrap();
    material.write_server(&material.authority.issue("server", 99, 2999));
    slot.set(Some(TlsConfig::load(&material.files).unwrap()));
    let mut after = connect(&server, &material, &How::default()).unwrap();
    assert_ne!(shown(&before), shown(&after));
    assert_eq!((before.query("rows 2").len(), after.query("rows 2").len()), (2, 2));
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let material = Material::new();
    let said = |files: &TlsFiles| TlsConfig::load(files).unwrap_err().to_string();
    let path = |name: &str| material.dir.path().join(name);
    let with = |certificate: &str, key: &str| TlsFiles {
        certificate: path(certificate),
        key: path(key),
        ..material.files.clone()
    };
    assert!(said(&with("none", "server.key")).contains("cannot read a certificate"));
    assert!(
        said(&with("server.key", "server.key")).contains("server.key is not a certificate in PEM: it contains none")
    );
    assert!(
        said(&with("server.crt", "server.crt")).contains("server.crt"),
        "{}",
        said(&with("server.crt", "server.crt"))
    );
    let other = KeyPair::generate().unwrap();
    std::fs::write(path("other.key"), other.serialize_pem()).unwrap();
    std::fs::set_permissions(path("other.key"), PermissionsExt::from_mode(0o600)).unwrap();
    assert!(said(&with("server.crt", "other.key")).contains("cannot be used for TLS"));
    std::fs::set_permissions(path("other.key"), PermissionsExt::from_mode(0o640)).unwrap();
    assert!(said(&with("server.crt", "other.key")).contains("has group or world access"));
    std::fs::write(
        path("encrypted.key"),
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    .unwrap();
    std::fs::set_permissions(path("encrypted.key"), PermissionsExt::from_mode(0o600)).unwrap();
    assert!(said(&with("server.crt", "encrypted.key")).contains("passphrase"));
    let ca = TlsFiles { client_ca: Some(path("server.key")), ..material.files.clone() };
    assert!(said(&ca).contains("is not a CA's certificate in PEM"));
}

#[test]
fn half_open_connections_keep_no_client_out() {
    let material = Material::new();
    let limits = Limits { half_open_max: 20, connections_max: 5, ..Limits::default() };
    let server = start_with(limits, material.slot(), None);
    // Some are silent, some have sent a part of a start-up packet, some stop in TLS's handshake.
    let mut idle = Vec::new();
    for i in 0..100 {
        let mut stream = tcp(&server);
        let part: &[u8] = [&b""[..], b"\0\0\0", SSL_REQUEST, &START[..9]][i % 4];
        stream.write_all(part).unwrap();
        idle.push(stream);
    }
    // Sessions are not among them, and they are not among the sessions.
    let mut sessions: Vec<_> = (0..5).map(|_| connect(&server, &material, &How::default()).unwrap()).collect();
    for _ in 0..30 {
        idle.push(tcp(&server));
    }
    let refused = connect(&server, &material, &How::default()).err().unwrap();
    assert!(refused.contains("53300"), "{refused}");
    assert!(sessions.iter_mut().all(|session| session.query("rows 1").len() == 1));
    for mut first in idle.drain(..80) {
        let mut rest = Vec::new();
        // A connection that was closed with bytes unread is reset.
        let _ = first.read_to_end(&mut rest);
        let rest = rest.strip_prefix(b"S").unwrap_or(&rest);
        assert!(rest.is_empty() || rest == ALERT, "{rest:?}");
    }
}

#[test]
fn a_handshake_that_never_ends_is_cut_off() {
    let material = Material::new();
    let server =
        start_with(Limits { startup_timeout: Duration::from_millis(100), ..Limits::default() }, material.slot(), None);
    let mut stream = tcp(&server);
    stream.write_all(SSL_REQUEST).unwrap();
    assert_eq!(byte(&mut stream), Some(b'S'));
    stream.write_all(&[0x16, 3, 1, 2, 0, 1]).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.is_empty() || rest == ALERT, "{rest:?}");
}

#[test]
fn a_start_up_that_comes_byte_by_byte_is_cut_off() {
    let server = start(Limits { startup_timeout: Duration::from_millis(300), ..Limits::default() });
    let mut stream = tcp(&server);
    // A start-up packet of 10,000 bytes: it would take minutes.
    stream.write_all(&[0, 0, 0x27, 0x10, 0, 3, 0, 0]).unwrap();
    let mut sent = 0;
    while stream.write_all(b"x").is_ok() {
        sent += 1;
        assert!(sent < 10_000, "it was never cut off");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(Raw(stream).is_closed());
}

#[test]
fn a_unix_socket_gives_the_clients_credentials() {
    let dir = tempfile::tempdir().unwrap();
    let material = Material::new();
    let server = start_with(Limits::default(), material.slot(), Some(dir.path()));
    let path = dir.path().join(".s.PGSQL.1");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o777);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(WAIT_MAX)).unwrap();
    // As in PostgreSQL there is no TLS on it.
    stream.write_all(SSL_REQUEST).unwrap();
    assert_eq!(byte(&mut stream), Some(b'N'));
    stream.write_all(START).unwrap();
    let mut raw = Raw(stream);
    raw.try_until('Z').unwrap();
    let [peer] = raw.query("peer").try_into().unwrap();
    let uid = std::fs::metadata(dir.path()).map(|made| std::os::unix::fs::MetadataExt::uid(&made)).unwrap();
    let expected = format!("Unix {{ uid: {uid}");
    assert!(peer.contains(&expected) && peer.contains(&format!("pid: Some({})", std::process::id())), "{peer}");
    assert_eq!(raw.query("rows 100000").len(), 100_000);
    server.stop();
    raw.try_until('E').unwrap();
    drop(server);
    assert!(!Path::exists(&path), "removed by a stop");
}

#[test]
fn a_statement_ends_when_its_client_is_gone() {
    let server = start(Limits { connections_max: 1, ..Limits::default() });
    let mut stream = tcp(&server);
    stream.write_all(b"\0\0\0\x23\0\x03\0\0user\0ann\0database\0watched\0\0").unwrap();
    let mut raw = Raw(stream);
    raw.try_until('Z').unwrap();
    // Nothing else ends this statement; a further request of the same client is not run.
    raw.send("wait");
    raw.send("wait");
    drop(raw);
    loop {
        let mut stream = tcp(&server);
        stream.write_all(START).unwrap();
        match Raw(stream).try_until('Z') {
            Ok(_) => return,
            Err(error) => assert!(error.contains("53300"), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}
