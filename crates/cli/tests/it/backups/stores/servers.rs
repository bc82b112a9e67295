//! Servers that speak the protocols of object stores: moto (S3), Azurite (Azure), fake-gcs-server (Google).
//!
//! They are found on PATH, or by HOLDFAST_TEST_MOTO, HOLDFAST_TEST_AZURITE and HOLDFAST_TEST_GCS, the paths of `moto_server`,
//! `azurite-blob` and `fake-gcs-server`:
//!
//! ```text
//! pip install 'moto[server]==5.2.5'
//! npm install azurite@3.35.0
//! go install github.com/fsouza/fake-gcs-server@v1.56.0
//! ```
//!
//! `.ci/run` installs them. Google's stores are used through their XML interface, whose PUT no release of fake-gcs-server has
//! (github.com/fsouza/fake-gcs-server, issue 331): it answers "invalid uploadType". The proxy turns that one request into the
//! JSON interface's upload; lists, reads and removals are those of the XML interface.

use super::proxy::Proxy;
use holdfast_seams::testing::{Patience, port};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A server with an empty bucket, behind a proxy.
pub struct StoreServer {
    child: Child,
    pub proxy: Proxy,
    /// `s3://bucket`.
    pub url: &'static str,
    /// What the programs that use it need in their environment.
    pub env: Vec<(String, String)>,
    _dir: TempDir,
}

impl Drop for StoreServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The well-known account of Azure's emulators.
const AZURE_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

impl StoreServer {
    /// `None`: it is not installed, as for the next.
    pub fn s3() -> Option<StoreServer> {
        let port = port();
        let mut command = program("HOLDFAST_TEST_MOTO", "moto_server");
        command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        let (child, dir) = start(command, port)?;
        http(port, "PUT /bucket HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        let proxy = Proxy::to(port);
        let env = [
            ("AWS_ENDPOINT", format!("http://127.0.0.1:{}", proxy.port)),
            ("AWS_ALLOW_HTTP", "true".to_owned()),
            ("AWS_ACCESS_KEY_ID", "test".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "test".to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_TIMEOUT", "3 seconds".to_owned()),
        ];
        Some(StoreServer { child, proxy, url: "s3://bucket", env: texts(&env), _dir: dir })
    }

    pub fn azure() -> Option<StoreServer> {
        let port = port();
        let dir = TempDir::new().unwrap();
        let mut command = program("HOLDFAST_TEST_AZURITE", "azurite-blob");
        command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string(), "--silent", "--skipApiVersionCheck"]);
        command.arg("--location").arg(dir.path());
        let (child, _) = start(command, port)?;
        make_container(port);
        let proxy = Proxy::to(port);
        let env = [
            ("AZURE_STORAGE_USE_EMULATOR", "true".to_owned()),
            ("AZURITE_BLOB_STORAGE_URL", format!("http://127.0.0.1:{}", proxy.port)),
            ("AZURE_ALLOW_HTTP", "true".to_owned()),
            ("AZURE_TIMEOUT", "3 seconds".to_owned()),
        ];
        Some(StoreServer { child, proxy, url: "az://bucket", env: texts(&env), _dir: dir })
    }

    pub fn google() -> Option<StoreServer> {
        let port = port();
        let mut command = program("HOLDFAST_TEST_GCS", "fake-gcs-server");
        command.args(["-scheme", "http", "-host", "127.0.0.1", "-backend", "memory", "-port", &port.to_string()]);
        let proxy = Proxy::to_json_uploads(port);
        // The part of its interface that object_store uses is served under this name only.
        command.args(["-public-host", &format!("127.0.0.1:{}", proxy.port)]);
        let (child, dir) = start(command, port)?;
        let content = "{\"name\": \"bucket\"}";
        let head = "POST /storage/v1/b HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n";
        http(port, &format!("{head}Content-Length: {}\r\n\r\n{content}", content.len()));
        let key = dir.path().join("key.json");
        let content = format!(
            "{{\"gcs_base_url\": \"http://127.0.0.1:{}\", \"disable_oauth\": true, \"client_email\": \"\", \"private_key\": \"\", \
             \"private_key_id\": \"\"}}",
            proxy.port
        );
        std::fs::write(&key, content).unwrap();
        let env = [
            ("GOOGLE_SERVICE_ACCOUNT", key.display().to_string()),
            ("GOOGLE_ALLOW_HTTP", "true".to_owned()),
            ("GOOGLE_TIMEOUT", "3 seconds".to_owned()),
        ];
        Some(StoreServer { child, proxy, url: "gs://bucket", env: texts(&env), _dir: dir })
    }
}

fn texts(env: &[(&str, String)]) -> Vec<(String, String)> {
    env.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

fn program(variable: &str, name: &str) -> Command {
    let mut command = Command::new(std::env::var_os(variable).unwrap_or_else(|| name.into()));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Starts it, and waits until it takes connections.
fn start(mut command: Command, port: u16) -> Option<(Child, TempDir)> {
    let dir = TempDir::new().unwrap();
    let mut child = command.current_dir(dir.path()).spawn().ok()?;
    let mut patience = Patience::new();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(child.try_wait().unwrap().is_none(), "the object store has ended");
        patience.look("the object store takes connections");
        std::thread::sleep(Duration::from_millis(50));
    }
    Some((child, dir))
}

/// One request, which must succeed.
fn http(port: u16, request: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.split(' ').nth(1).is_some_and(|status| status.starts_with('2')), "{answer}");
}

/// Azurite wants signed requests.
fn make_container(port: u16) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/backups/stores/azure_container.py");
    let made = Command::new("python3").arg(script).args([&port.to_string(), "bucket", AZURE_KEY]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
}
