//! The Unix socket, several addresses, and what SHOW has of them.

use super::*;
use crate::server::{fails_to_start, one, run, state, until};
use std::net::TcpListener;

fn unix(dir: &Path, port: u16) -> String {
    format!("host={} port={port} user=holdfast dbname=holdfast", path(dir))
}

#[test]
fn psql_connects_over_the_unix_socket() {
    let server = Running::start();
    let (dir, port) = (server.dir.path().to_owned(), server.port);
    let socket = dir.join(format!(".s.PGSQL.{port}"));
    assert_eq!(psql(&unix(&dir, port), "show unix_socket_directories").as_deref(), Ok(path(&dir)));
    assert_eq!(psql(&unix(&dir, port), "show port"), Ok(port.to_string()));
    // A killed server leaves the socket; the next one replaces it.
    let dir = server.kill();
    assert!(socket.exists());
    let refused = psql(&unix(dir.path(), port), "select 1").unwrap_err();
    assert!(refused.contains("Connection refused"), "{refused}");
    let server = Running::start_listening(dir, &format!("127.0.0.1:{port}"));
    assert_eq!(psql(&unix(server.dir.path(), port), "select 1").as_deref(), Ok("1"));
    let (status, dir) = server.stop();
    assert!(status.success());
    assert!(!socket.exists() && !dir.path().join(format!(".s.PGSQL.{port}.lock")).exists());
}

#[test]
fn a_socket_directory_of_ones_own() {
    let (dir, sockets) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let set =
        |to: &str| std::fs::write(dir.path().join("holdfast.toml"), format!("unix_socket_directory = \"{to}\"\n"));
    set("/nowhere").unwrap();
    let (_, said) = fails_to_start(dir.path(), "127.0.0.1:0");
    assert!(said.contains("/nowhere") && said.contains("unix_socket_directory"), "{said}");
    set(&"x".repeat(120)).unwrap();
    let (_, said) = fails_to_start(dir.path(), "127.0.0.1:0");
    assert!(said.contains("the limit is 107 bytes"), "{said}");
    set(path(sockets.path())).unwrap();
    let server = Running::start_in(dir);
    assert_eq!(psql(&unix(sockets.path(), server.port), "select 1").as_deref(), Ok("1"));
    // Another server for the same socket.
    let other = TempDir::new().unwrap();
    let same = format!("unix_socket_directory = \"{}\"\n", path(sockets.path()));
    std::fs::write(other.path().join("holdfast.toml"), same).unwrap();
    let (_, said) = fails_to_start(other.path(), &format!("127.0.0.2:{}", server.port));
    assert!(said.contains("another server uses it"), "{said}");
    assert_eq!(psql(&unix(sockets.path(), server.port), "select 1").as_deref(), Ok("1"));
}

#[test]
fn a_data_directory_with_a_long_path_has_no_socket_and_serves() {
    let dir = TempDir::new().unwrap();
    let long = dir.path().join("x".repeat(100));
    let server = Running::start_on(&long);
    assert_eq!(psql(&to(&server), "show unix_socket_directories").as_deref(), Ok(""));
}

#[test]
fn several_addresses() {
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let second = free();
    let server = Running::start_listening(TempDir::new().unwrap(), &format!("127.0.0.1:0, 127.0.0.2:{second}"));
    let at = |host: &str, port: u16| format!("host={host} port={port} user=holdfast dbname=holdfast");
    assert_eq!(psql(&at("127.0.0.1", server.port), "show listen_addresses").as_deref(), Ok("127.0.0.1,127.0.0.2"));
    assert_eq!(psql(&at("127.0.0.2", second), "select 1").as_deref(), Ok("1"));
    // One that is in use keeps the server from starting.
    let dir = TempDir::new().unwrap();
    let (_, said) = fails_to_start(dir.path(), &format!("127.0.0.1:0,127.0.0.2:{second}"));
    assert!(said.contains(&format!("another program uses port {second}")), "{said}");
}

#[tokio::test]
async fn limits_are_shown_and_a_lost_client_ends_its_statement() {
    let dir = TempDir::new().unwrap();
    let text = "startup_timeout_ms = \"90s\"\ntcp_keepalives_idle_ms = \"2min\"\n";
    std::fs::write(dir.path().join("holdfast.toml"), text).unwrap();
    let server = Running::start_in(dir);
    let session = server.connect().await;
    for (name, value) in [
        ("authentication_timeout", "90s"),
        ("tcp_keepalives_idle", "120"),
        ("client_connection_check_interval", "0"),
        ("ssl_min_protocol_version", "TLSv1.2"),
    ] {
        assert_eq!(one(&session, &format!("show {name}")).await, value, "{name}");
    }
    let count = "select count(*) from pg_stat_activity where query like '%endless%' and pid <> pg_backend_pid()";
    let check = "set client_connection_check_interval = '20ms'";
    let endless =
        "with recursive endless(n) as (select 1 union all select n + 1 from endless) select count(*) from endless";
    let mut client = Command::new("psql").args(["-X", "-q", &to(&server), "-c", check, "-c", endless]).spawn().unwrap();
    until("the statement runs", async || one(&session, count).await == "1").await;
    // SIGKILL: no message says goodbye.
    client.kill().unwrap();
    client.wait().unwrap();
    until("the statement has ended", async || one(&session, count).await == "0").await;
}

/// The timer of the server's end of a connection over 127.0.0.1: 2 is that of keepalives, and the seconds until it fires.
fn timer(server_port: u16, client_port: u16) -> (u8, u64) {
    let (local, remote) = (format!("0100007F:{server_port:04X}"), format!("0100007F:{client_port:04X}"));
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let columns = table.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    let line = columns.into_iter().find(|c| c[1] == local && c[2] == remote).unwrap();
    let (timer, ticks) = line[5].split_once(':').unwrap();
    (timer.parse().unwrap(), u64::from_str_radix(ticks, 16).unwrap() / 100)
}

/// In how many seconds the kernel sends the next keepalive probe.
async fn next_probe_s(server_port: u16, client_port: u16) -> u64 {
    // Until the client's end has acknowledged everything, another timer runs.
    until("everything is acknowledged", async || timer(server_port, client_port).0 == 2).await;
    timer(server_port, client_port).1
}

#[tokio::test]
async fn a_session_sets_when_a_silent_client_counts_as_gone() {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("holdfast.toml"), "tcp_keepalives_idle_ms = \"2000s\"\n").unwrap();
    let server = Running::start_in(dir);
    let session = server.connect().await;
    let port: u16 = one(&session, "select inet_client_port()").await.parse().unwrap();
    let is_near = async |seconds: u64| {
        let next = next_probe_s(server.port, port).await;
        assert!((seconds - 500..=seconds).contains(&next), "{next}, not {seconds}");
    };
    is_near(2000).await;
    for (set, show, value) in [
        ("set tcp_keepalives_idle = 5000", "tcp_keepalives_idle", "5000"),
        ("set tcp_keepalives_interval = '2min'", "tcp_keepalives_interval", "120"),
        ("set tcp_keepalives_count = 4", "tcp_keepalives_count", "4"),
        ("set tcp_user_timeout = '3s'", "tcp_user_timeout", "3000"),
    ] {
        run(&session, set).await;
        assert_eq!(one(&session, &format!("show {show}")).await, value, "{set}");
    }
    is_near(5000).await;
    run(&session, "begin; set tcp_keepalives_idle = 9000").await;
    is_near(9000).await;
    run(&session, "rollback").await;
    is_near(5000).await;
    // The system's default.
    run(&session, "set tcp_keepalives_idle = 0").await;
    let default: u64 =
        std::fs::read_to_string("/proc/sys/net/ipv4/tcp_keepalive_time").unwrap().trim().parse().unwrap();
    is_near(default).await;
    run(&session, "reset tcp_keepalives_idle").await;
    is_near(2000).await;
    for wrong in ["tcp_keepalives_idle = -1", "tcp_keepalives_interval = 'x'", "tcp_user_timeout = -1"] {
        assert_eq!(state(&session, &format!("set {wrong}")).await.unwrap().code(), "22023", "{wrong}");
    }
    let own = server.connect_with("user=holdfast dbname=holdfast options='-c tcp_keepalives_idle=7000'").await;
    let port: u16 = one(&own, "select inet_client_port()").await.parse().unwrap();
    let next = next_probe_s(server.port, port).await;
    assert!((6500..=7000).contains(&next), "{next}");
}
