//! Authentication over TLS with psql: channel binding, lines for encrypted connections only, client certificates.

use super::directory;
use crate::server::{Running, run};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

fn holdfast(words: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast")).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// psql with a connection string; the answer, or what it says.
fn psql(server: &Running, how: &str) -> Result<String, String> {
    let ca = server.dir.path().join("tls/ca.crt");
    let to =
        format!("host=localhost hostaddr=127.0.0.1 port={} dbname=holdfast sslrootcert={}", server.port, path(&ca));
    let mut command = Command::new("psql");
    command.args(["-X", "-A", "-t", "-q", "-w", &format!("{to} {how}"), "-c", "select current_user"]);
    let output = command.env("PGCONNECT_TIMEOUT", "60").stdin(Stdio::null()).output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

const HBA: &str = "host all holdfast 127.0.0.1/32 peer\n\
                   hostssl all app all scram-sha-256\n\
                   hostssl all ann all cert\n\
                   hostssl all staff all scram-sha-256 clientcert=verify-full\n\
                   hostssl all dn all cert clientname=DN map=who\n";

async fn start() -> Running {
    let dir = directory("", Some(HBA));
    std::fs::write(dir.path().join("pg_ident.conf"), "who CN=ann dn\n").unwrap();
    holdfast(&["cert", "server", "--data", path(dir.path()), "--host", "localhost"]);
    let server = Running::start_in(dir);
    let client = server.connect().await;
    run(&client, "CREATE ROLE app LOGIN PASSWORD 'secret'; CREATE ROLE ann LOGIN; CREATE ROLE dn LOGIN").await;
    run(&client, "CREATE ROLE staff LOGIN PASSWORD 'secret'").await;
    server
}

#[tokio::test]
async fn channel_binding_with_a_password() {
    let server = start().await;
    for version in ["TLSv1.2", "TLSv1.3"] {
        let how = format!(
            "user=app password=secret sslmode=verify-full channel_binding=require ssl_min_protocol_version={version} \
             ssl_max_protocol_version={version}"
        );
        assert_eq!(psql(&server, &how).as_deref(), Ok("app"));
    }
    let without = "user=app password=secret sslmode=require channel_binding=disable";
    assert_eq!(psql(&server, without).as_deref(), Ok("app"));
    let wrong = psql(&server, "user=app password=guess sslmode=require channel_binding=require").unwrap_err();
    assert!(wrong.contains("password authentication failed for user \"app\""), "{wrong}");
}

#[tokio::test]
async fn lines_for_tls_do_not_match_without_it() {
    let server = start().await;
    let refused = psql(&server, "user=app password=secret sslmode=disable").unwrap_err();
    let no_entry = "no pg_hba.conf entry for host \"127.0.0.1\", user \"app\", database \"holdfast\", no encryption";
    assert!(refused.contains(no_entry) && refused.contains("Connect with TLS"), "{refused}");
    // The rules decide before the client asks for the binding.
    let required = psql(&server, "user=app password=secret sslmode=disable channel_binding=require").unwrap_err();
    assert!(required.contains(no_entry), "{required}");
}

#[tokio::test]
async fn certificates_of_clients() {
    let server = start().await;
    let data = path(server.dir.path()).to_owned();
    let scratch = TempDir::new().unwrap();
    let certificate = |name: &str| {
        let out = scratch.path().join(name);
        holdfast(&["cert", "client", name, "--data", &data, "--out", path(&out)]);
        format!("sslcert={} sslkey={}", path(&out.join("client.crt")), path(&out.join("client.key")))
    };
    let (ann, bob, staff) = (certificate("ann"), certificate("bob"), certificate("staff"));
    let with = |user: &str, certificate: &str| psql(&server, &format!("user={user} sslmode=require {certificate}"));
    assert_eq!(with("ann", &ann).as_deref(), Ok("ann"));
    let none = with("ann", "sslcert=/nonexistent").unwrap_err();
    assert!(none.contains("connection requires a valid client certificate"), "{none}");
    let other = with("ann", &bob).unwrap_err();
    assert!(other.contains("certificate authentication failed for user \"ann\""), "{other}");
    assert!(server.log().contains("the certificate's name \"bob\" may not be this role"), "{}", server.log());
    // Both: the password, and a certificate with the role's name.
    let both = |certificate: &str| with("staff", &format!("password=secret {certificate}"));
    assert_eq!(both(&staff).as_deref(), Ok("staff"));
    let wrong_name = both(&bob).unwrap_err();
    assert!(wrong_name.contains("password authentication failed for user \"staff\""), "as in PostgreSQL: {wrong_name}");
    assert!(with("staff", &staff).is_err(), "no password");
    // By the distinguished name.
    assert_eq!(with("dn", &ann).as_deref(), Ok("dn"));
    assert!(with("dn", &bob).is_err());
}
