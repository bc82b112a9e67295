//! Clients that mean harm, or do not follow the protocol.

use super::{ON, ask, get, metric, port_of, read, send};
use crate::node::{Pair, one, run, succeeds};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Connections of [`holdfast_web::limits::CONNECTIONS_MAX`], and some more.
const MANY: usize = 200;

/// A console session: its cookie, and its token.
pub fn log_in(port: u16, data: &str) -> (String, String) {
    let said = succeeds(&["console", "--data", data]);
    let ticket = said.trim().split_once("#ticket=").unwrap().1;
    let body = format!("{{\"ticket\": \"{ticket}\"}}");
    let answer = ask(port, "POST", "/api/login", "Content-Type: application/json\r\n", &body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let cookie = answer.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    (cookie.split(';').next().unwrap().to_owned(), answer.json()["token"].as_str().unwrap().to_owned())
}

#[test]
fn what_is_no_request_is_refused_and_the_server_goes_on() {
    let pair = Pair::master(ON);
    let port = port_of(&pair.a);
    let huge = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(100 << 10));
    let many = format!("GET / HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "a: b\r\n".repeat(500));
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(100 << 10));
    for bytes in [huge.as_bytes(), many.as_bytes(), long.as_bytes()] {
        let answer = send(port, bytes);
        assert!(answer.is_none_or(|answer| (400..=431).contains(&answer.status)));
    }
    for bytes in [
        &b"\x00\xff\xfe garbage\r\n\r\n"[..],
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"POST /api/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET /\r\nmetrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(bytes).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let text = String::from_utf8_lossy(&answer);
        assert!(text.is_empty() || text.starts_with("HTTP/1.1 4") || text.starts_with("HTTP/1.0 4"), "{bytes:?}: {text}");
    }
    for path in
        ["/../holdfast.toml", "//etc/passwd", "/%2e%2e/holdfast.toml", "/console.js/..", "/api", "/metrics/", "/x%00"]
    {
        assert_eq!(get(port, path).status, 404, "{path}");
    }
    assert_eq!(get(port, "/live").status, 200);
}

#[test]
fn a_page_of_another_name_gets_nothing_from_loopback() {
    let pair = Pair::master(ON);
    let port = port_of(&pair.a);
    let with_host =
        |path: &str, host: &str| send(port, format!("GET {path} HTTP/1.1\r\n{host}\r\n").as_bytes()).unwrap().status;
    for path in ["/", "/metrics", "/console.js", "/api/state", "/api/session"] {
        assert_eq!(with_host(path, "Host: evil.example\r\n"), 421, "{path}");
        assert!(with_host(path, &format!("Host: localhost:{port}\r\n")) != 421, "{path}");
        assert!(matches!(with_host(path, "Host: localhost\r\nHost: evil.example\r\n"), 400 | 421), "{path}");
    }
    assert_eq!(with_host("/primary", "Host: whatever.example\r\n"), 200, "load balancers send any Host");
}

#[tokio::test]
async fn every_answer_forbids_frames_and_foreign_script() {
    let pair = Pair::master(ON);
    let port = port_of(&pair.a);
    for path in ["/", "/console.js", "/console.css", "/metrics", "/health", "/nothing", "/api/state"] {
        let answer = get(port, path);
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"), "{path}: {policy}");
        assert!(!policy.contains("unsafe") && policy.contains("frame-ancestors 'none'"), "{path}: {policy}");
        assert_eq!(answer.header("x-frame-options"), Some("DENY"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
    }
    let page = get(port, "/").body;
    assert!(
        !page.contains("style=") && !page.contains("onclick") && !page.contains("http:") && !page.contains("https:")
    );
    assert!(!page.contains("<script>") && !page.contains("<style>"), "nothing inline");
}

#[tokio::test]
async fn actions_need_the_session_its_token_and_its_own_page() {
    let pair = Pair::master(ON);
    let port = port_of(&pair.a);
    assert_eq!(get(port, "/api/state").status, 401);
    let (cookie, token) = log_in(port, pair.a.data());
    let with = |lines: &str| ask(port, "GET", "/api/state", lines, "").status;
    assert_eq!(with(&format!("Cookie: {cookie}\r\n")), 200);
    assert_eq!(with(&format!("Cookie: a=b; {cookie}; c=d\r\n")), 200);
    assert_eq!(with(&format!("Cookie: {cookie}0\r\n")), 401);
    assert_eq!(with(&format!("Cookie: holdfast_console={token}\r\n")), 401);

    let json = "Content-Type: application/json\r\n";
    let act = |lines: &str| ask(port, "POST", "/api/signal", lines, "{\"pid\": 999999, \"kind\": \"cancel\"}").status;
    let own = format!("Cookie: {cookie}\r\nX-CSRF-Token: {token}\r\n{json}");
    assert_eq!(act(&format!("Cookie: {cookie}\r\n{json}")), 403, "without the token");
    assert_eq!(act(&format!("Cookie: {cookie}\r\nX-CSRF-Token: {token}0\r\n{json}")), 403);
    assert_eq!(act(&format!("X-CSRF-Token: {token}\r\n{json}")), 401, "without the cookie");
    assert_eq!(act(&format!("{own}Origin: http://evil.example\r\n")), 403);
    assert_eq!(act(&format!("{own}Sec-Fetch-Site: cross-site\r\n")), 403);
    assert_eq!(act(&own.replace("application/json", "text/plain")), 415, "a form of another page can send that");
    let body = |body: &str| ask(port, "POST", "/api/signal", &own, body).status;
    assert_eq!(body("{\"pid\": \"1\", \"kind\": \"cancel\"}"), 400);
    assert_eq!(body("{\"pid\": 1, \"kind\": \"drop\"}"), 400);
    assert_eq!(body("[[[["), 400);
    assert_eq!(body(&format!("\"{}\"", "x".repeat(100 << 10))), 413);
    assert_eq!(ask(port, "GET", "/api/signal", &own, "").status, 405);

    assert_eq!(ask(port, "POST", "/api/logout", &own, "{}").status, 200);
    assert_eq!(with(&format!("Cookie: {cookie}\r\n")), 401);
}

#[tokio::test]
async fn names_and_statements_arrive_as_text() {
    let pair = Pair::master(ON);
    let port = port_of(&pair.a);
    let script = "<script>alert(1)</script>";
    let client = pair.a.connect().await;
    run(&client, &format!("set application_name = '{script}'")).await;
    assert_eq!(one(&client, &format!("select '{script}'")).await, script);
    let (cookie, _) = log_in(port, pair.a.data());
    let state = ask(port, "GET", "/api/state", &format!("Cookie: {cookie}\r\n"), "");
    assert_eq!(state.header("content-type"), Some("application/json"));
    let sessions = state.json()["sessions"].clone();
    let ours = sessions.as_array().unwrap().iter().find(|one| one["application"] == script);
    assert!(ours.is_some_and(|one| one["query"].as_str().unwrap().contains(script)), "{sessions}");
}

#[test]
fn logins_are_throttled_and_tell_nothing() {
    let pair = Pair::master(ON);
    let port = port_of(&pair.a);
    let login = |body: &str| ask(port, "POST", "/api/login", "Content-Type: application/json\r\n", body);
    let wrong = login("{\"role\": \"holdfast\", \"password\": \"x\"}");
    let unknown = login("{\"role\": \"nobody\", \"password\": \"x\"}");
    assert_eq!((wrong.status, unknown.status), (401, 401));
    assert_eq!(wrong.body.replace("holdfast", "nobody"), unknown.body);
    assert!(wrong.header("set-cookie").is_none());
    // They count and are logged like the failures of clients.
    let failures = || metric(&get(port, "/metrics").body, "holdfast_authentication_failures_total");
    assert_eq!(failures(), Some(2.0));
    for (user, why) in [("holdfast", "the role has no password"), ("nobody", "the role does not exist")] {
        let log = pair.a.log();
        let is_it = |line: &&str| line.contains(&format!("{user:?}")) && line.contains("authentication failed");
        let line = log.lines().find(is_it).unwrap_or_else(|| panic!("{user}: {log}"));
        assert!(line.contains(why) && line.contains("127.0.0.1") && line.contains("console"), "{line}");
    }
    assert_eq!(login("{\"ticket\": \"1-0-0\"}").status, 401);
    assert_eq!(failures(), Some(3.0));
    let mut last = unknown;
    for n in 0..20 {
        last = login(&format!("{{\"ticket\": \"{n}-0-0\"}}"));
    }
    assert_eq!(last.status, 429, "{last:?}");
    assert!(last.header("retry-after").unwrap().parse::<u64>().unwrap() <= 61);
    let good = succeeds(&["console", "--data", pair.a.data()]);
    let ticket = good.trim().split_once("#ticket=").unwrap().1;
    assert_eq!(login(&format!("{{\"ticket\": \"{ticket}\"}}")).status, 429, "also with what would be right");
}

/// Each of many clients sends a request one byte at a time; checks are answered all the same, and the clients are disconnected.
#[test]
fn slow_clients_cannot_keep_a_check_out() {
    let pair = Pair::master(ON);
    let port = port_of(&pair.a);
    let mut slow: Vec<TcpStream> = Vec::new();
    for _ in 0..MANY {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(b"GET / HT").unwrap();
        slow.push(stream);
        assert_eq!(get(port, "/primary").status, 200);
    }
    let mut ended = 0;
    for stream in &mut slow {
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut rest = Vec::new();
        ended += usize::from(stream.read_to_end(&mut rest).is_ok() || rest.is_empty());
    }
    assert_eq!(ended, MANY, "none may stay");
    assert_eq!(get(port, "/primary").status, 200);
}

#[test]
fn a_connection_is_used_again() {
    let pair = Pair::master(ON);
    let port = port_of(&pair.a);
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    for _ in 0..3 {
        stream.write_all(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        assert_eq!(read(&mut stream).unwrap().status, 200);
    }
}
