//! A real Prometheus scrapes a master under load and its standby; every query of the dashboard and every alert is asked.

use super::{ON, port_of};
use crate::node::{Pair, one, run, until};
use holdfast_seams::testing::skipped;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

/// Queries of the dashboard that have nothing to show here, and why.
const EMPTY: [(&str, &str); 3] = [
    ("holdfast_mirror_behind_bytes", "there is no mirror"),
    ("holdfast_lease_held", "there is no control plane"),
    ("holdfast_gate_wait_seconds_bucket", "no commit waits at level local, so that the quantile is of nothing"),
];

struct Prometheus {
    child: Child,
    port: u16,
    _dir: TempDir,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Prometheus {
    /// `None`: it is not installed.
    fn start(targets: &[u16]) -> Option<Prometheus> {
        let dir = TempDir::new().unwrap();
        let rules = Path::new("../../docs/alerts.yml").canonicalize().unwrap();
        let targets: Vec<String> = targets.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [{}]\nscrape_configs:\n  - job_name: \
             holdfast\n    static_configs: [{{ targets: [{}] }}]\n",
            rules.display(),
            targets.join(", ")
        );
        let file = dir.path().join("prometheus.yml");
        std::fs::write(&file, config).unwrap();
        let port = holdfast_seams::testing::port();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(dir.path().join("log")).unwrap())
            .spawn();
        child.ok().map(|child| Prometheus { child, port, _dir: dir })
    }

    /// The answer of its HTTP API; `None`: it does not answer yet.
    fn api(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        // HTTP/1.0: the answer ends with the connection.
        write!(stream, "GET /api/v1/{path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
    }

    /// How many series a query returns.
    fn series(&self, query: &str) -> Result<usize, String> {
        let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let answer = self.api(&format!("query?query={escaped}")).ok_or("no answer")?;
        match answer["status"].as_str() {
            Some("success") => Ok(answer["data"]["result"].as_array().map_or(0, Vec::len)),
            _ => Err(answer.to_string()),
        }
    }

    fn has(&self, query: &str) -> bool {
        self.series(query).is_ok_and(|series| series > 0)
    }
}

/// Title and query of each target of the dashboard, with its variables filled in.
fn dashboard() -> Vec<(String, String)> {
    let text = std::fs::read_to_string("../../docs/grafana/holdfast.json").unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let queries = panels.flat_map(|panel| {
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets.into_iter().map(|target| (panel["title"].as_str().unwrap().to_owned(), target["expr"].clone()))
    });
    let fill =
        |query: &str| query.replace("$__rate_interval", "1m").replace("$job", "holdfast").replace("$instance", ".*");
    queries.map(|(title, query)| (title, fill(query.as_str().unwrap()))).collect()
}

/// Name and expression of each alert rule.
fn alerts() -> Vec<(String, String)> {
    let text = std::fs::read_to_string("../../docs/alerts.yml").unwrap();
    let of = |key: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.trim().strip_prefix(key)).map(|value| value.trim().to_owned()).collect()
    };
    let (names, queries) = (of("- alert:"), of("expr:"));
    assert_eq!(names.len(), queries.len());
    names.into_iter().zip(queries).collect()
}

/// The metrics that a query names.
fn names(query: &str) -> Vec<String> {
    let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("holdfast_") || word.starts_with("process_")).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_query_of_the_dashboard_and_every_alert_is_answered_by_prometheus() {
    let (archive, dumps) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let backups = format!("dump.to = \"{}\"\ndrill.every = \"1 h\"", dumps.path().display());
    let mut pair = Pair::master(&format!("{ON}\narchive = \"{}\"\n{backups}", archive.path().display()));
    pair.create_standby();
    pair.b.configure(ON);
    pair.b.start();
    pair.until_followed().await;
    let Some(prometheus) = Prometheus::start(&[port_of(&pair.a), port_of(&pair.b)]) else {
        return skipped("prometheus is not installed (Debian package prometheus)");
    };

    let setup = pair.a.connect().await;
    run(&setup, "create table t(id serial primary key, v int)").await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut load = Vec::new();
    for number in 0..4 {
        let (client, stop) = (pair.a.connect().await, stop.clone());
        load.push(tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                run(&client, &format!("insert into t(v) values ({number})")).await;
                assert!(client.batch_execute("select no_such_column from t").await.is_err());
            }
        }));
    }

    until("the dump was tried", async || one(&setup, "select last_drill_ok from holdfast_stat_dump").await == "t")
        .await;
    until("both are scraped", async || prometheus.series("up{job=\"holdfast\"} == 1") == Ok(2)).await;
    let mut lacks = Vec::new();
    let queries = dashboard();
    assert!(queries.len() > 40, "{}", queries.len());
    for (title, query) in &queries {
        let is_empty = EMPTY.iter().any(|(metric, _)| query.contains(metric));
        if is_empty {
            prometheus.series(query).unwrap_or_else(|error| panic!("{title}: {query}: {error}"));
            continue;
        }
        // A rate needs two scrapes.
        let mut tries = 0;
        while !prometheus.has(query) && tries < 100 {
            tries += 1;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        if !prometheus.has(query) {
            lacks.push(format!("{title}: {query}: {:?}", prometheus.series(query)));
        }
    }
    assert!(lacks.is_empty(), "without data:\n{}", lacks.join("\n"));
    let p99 = "histogram_quantile(0.99, sum by (le) (rate(holdfast_commit_duration_seconds_bucket[1m]))) > 0";
    until("commits are seen", async || prometheus.has(p99)).await;
    until("one is the master", async || {
        prometheus.has("sum(holdfast_writable) == 1") && prometheus.has("holdfast_following == 1")
    })
    .await;

    let metrics = super::ask(port_of(&pair.a), "GET", "/metrics", "Accept: application/openmetrics-text\r\n", "").body;
    for (name, query) in alerts() {
        prometheus.series(&query).unwrap_or_else(|error| panic!("{name}: {query}: {error}"));
        for metric in names(&query) {
            let family = metric.trim_end_matches("_bucket").trim_end_matches("_count").trim_end_matches("_total");
            assert!(metrics.contains(&format!("# TYPE {family} ")), "{name}: there is no metric {metric}");
        }
    }
    let rules = prometheus.api("rules").unwrap();
    let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap();
    assert_eq!(rules.len(), alerts().len());
    until("every rule was evaluated", async || {
        let rules = prometheus.api("rules").unwrap();
        let rules = rules["data"]["groups"][0]["rules"].as_array().unwrap().clone();
        rules.iter().all(|rule| rule["health"] == "ok")
    })
    .await;

    let away = |name: &str| alerts().into_iter().find(|(alert, _)| alert == name).unwrap().1;
    assert_eq!(prometheus.series(&away("HoldfastStandbyAway")), Ok(0));
    pair.b.kill();
    until("the alerts see that the standby is away", async || {
        prometheus.has(&away("HoldfastStandbyAway")) && prometheus.has(&away("HoldfastDown"))
    })
    .await;
    assert_eq!(prometheus.series(&away("HoldfastNoMaster")), Ok(0));
    stop.store(true, Ordering::Relaxed);
    for client in load {
        client.await.unwrap();
    }
}
