//! Clients' connections from outside: TLS with psql and openssl, certificates that are wrong, reloads, the Unix socket, several
//! addresses, and connections that never complete their start-up.

mod certificates;
mod half_open;
mod reload;
mod sockets;

use crate::server::Running;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// Runs the binary; what it prints on standard output.
fn holdfast(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast")).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", text(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs the binary, which must refuse; what it says.
fn refuses(words: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast")).args(words).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{words:?}: {}", text(&output));
    String::from_utf8(output.stderr).unwrap()
}

/// Everything that a program has printed.
fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A data directory, not yet used, with a certificate for localhost and 127.0.0.1.
fn with_certificate() -> TempDir {
    let dir = TempDir::new().unwrap();
    holdfast(&["cert", "server", "--data", path(dir.path()), "--host", "localhost", "--host", "127.0.0.1"]);
    dir
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn ca(dir: &Path) -> PathBuf {
    dir.join("tls/ca.crt")
}

/// psql with a connection string; its standard output, or what it says on stderr.
fn psql(how: &str, sql: &str) -> Result<String, String> {
    let mut command = Command::new("psql");
    command.args(["-X", "-A", "-t", "-q", how, "-c", sql]).env("PGCONNECT_TIMEOUT", "60").env_remove("PGSSLMODE");
    let output = command.stdin(Stdio::null()).output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned()),
        false => Err(String::from_utf8(output.stderr).unwrap()),
    }
}

/// The beginning of a connection string for this server.
fn to(server: &Running) -> String {
    format!("host=localhost hostaddr=127.0.0.1 port={} user=holdfast dbname=holdfast", server.port)
}

/// `openssl s_client`, which ends at the end of `input`.
fn s_client(server: &Running, options: &[&str], input: &str) -> String {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &format!("127.0.0.1:{}", server.port)]).args(options);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It may have ended already.
    let _ = std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes());
    text(&child.wait_with_output().unwrap())
}
