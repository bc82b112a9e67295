//! ParameterStatus and the start-up packet's `options`, byte by byte: PostgreSQL and Holdfast send the same messages.

use super::against_postgresql::{on, postgresql};
use crate::server::{Running, one, run};
use holdfast_testbed::oracle::PORT;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use tempfile::TempDir;

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// A client that shows the messages it gets.
struct Wire(Box<dyn Stream>);

impl Wire {
    /// Connects; the messages of the start that tell something: errors, and the parameters of `shown`.
    fn start(stream: impl Stream + 'static, parameters: &[(&str, &str)], shown: &[&str]) -> (Wire, Vec<String>) {
        let mut wire = Wire(Box::new(stream));
        let mut body = 196_608u32.to_be_bytes().to_vec();
        for (name, value) in [("database", "holdfast")].iter().chain(parameters) {
            body.extend([name.as_bytes(), b"\0", value.as_bytes(), b"\0"].concat());
        }
        body.push(0);
        let length = (body.len() as u32 + 4).to_be_bytes();
        wire.0.write_all(&[&length[..], &body].concat()).unwrap();
        let mut said = wire.messages();
        said.retain(|line| line.starts_with('E') || shown.iter().any(|name| line.starts_with(&format!("S {name} "))));
        (wire, said)
    }

    /// Messages up to ReadyForQuery, or to the end.
    fn messages(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        loop {
            let mut head = [0; 5];
            if self.0.read_exact(&mut head).is_err() {
                return said;
            }
            let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]);
            let mut body = vec![0; length as usize - 4];
            self.0.read_exact(&mut body).unwrap();
            let text = String::from_utf8_lossy(&body).into_owned();
            let fields: Vec<&str> = text.split('\0').filter(|field| !field.is_empty()).collect();
            match head[0] {
                b'S' => said.push(format!("S {} {}", fields[0], fields.get(1).unwrap_or(&""))),
                // Severity, SQLSTATE and text.
                kind @ (b'E' | b'N') => {
                    let field = |of: char| fields.iter().find_map(|field| field.strip_prefix(of)).unwrap_or("");
                    said.push(format!("{} {} {} {}", kind as char, field('V'), field('C'), field('M')));
                }
                b'C' => said.push(format!("C {}", fields[0])),
                b'D' => said.push(format!("D {:?}", &body[2..])),
                b'Z' => {
                    said.push(format!("Z {text}"));
                    return said;
                }
                _ => {}
            }
        }
    }

    fn query(&mut self, sql: &str) -> Vec<String> {
        let length = (sql.len() as u32 + 5).to_be_bytes();
        self.0.write_all(&[b"Q", &length[..], sql.as_bytes(), b"\0"].concat()).unwrap();
        let mut said = vec![format!("> {sql}")];
        said.extend(self.messages());
        said
    }
}

const ROLES: &str = "create role ann login; create role bob login superuser; create role team; grant team to ann";

/// Every local client is whom it says.
fn trusting() -> Running {
    let dir = TempDir::new().unwrap();
    std::fs::write(dir.path().join("holdfast.toml"), "").unwrap();
    std::fs::write(dir.path().join("pg_hba.conf"), "host all all 127.0.0.1/32 trust\n").unwrap();
    Running::start_in(dir)
}

#[tokio::test]
async fn changed_parameters_are_reported_as_by_postgresql() {
    let Some(postgres) = postgresql() else { return };
    let server = trusting();
    run(&server.connect().await, ROLES).await;
    on(&postgres, "holdfast", ROLES);
    let theirs = UnixStream::connect(postgres.socket().join(format!(".s.PGSQL.{PORT}"))).unwrap();
    let ours = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let shown = ["is_superuser", "session_authorization"];
    let (mut theirs, start) = Wire::start(theirs, &[("user", "holdfast")], &shown);
    let (mut ours, our_start) = Wire::start(ours, &[("user", "holdfast")], &shown);
    assert_eq!(start, our_start);
    let mut reports = 0;
    for sql in [
        "begin",
        "set role ann",
        "rollback",
        "begin; set session authorization ann",
        "rollback",
        "begin",
        "set session authorization ann",
        "savepoint a",
        "set role team",
        "reset session authorization",
        "rollback to a",
        "select 1/0",
        "rollback to a",
        "commit",
        "begin",
        "set application_name = 'q'",
        "set session authorization ann",
        "select 1/0",
        "rollback",
        "begin",
        "set application_name = 'q'",
        "savepoint a",
        "set application_name = 'r'",
        "set role team",
        "select 1/0",
        "rollback to a",
        "set role bob",
        "commit",
        "reset role",
        "reset application_name",
        "set role team",
        "set role bob",
        "reset session authorization",
        "begin",
        "set application_name = 'x'",
        "set default_transaction_read_only = on",
        "rollback",
        "begin",
        "set local application_name = 'y'",
        "commit",
        "begin",
        "set local session authorization ann",
        "commit",
        "set application_name = 'z'; select 1/0",
        "show application_name",
        "set application_name = 'z'; set application_name = ''",
        "set application_name = 'z'",
        "set session authorization bob",
        "begin",
        "reset all",
        "rollback",
        "discard all",
    ] {
        let (expected, got) = (theirs.query(sql), ours.query(sql));
        assert_eq!(expected, got, "{sql}");
        reports += expected.iter().filter(|line| line.starts_with("S ")).count();
    }
    assert!(reports > 20, "{reports}");
}

/// A setting of the start-up packet is checked like SET.
#[tokio::test]
async fn start_up_options_are_refused_as_by_postgresql() {
    let Some(postgres) = postgresql() else { return };
    let server = trusting();
    run(&server.connect().await, ROLES).await;
    on(&postgres, "holdfast", ROLES);
    let refused_later = [
        "-c deadlock_timeout=5s",
        "-c Deadlock_Timeout=5s",
        "--deadlock-timeout=5s",
        "-clog_statement=all",
        "-c log_min_duration_statement=0",
        "-c log_connections=on",
        "-c lc_messages=C",
        "-c server_version=3",
        "-c is_superuser=on",
        "-c nosuch=1",
        "-c lock_timeout=soon",
        "-c lock_timeout",
        "-c",
        "nonsense",
    ];
    let accepted = ["-c my.parameter=1", "--lock-timeout=5s", "-clock_timeout=6s", "-c lock_timeout=7s -c my.x=a\\ b"];
    for user in ["ann", "bob"] {
        for options in refused_later.into_iter().chain(accepted) {
            let said = |stream: Box<dyn Stream>| {
                let (mut wire, said) = Wire::start(stream, &[("user", user), ("options", options)], &["is_superuser"]);
                let shown = if said.iter().any(|line| line.starts_with('E')) {
                    Vec::new()
                } else {
                    [wire.query("show lock_timeout"), wire.query("select current_setting('my.x', true)")].concat()
                };
                (said, shown)
            };
            let theirs =
                said(Box::new(UnixStream::connect(postgres.socket().join(format!(".s.PGSQL.{PORT}"))).unwrap()));
            let ours = said(Box::new(TcpStream::connect(("127.0.0.1", server.port)).unwrap()));
            assert_eq!(theirs, ours, "{user} {options}");
        }
    }
    // Also without `options`.
    for (name, value) in [("deadlock_timeout", "5s"), ("nosuch", "1"), ("my.x", "1"), ("log_statement", "all")] {
        let said = |stream: Box<dyn Stream>| Wire::start(stream, &[("user", "ann"), (name, value)], &[]).1;
        let theirs = said(Box::new(UnixStream::connect(postgres.socket().join(format!(".s.PGSQL.{PORT}"))).unwrap()));
        assert_eq!(theirs, said(Box::new(TcpStream::connect(("127.0.0.1", server.port)).unwrap())), "{name}");
    }
}

/// A transaction sees its own changes of roles, and no other session does.
#[tokio::test]
async fn other_sessions_see_roles_when_they_are_committed() {
    let server = Running::start();
    let (own, other) = (server.connect().await, server.connect().await);
    let count = "select count(*) from pg_roles where rolname = 'new'";
    let member =
        "select count(*) from pg_auth_members a join pg_roles r on r.oid = a.roleid where r.rolname = 'pg_monitor'";
    run(&own, "begin; create role new; grant pg_monitor to new").await;
    assert_eq!([one(&own, count).await, one(&own, member).await], ["1", "1"]);
    assert_eq!([one(&other, count).await, one(&other, member).await], ["0", "0"]);
    run(&own, "commit").await;
    assert_eq!([one(&other, count).await, one(&other, member).await], ["1", "1"]);
    run(&own, "begin; drop role new").await;
    assert_eq!([one(&own, count).await, one(&other, count).await], ["0", "1"]);
    run(&own, "rollback").await;
    assert_eq!(one(&own, count).await, "1");
}
