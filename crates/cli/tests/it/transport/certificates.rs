//! TLS with psql and openssl, and certificates that must not work.

use super::*;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use std::os::unix::fs::PermissionsExt;

/// A certificate with these last years, and its CA's: certificate, key, CA.
fn made(name: &str, years: i32) -> [String; 3] {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "another authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let ca = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = date_time_ymd(2015, 1, 1);
    params.not_after = date_time_ymd(years, 12, 31);
    let key = KeyPair::generate().unwrap();
    [params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem(), ca]
}

fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    path
}

#[test]
fn psql_verifies_the_server() {
    let server = Running::start_in(with_certificate());
    let (to, ca) = (to(&server), ca(server.dir.path()));
    let full = format!("{to} sslmode=verify-full sslrootcert={}", path(&ca));
    for version in ["TLSv1.2", "TLSv1.3"] {
        let only = format!("{full} ssl_min_protocol_version={version} ssl_max_protocol_version={version}");
        assert_eq!(psql(&only, "select 40 + 2").as_deref(), Ok("42"));
        let shown = psql(&only, "\\conninfo").unwrap();
        assert!(shown.contains(&format!("SSL connection (protocol: {version}, cipher: ")), "{shown}");
    }
    assert_eq!(psql(&full, "show ssl").as_deref(), Ok("on"));
    // Large answers and large statements.
    let rows = psql(&full, "select g from generate_series(1, 100000) g").unwrap();
    assert_eq!(rows.lines().count(), 100_000);
    let long = format!("select length('{}')", "x".repeat(100_000));
    assert_eq!(psql(&full, &long).as_deref(), Ok("100000"));
    // The name is another one; the CA is another one.
    let other_name = full.replacen("host=localhost", "host=db.example", 1);
    let refused = psql(&other_name, "select 1").unwrap_err();
    assert!(refused.contains("does not match host name \"db.example\""), "{refused}");
    let scratch = TempDir::new().unwrap();
    let [_, _, foreign] = made("x", 2999);
    let foreign = write(scratch.path(), "foreign.crt", &foreign);
    let refused = psql(&format!("{to} sslmode=verify-ca sslrootcert={}", path(&foreign)), "select 1").unwrap_err();
    assert!(refused.contains("certificate verify failed"), "{refused}");
    // TLS is offered, not demanded, on this machine.
    assert_eq!(psql(&format!("{to} sslmode=disable"), "select 1").as_deref(), Ok("1"));
}

#[test]
fn a_server_without_certificates_says_so() {
    let server = Running::start();
    let refused = psql(&format!("{} sslmode=require", to(&server)), "select 1").unwrap_err();
    assert!(refused.contains("server does not support SSL, but SSL was required"), "{refused}");
    assert_eq!(psql(&to(&server), "show ssl").as_deref(), Ok("off"));
}

#[test]
fn openssl_begins_with_and_without_a_request() {
    let server = Running::start_in(with_certificate());
    let by_request = s_client(&server, &["-starttls", "postgres", "-brief"], "");
    assert!(by_request.contains("TLSv1.3") && by_request.contains("CN = localhost"), "{by_request}");
    let direct = s_client(&server, &["-alpn", "postgresql"], "");
    assert!(direct.contains("ALPN protocol: postgresql"), "{direct}");
    // A client of another protocol must not be led here.
    let other = s_client(&server, &["-alpn", "http/1.1"], "GET / HTTP/1.1\r\n\r\n");
    assert!(other.contains("no application protocol"), "{other}");
    let older = s_client(&server, &["-starttls", "postgres", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"], "");
    assert!(older.contains("alert") && older.contains("no peer certificate"), "{older}");
    // A renegotiation is refused; the server serves others.
    let again = s_client(&server, &["-starttls", "postgres", "-tls1_2"], "R\n");
    assert!(again.contains("RENEGOTIATING") && again.contains("no renegotiation"), "{again}");
    assert_eq!(psql(&to(&server), "select 1").as_deref(), Ok("1"));
}

#[test]
fn a_client_shows_its_certificate() {
    let server = Running::start_in(with_certificate());
    let (data, scratch) = (server.dir.path(), TempDir::new().unwrap());
    let out = scratch.path().join("holdfast");
    holdfast(&["cert", "client", "holdfast", "--data", path(data), "--out", path(&out)]);
    let with = |certificate: &Path, key: &Path| {
        let files = format!("sslcert={} sslkey={}", path(certificate), path(key));
        psql(&format!("{} sslmode=verify-full sslrootcert={} {files}", to(&server), path(&ca(data))), "select 1")
    };
    assert_eq!(with(&out.join("client.crt"), &out.join("client.key")).as_deref(), Ok("1"));
    // Of another authority, with the same name.
    let [certificate, key, _] = made("holdfast", 2999);
    let foreign = [write(scratch.path(), "f.crt", &certificate), write(scratch.path(), "f.key", &key)];
    let refused = with(&foreign[0], &foreign[1]).unwrap_err();
    assert!(refused.contains("unknown ca") || refused.contains("connection"), "{refused}");
}

#[test]
fn an_expired_server_certificate_is_reported_and_refused() {
    let (dir, scratch) = (with_certificate(), TempDir::new().unwrap());
    let [certificate, key, ca] = made("localhost", 2020);
    write(dir.path(), "tls/server.crt", &certificate);
    write(dir.path(), "tls/server.key", &key);
    let ca = write(scratch.path(), "other.crt", &ca);
    let server = Running::start_in(dir);
    assert!(server.log().contains("has expired") && server.log().contains("holdfast cert renew"), "{}", server.log());
    let how = format!("{} sslmode=verify-full sslrootcert={}", to(&server), path(&ca));
    let refused = psql(&how, "select 1").unwrap_err();
    assert!(refused.contains("certificate verify failed") || refused.contains("expired"), "{refused}");
    let shown = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(["cert", "show", path(&server.dir.path().join("tls/server.crt"))])
        .output()
        .unwrap();
    assert_eq!(shown.status.code(), Some(1));
    assert!(text(&shown).contains("expired on 2020-12-31"), "{}", text(&shown));
}

#[test]
fn certificates_are_made_shown_and_renewed() {
    let dir = with_certificate();
    let data = path(dir.path());
    let tls = dir.path().join("tls");
    let mode = |name: &str| std::fs::metadata(tls.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(["server.key", "ca.key", "server.crt"].map(mode), [0o600; 3]);
    // Nothing is overwritten.
    let again = refuses(&["cert", "server", "--data", data, "--host", "localhost"]);
    assert!(again.contains("is not overwritten") && again.contains("holdfast cert renew"), "{again}");
    let shown = holdfast(&["cert", "show", "--json", path(&tls)]);
    let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown.as_array().unwrap().len(), 2);
    let server = &shown[1];
    assert_eq!((&server["subject"], &server["expired"]), (&"/CN=localhost".into(), &false.into()));
    assert_eq!(server["hosts"], serde_json::json!(["localhost", "127.0.0.1"]));
    assert!(server["days_left"].as_i64().unwrap() >= 3_650);
    let said = holdfast(&["cert", "renew", path(&tls), "--days", "30"]);
    assert!(said.contains("30 days") || said.contains("31 days"), "{said}");
    let renewed: serde_json::Value =
        serde_json::from_str(&holdfast(&["cert", "show", "--json", path(&tls.join("server.crt"))])).unwrap();
    assert_ne!(renewed[0]["serial"], server["serial"]);
    assert_eq!(renewed[0]["hosts"], server["hosts"]);
    // The server has got another name.
    holdfast(&["cert", "renew", path(&tls), "--host", "localhost", "--host", "db2.example.com"]);
    let renewed: serde_json::Value =
        serde_json::from_str(&holdfast(&["cert", "show", "--json", path(&tls.join("server.crt"))])).unwrap();
    assert_eq!(renewed[0]["hosts"], serde_json::json!(["localhost", "db2.example.com"]));
    // Clients of the master could not verify a standby's certificate by an authority of its own.
    let standby = tempfile::tempdir().unwrap();
    std::fs::write(standby.path().join("standby.toml"), "").unwrap();
    let refused = refuses(&["cert", "server", "--data", path(standby.path()), "--host", "localhost"]);
    assert!(refused.contains("--authority"), "{refused}");
    holdfast(&["cert", "server", "--data", path(standby.path()), "--host", "localhost", "--authority", path(&tls)]);
    // An authority kept elsewhere.
    let safe = dir.path().join("safe");
    std::fs::create_dir(&safe).unwrap();
    std::fs::rename(tls.join("ca.key"), safe.join("ca.key")).unwrap();
    let without = refuses(&["cert", "renew", path(&tls)]);
    assert!(without.contains("--authority"), "{without}");
    holdfast(&["cert", "renew", path(&tls), "--authority", path(&safe)]);
    // A server starts in a directory that has nothing but its certificates.
    std::fs::remove_dir_all(&safe).unwrap();
    let server = Running::start_in(dir);
    let how = format!("{} sslmode=verify-full sslrootcert={}", to(&server), path(&ca(server.dir.path())));
    assert_eq!(psql(&how, "select 1").as_deref(), Ok("1"));
}

#[test]
fn files_that_do_not_fit_keep_the_server_from_starting() {
    let dir = with_certificate();
    let [_, key, _] = made("localhost", 2999);
    let other = write(dir.path(), "tls/server.key", &key);
    let (_, said) = crate::server::fails_to_start(dir.path(), "127.0.0.1:0");
    assert!(said.contains("cannot be used for TLS") && said.contains("server.key"), "{said}");
    std::fs::remove_file(&other).unwrap();
    let (_, said) = crate::server::fails_to_start(dir.path(), "127.0.0.1:0");
    assert!(said.contains("cannot read a private key") && said.contains("server.key"), "{said}");
    // The key is elsewhere, and others can read it.
    let outside = TempDir::new().unwrap();
    let key = write(outside.path(), "k.key", &key);
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::write(dir.path().join("holdfast.toml"), format!("tls_key = \"{}\"\n", path(&key))).unwrap();
    let (_, said) = crate::server::fails_to_start(dir.path(), "127.0.0.1:0");
    assert!(said.contains("has group or world access") && said.contains("chmod 600"), "{said}");
}
