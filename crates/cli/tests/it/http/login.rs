//! Who gets into the console, what each may do there, and when a session ends.

use super::{Answer, ON, ask, get, port_of};
use crate::node::{Pair, one, run, until};
use tokio_postgres::error::SqlState;

const JSON: &str = "Content-Type: application/json\r\n";

fn log_in(port: u16, role: &str, password: &str) -> Answer {
    let body = serde_json::json!({ "role": role, "password": password }).to_string();
    ask(port, "POST", "/api/login", JSON, &body)
}

/// The header lines of the session that a login has opened.
fn session(login: &Answer) -> String {
    assert_eq!(login.status, 200, "{login:?}");
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    format!("Cookie: {cookie}\r\nX-CSRF-Token: {}\r\n{JSON}", login.json()["token"].as_str().unwrap())
}

fn state(port: u16, session: &str) -> u16 {
    ask(port, "GET", "/api/state", session, "").status
}

fn signal(port: u16, session: &str, pid: &str, kind: &str) -> Answer {
    ask(port, "POST", "/api/signal", session, &format!("{{\"pid\": {pid}, \"kind\": \"{kind}\"}}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_log_in_with_their_password_and_a_session_ends_with_it() {
    let pair = Pair::master(ON);
    let port = port_of(&pair.a);
    let admin = pair.a.connect().await;
    run(&admin, "create role ops login password 'first'; grant pg_monitor to ops").await;
    run(&admin, "create role app login password 'app'; create role late login password 'x' valid until '2001-01-01'")
        .await;
    run(&admin, "create role group_ password 'x'; grant pg_monitor to group_, late").await;

    let ops = session(&log_in(port, "ops", "first"));
    assert_eq!(state(port, &ops), 200);
    let wrong: Vec<u16> =
        [("ops", "First"), ("ops", ""), ("late", "x"), ("group_", "x"), ("none", "x"), ("holdfast", "")]
            .map(|(role, password)| log_in(port, role, password).status)
            .to_vec();
    assert_eq!(wrong, [401; 6]);
    let app = log_in(port, "app", "app");
    assert_eq!(app.status, 403, "{app:?}");
    assert!(app.body.contains("pg_monitor") && app.header("set-cookie").is_none(), "{app:?}");

    run(&admin, "alter role ops password 'second'").await;
    until("the session has ended", async || state(port, &ops) == 401).await;
    assert_eq!(log_in(port, "ops", "first").status, 401);
    let ops = session(&log_in(port, "ops", "second"));
    assert_eq!(state(port, &ops), 200);
    run(&admin, "revoke pg_monitor from ops").await;
    until("it may not look any more", async || state(port, &ops) == 401).await;
    run(&admin, "grant pg_monitor to ops").await;
    let ops = session(&log_in(port, "ops", "second"));
    run(&admin, "drop role ops").await;
    until("the role is gone", async || state(port, &ops) == 401).await;
    let failed = "holdfast_authentication_failures_total";
    assert_eq!(super::metric(&get(port, "/metrics").body, failed), Some(7.0), "of the console");
    let config = format!("host=127.0.0.1 port={} user=nobody_ password=x dbname=holdfast", pair.a.port);
    assert!(tokio_postgres::connect(&config, tokio_postgres::NoTls).await.is_err());
    assert_eq!(super::metric(&get(port, "/metrics").body, failed), Some(8.0), "and of the SQL port");
    assert_eq!(get(port, "/api/session").json()["role"], serde_json::Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_and_terminating_need_what_they_need_in_sql() {
    let pair = Pair::master(ON);
    let port = port_of(&pair.a);
    let admin = pair.a.connect().await;
    run(&admin, "create role ops login password 'ops'; grant pg_monitor to ops").await;
    run(&admin, "create role app login password 'app'").await;
    let app = pair.a.connect_with("user=app password=app dbname=holdfast").await;
    let (admins, apps) = (one(&admin, "select pg_backend_pid()").await, one(&app, "select pg_backend_pid()").await);
    let ops = session(&log_in(port, "ops", "ops"));
    let sleeping = tokio::spawn(async move { (app.batch_execute("select pg_sleep(3600)").await, app) });

    let refused = signal(port, &ops, &apps, "cancel");
    assert_eq!(refused.status, 403, "{refused:?}");
    assert!(refused.body.contains("pg_signal_backend"), "{refused:?}");
    run(&admin, "grant pg_signal_backend to ops").await;
    let refused = signal(port, &ops, &admins, "terminate");
    assert!(refused.status == 403 && refused.body.contains("superuser"), "{refused:?}");
    assert_eq!(signal(port, &ops, "999999", "cancel").status, 403, "there is no such session");
    assert_eq!(signal(port, &ops, &apps, "cancel").status, 200);
    let (cancelled, app) = sleeping.await.unwrap();
    assert_eq!(cancelled.unwrap_err().code(), Some(&SqlState::QUERY_CANCELED));
    assert_eq!(signal(port, &ops, &apps, "terminate").status, 200);
    until("the session has ended", async || app.is_closed()).await;
}
