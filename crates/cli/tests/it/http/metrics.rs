//! `/metrics`: its format, and that its figures are what happened.

use super::{ON, ask, get, metric, port_of};
use crate::node::{Pair, run, succeeds, until};
use holdfast_seams::testing::skipped;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

fn page(port: u16) -> String {
    get(port, "/metrics").body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_figures_are_what_happened() {
    let pair = Pair::start(ON).await;
    let port = port_of(&pair.a);
    let client = pair.a.connect().await;
    run(&client, "create table t(id int primary key)").await;
    let before = page(port);
    let of = |page: &str, name: &str| metric(page, name).unwrap_or_else(|| panic!("no {name}"));
    for id in 0..10 {
        run(&client, &format!("insert into t values ({id})")).await;
    }
    run(&client, "select 1").await;
    assert!(client.batch_execute("insert into t values (1)").await.is_err());
    pair.until_equal().await;
    let after = page(port);
    let gained = |name: &str| of(&after, name) - of(&before, name);
    assert!(gained("holdfast_transactions_total") >= 10.0);
    assert_eq!(gained("holdfast_commit_duration_seconds_count"), 10.0, "the failed one committed nothing");
    assert!(gained("holdfast_request_duration_seconds_count") >= 12.0);
    assert!(gained("holdfast_boxcars_total") >= 1.0 && gained("holdfast_sync_seconds_count") >= 1.0);
    assert!(gained("holdfast_boxcar_commits_sum") >= 10.0);
    assert!(gained("holdfast_durable_lsn") > 0.0);
    assert_eq!(of(&after, "holdfast_writable"), 1.0);
    assert_eq!(of(&after, "holdfast_standby_connected{standby=\"b\"}"), 1.0);
    until("the standby lacks nothing", async || {
        metric(&page(port), "holdfast_standby_lag_bytes{standby=\"b\",level=\"commit\"}") == Some(0.0)
    })
    .await;
    assert!(of(&after, "process_cpu_seconds_total") > 0.0 && of(&after, "process_resident_memory_bytes") > 1e6);
    assert!(after.contains("holdfast_disk_free_bytes{disk=\"data\""), "{after}");

    // A session that waits for another one.
    let (a, b) = (pair.a.connect().await, pair.a.connect().await);
    run(&a, "begin; insert into t values (100)").await;
    let waiting = tokio::spawn(async move { b.batch_execute("insert into t values (100)").await });
    until("it waits", async || metric(&page(port), "holdfast_locks_waiting") == Some(1.0)).await;
    let sessions = page(port);
    assert!(of(&sessions, "holdfast_sessions{database=\"holdfast\",state=\"idle in transaction\"}") >= 1.0);
    assert_eq!(of(&sessions, "holdfast_sessions{database=\"holdfast\",state=\"active\"}"), 1.0);
    run(&a, "rollback").await;
    waiting.await.unwrap().unwrap();
}

#[test]
fn both_formats_are_well_formed_and_every_metric_is_documented() {
    let pair = Pair::master(ON);
    let port = port_of(&pair.a);
    let open =
        ask(port, "GET", "/metrics", "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n", "");
    assert!(open.header("content-type").unwrap().starts_with("application/openmetrics-text"), "{}", open.head);
    assert!(open.body.ends_with("# EOF\n"));
    let plain = get(port, "/metrics");
    assert!(plain.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"), "{}", plain.head);

    let families: BTreeSet<&str> = open.body.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let names: BTreeSet<String> = families
        .iter()
        .map(|family| family.split_once(' ').unwrap())
        .map(|(name, kind)| if kind == "counter" { format!("{name}_total") } else { name.to_owned() })
        .collect();
    assert!(names.len() > 60, "{names:?}");
    assert_eq!(names.len(), open.body.matches("# HELP ").count(), "each has a help");
    let docs = std::fs::read_to_string("../../docs/observing.md").unwrap();
    let documented: BTreeSet<String> = docs
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name.to_owned())
        .filter(|name| name.starts_with("holdfast_") || name.starts_with("process_"))
        .collect();
    let lacks: Vec<_> = names.difference(&documented).collect();
    let stale: Vec<_> = documented.difference(&names).collect();
    assert!(lacks.is_empty() && stale.is_empty(), "docs/observing.md lacks {lacks:?}, and has {stale:?}");

    let Ok(mut check) =
        Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    else {
        return skipped("promtool is not installed (Debian package prometheus)");
    };
    check.stdin.take().unwrap().write_all(plain.body.as_bytes()).unwrap();
    let checked = check.wait_with_output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

#[test]
fn the_token_opens_the_metrics_and_health_needs_none() {
    let mut pair = Pair::master(ON);
    assert!(pair.a.stop().success());
    pair.a.configure("http_token_file = \"token\"");
    assert!(pair.a.refuses_to_start().contains("http_token_file"), "the file is not there");
    std::fs::write(pair.a.dir.join("token"), "t0ken\n").unwrap();
    pair.a.start();
    let port = port_of(&pair.a);
    let with = |token: &str| ask(port, "GET", "/metrics", &format!("Authorization: {token}\r\n"), "").status;
    assert_eq!((with("Bearer t0ken"), get(port, "/primary").status), (200, 200));
    for wrong in ["Bearer t0kem", "Bearer t0ken2", "Basic t0ken", "Bearer ", "t0ken"] {
        assert_eq!(with(wrong), 401, "{wrong}");
    }
    let without = get(port, "/metrics");
    assert_eq!((without.status, without.header("www-authenticate")), (401, Some("Bearer")));
    assert!(!without.body.contains("holdfast_"), "{}", without.body);
}

#[test]
fn off_this_machine_it_needs_tls_and_a_token() {
    let mut pair = Pair::master("");
    assert!(pair.a.stop().success());
    pair.a.configure("http_listen = \"0.0.0.0:0\"");
    let said = pair.a.refuses_to_start();
    assert!(said.contains("http_listen") && said.contains("holdfast cert server"), "{said}");
    succeeds(&["cert", "server", "--data", pair.a.data(), "--host", "127.0.0.1"]);
    let said = pair.a.refuses_to_start();
    assert!(said.contains("http_token_file"), "{said}");
    pair.a.configure("http_token_file = \"token\"");
    std::fs::write(pair.a.dir.join("token"), "t0ken").unwrap();
    pair.a.start();

    let (_, rest) = pair.a.log().rsplit_once("address=0.0.0.0:").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let port: u16 = rest.split_whitespace().next().unwrap().parse().unwrap();
    assert!(super::send(port, b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n").is_none(), "without TLS");
    let ca = pair.a.dir.join("tls/ca.crt");
    let curl = |path: &str, more: &[&str]| {
        let url = format!("https://127.0.0.1:{port}{path}");
        let output =
            Command::new("curl").args(["-s", "-w", "%{http_code}", "--cacert"]).arg(&ca).args(more).arg(url).output();
        let output = output.expect("curl runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert!(curl("/primary", &[]).ends_with("200"), "the certificate is the server's");
    assert!(curl("/metrics", &[]).ends_with("401"));
    assert!(curl("/metrics", &["-H", "Authorization: Bearer t0ken"]).contains("holdfast_build_info"));
    let plain =
        Command::new("curl").args(["-s", "--cacert", "/dev/null", &format!("https://127.0.0.1:{port}/live")]).status();
    assert!(!plain.unwrap().success(), "not a certificate that everyone trusts");
}

#[test]
fn the_console_command_finds_a_running_server_only() {
    let mut pair = Pair::master(ON);
    let said = succeeds(&["console", "--data", pair.a.data()]);
    assert!(said.starts_with(&format!("http://127.0.0.1:{}/#ticket=", port_of(&pair.a))), "{said}");
    assert!(pair.a.stop().success());
    let said = crate::node::refuses(&["console", "--data", pair.a.data()]);
    assert!(said.contains("http_listen"), "{said}");
}

/// Every user of this machine can read the page: nothing in it is secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_secret_is_in_the_page() {
    let pair = Pair::start(ON).await;
    let port = port_of(&pair.a);
    let client = pair.a.connect().await;
    run(
        &client,
        "create role mallory login password 'hunter2'; create table salaries(id int primary key, amount text)",
    )
    .await;
    run(&client, "insert into salaries values (1, 'a million')").await;
    assert!(client.batch_execute("select 'a million' / 0 from salaries_of_others").await.is_err());
    let page = page(port);
    assert!(page.contains("database=\"holdfast\"") && page.contains("standby=\"b\""), "{page}");
    let data = std::path::Path::new(pair.a.data());
    let key = std::fs::read_to_string(data.join("console.key")).unwrap();
    let secret = std::fs::read_to_string(data.join("authentication_secret")).unwrap();
    let secrets = ["mallory", "hunter2", "salaries", "million", "SCRAM", "127.0.0.1"];
    let lines = key.lines().chain(secret.lines()).map(str::trim).filter(|line| line.len() > 8);
    for word in secrets.into_iter().chain(lines) {
        assert!(!page.contains(word), "{word}: {page}");
    }
}
