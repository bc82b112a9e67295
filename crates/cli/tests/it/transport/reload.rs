//! SIGHUP with sessions open.

use super::*;
use crate::server::{one, until};

/// The serial number of the certificate that a new connection gets.
fn serial(server: &Running) -> String {
    let shown = s_client(server, &["-starttls", "postgres", "-showcerts"], "");
    let pem = shown.split_once("-----BEGIN CERTIFICATE-----").expect(&shown).1;
    pem.split_once("-----END").unwrap().0.to_owned()
}

#[tokio::test]
async fn a_reload_changes_new_connections_and_leaves_sessions() {
    let server = Running::start_in(with_certificate());
    let session = server.connect().await;
    session.batch_execute("create temporary table t (a int); insert into t values (7)").await.unwrap();
    let before = serial(&server);
    let tls = server.dir.path().join("tls");
    holdfast(&["cert", "renew", path(&tls)]);
    assert_eq!(serial(&server), before, "read at SIGHUP only");
    server.hang_up();
    until("the new certificate", async || serial(&server) != before).await;
    assert_eq!(one(&session, "select a from t").await, "7");
    // A file that is broken is refused; the certificate stays, and so does the session.
    let now = serial(&server);
    std::fs::write(tls.join("server.crt"), "broken").unwrap();
    server.hang_up();
    until("a line in the log", async || server.log().contains("TLS stays as it is")).await;
    assert!(server.log().contains("server.crt is not a certificate in PEM"), "{}", server.log());
    assert_eq!(serial(&server), now);
    assert_eq!(one(&session, "select a from t").await, "7");
    // Without certificates there is no TLS, on this machine only.
    std::fs::remove_file(tls.join("server.crt")).unwrap();
    std::fs::remove_file(tls.join("server.key")).unwrap();
    server.hang_up();
    until("no TLS", async || psql(&to(&server), "show ssl").as_deref() == Ok("off")).await;
    assert_eq!(one(&session, "select a from t").await, "7");
}

#[tokio::test]
async fn a_server_for_other_machines_keeps_its_tls() {
    let dir = with_certificate();
    let files = dir.path().join("tls");
    std::fs::write(dir.path().join("holdfast.toml"), "").unwrap();
    let server = Running::start_listening(dir, "127.0.0.1:0,0.0.0.0:0");
    std::fs::remove_file(files.join("server.crt")).unwrap();
    std::fs::remove_file(files.join("server.key")).unwrap();
    server.hang_up();
    until("a line in the log", async || server.log().contains("TLS stays as it is")).await;
    assert_eq!(psql(&format!("{} sslmode=require", to(&server)), "show ssl").as_deref(), Ok("on"));
}
