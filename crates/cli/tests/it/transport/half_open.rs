//! Thousands of connections that never complete their start-up, while real clients connect.

use super::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::Write;
use std::net::TcpStream;

const CONNECTIONS: usize = 5_000;

/// Lets this process open so many files.
fn allow_files(count: u64) {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < count) {
        setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum: limit.maximum }).unwrap();
    }
}

fn descriptors(server: &Running) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count()
}

/// What attackers send at first: nothing, half a length, SSLRequest, a start-up packet that lacks its end, half of a record
/// of TLS.
const BEGINNINGS: [&[u8]; 5] =
    [b"", b"\0\0", &[0, 0, 0, 8, 4, 210, 22, 47], b"\0\0\0\x50\0\x03\0\0user\0hold", &[0x16, 3, 1, 2, 0, 1]];

#[test]
fn five_thousand_half_open_connections_keep_no_client_out() {
    allow_files(CONNECTIONS as u64 + 1_000);
    let server = Running::start_in(with_certificate());
    let before = descriptors(&server);
    let how = format!("{} sslmode=verify-full sslrootcert={}", to(&server), path(&ca(server.dir.path())));
    let mut held = Vec::with_capacity(CONNECTIONS);
    for i in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        // It may have been closed for a newer one.
        let _ = stream.write_all(BEGINNINGS[i % BEGINNINGS.len()]);
        held.push(stream);
        if i % 1_000 == 999 {
            assert_eq!(psql(&how, "select 1").as_deref(), Ok("1"), "with {i} half-open connections");
            let now = descriptors(&server);
            assert!(now <= before + 1_000 + 50, "{now} descriptors with {i} half-open connections");
        }
    }
    // They continue byte by byte; real clients come and go.
    for round in 0..5 {
        for stream in &mut held {
            let _ = stream.write_all(&[0]);
        }
        assert_eq!(psql(&how, "select 1").as_deref(), Ok("1"), "round {round}");
        assert_eq!(psql(&to(&server), "select 1").as_deref(), Ok("1"), "round {round}");
    }
    assert!(server.log().contains("half_open_max"), "{}", server.log());
    drop(held);
    let (status, _) = server.stop();
    assert!(status.success());
}
