//! What load balancers are answered, in every role and while it changes.

use super::{Answer, ON, ask, get, port_of, send};
use crate::control::trio::Trio;
use crate::node::{Pair, run, until};

const PATHS: [&str; 12] = [
    "/live",
    "/ready",
    "/health",
    "/primary",
    "/master",
    "/leader",
    "/read-write",
    "/replica",
    "/standby",
    "/read-only",
    "/liveness",
    "/readiness",
];

fn statuses(port: u16) -> [u16; 12] {
    PATHS.map(|path| get(port, path).status)
}

const MASTER: [u16; 12] = [200, 200, 200, 200, 200, 200, 200, 503, 503, 200, 200, 200];
const STANDBY: [u16; 12] = [200, 200, 200, 503, 503, 503, 503, 200, 200, 200, 200, 200];
const NEITHER: [u16; 12] = [200, 503, 503, 503, 503, 503, 503, 503, 503, 503, 200, 503];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_balancer_finds_the_master_and_the_standby() {
    let mut pair = Pair::master(ON);
    pair.create_standby();
    pair.b.configure(ON);
    pair.b.start();
    pair.until_followed().await;
    let (a, b) = (port_of(&pair.a), port_of(&pair.b));
    assert_eq!(statuses(a), MASTER);
    until("the standby is up to date", async || statuses(b) == STANDBY).await;

    let told = get(b, "/replica").json();
    assert_eq!((told["role"].as_str(), told["state"].as_str()), (Some("standby"), Some("running")));
    assert_eq!((told["name"].as_str(), told["writable"].as_bool()), (Some("b"), Some(false)));
    run(&pair.a.connect().await, "create table t(x int); insert into t values (1)").await;
    until("the standby has it", async || get(b, "/replica?lag=0").status == 200).await;
    assert_eq!(get(b, "/replica?lag=16MB").status, 200);
    assert_eq!(get(b, "/replica?lag=soon").status, 400);
    assert_eq!(get(a, "/read-only?lag=0").status, 200);

    // As HAProxy asks: HEAD and OPTIONS, without a Host, in HTTP/1.0.
    for (method, path, port, status) in [
        ("OPTIONS", "/", a, 200),
        ("OPTIONS", "/", b, 503),
        ("HEAD", "/replica", b, 200),
        ("OPTIONS", "/master", b, 503),
    ] {
        assert_eq!(ask(port, method, path, "", "").status, status, "{method} {path}");
    }
    let old = send(a, b"OPTIONS /primary HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(old.status, 200);
    let Answer { status, head, .. } = ask(a, "DELETE", "/primary", "", "");
    assert_eq!(status, 405);
    assert!(head.contains("allow: GET, HEAD, OPTIONS"), "{head}");

    pair.a.kill();
    until("the standby has lost its master", async || get(b, "/replica").status == 503).await;
    assert_eq!((get(b, "/ready").status, get(b, "/read-only").status), (200, 503), "it still serves reads");
    crate::node::succeeds(&["promote", "--at", &pair.b.at()]);
    until("b is the master", async || statuses(b) == MASTER).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_answers_while_no_role_serves_clients() {
    let mut trio = Trio::stopped(ON);
    trio.a.launch();
    until("the listener is up", async || trio.a.log().contains("listening for HTTP")).await;
    let a = port_of(&trio.a);
    until("it waits for the others", async || get(a, "/health").json()["role"] == "waiting").await;
    assert_eq!(statuses(a), NEITHER);
    let told = get(a, "/health").json();
    assert_eq!((told["state"].as_str(), told["writable"].as_bool()), (Some("waiting"), Some(false)));
    assert!(told["reason"].as_str().unwrap().contains("control plane"), "{told}");
    assert!(get(a, "/metrics").body.contains("holdfast_role{role=\"waiting\"} 1"));

    trio.w.start();
    trio.b.start();
    trio.a.until_ready();
    until("a is the master", async || statuses(a) == MASTER).await;
    assert_eq!(get(a, "/leader").json()["lease_held"], true);
    crate::node::until_followed(&trio.a, &trio.b).await;
    trio.until_agreed("a", "{a, b}").await;
    trio.promote_b();
    until("a is deposed", async || get(a, "/health").json()["role"] == "deposed").await;
    assert_eq!(statuses(a), NEITHER);
    let b = port_of(&trio.b);
    until("b is the master", async || statuses(b) == MASTER).await;
}
