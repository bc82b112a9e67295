//! SIGTERM ends every statement, whatever it is at.

use super::raw::RawClient;
use crate::server::{Running, one, run, until};

/// Each would run for hours, or without an end.
const ENDLESS: [&str; 8] = [
    "select pg_sleep(86400)",
    "select repeat('x', 1000000) from generate_series(1, 1000000000)",
    "with recursive r(n) as (select 1 union all select n + 1 from r where n > 0) select count(*) from r",
    "insert into s select pg_sleep(86400)",
    "insert into t select g from generate_series(1, 10000000000) g",
    "begin; insert into s select 'x' from generate_series(1, 10000000000)",
    "update locked set v = v + 1",
    "select pg_advisory_lock(1)",
];

#[tokio::test]
async fn sigterm_ends_every_statement() {
    let server = Running::start();
    let holder = server.connect().await;
    run(&holder, "create table t(id bigint); create table s(v text); create table locked(v int)").await;
    run(&holder, "insert into locked values (1)").await;
    run(&holder, "begin; update locked set v = 0; select pg_advisory_lock(1)").await;
    let mut clients = Vec::new();
    for sql in ENDLESS {
        let mut client = RawClient::connect(server.port);
        client.send(b'Q', &[sql.as_bytes(), b"\0"].concat());
        clients.push(client);
    }
    let at_work = "select count(*) from pg_stat_activity where state = 'active' and pid <> pg_backend_pid()";
    until("all statements run", async || one(&holder, at_work).await == ENDLESS.len().to_string()).await;
    let (status, _dir) = server.stop();
    assert!(status.success(), "{status}");
}
