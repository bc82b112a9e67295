//! Dumps and an archive in object stores: real HTTP servers, with failures injected between them and Holdfast.

mod proxy;
mod servers;

use crate::dump::bed::{SMALL, fill, lsn_number, sum, wal_lsn};
use crate::node::{Node, one, run, until_settled};
use holdfast_seams::testing::skipped;
use proxy::Fault;
use serde_json::Value;
use servers::StoreServer;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A server whose archive and dumps are in a store.
struct Bed {
    store: StoreServer,
    node: Node,
    scratch: TempDir,
}

impl Bed {
    fn start(store: StoreServer) -> Bed {
        let scratch = TempDir::new().unwrap();
        let mut node = Node::new(&scratch, "a");
        node.env = store.env.clone();
        node.configure(&format!("node_name = \"a\"\n{SMALL}archive = \"{}/some/archive\"", store.url));
        node.start();
        Bed { store, node, scratch }
    }

    fn place(&self) -> String {
        format!("{}/some/dumps", self.store.url)
    }

    fn holdfast(&self, arguments: &[&str]) -> Output {
        let env = self.store.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command.args(arguments).envs(env).stdin(Stdio::null()).output().unwrap()
    }

    fn create(&self) -> Result<Value, String> {
        let output = self.holdfast(&["dump", "create", "--at", &self.node.at(), "--to", &self.place(), "--json"]);
        match output.status.success() {
            true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    fn json(&self, command: &str) -> Value {
        let output = self.holdfast(&["dump", command, "--from", &self.place(), "--json"]);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{command}: {e}: {output:?}"))
    }

    /// Restores to a directory of its own; what the server there has.
    async fn restored(&self, name: &str, more: &[&str]) -> Result<String, String> {
        let dir = self.scratch.path().join(name);
        let begin = ["restore", "--from", &self.place(), "--data", dir.to_str().unwrap()];
        let output = self.holdfast(&[&begin[..], more].concat());
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let mut node = Node::new_in(dir);
        node.env = self.store.env.clone();
        node.start();
        Ok(sum(&node).await)
    }

    async fn until_archived(&self) {
        let client = self.node.connect().await;
        let wanted = wal_lsn(&client).await;
        run(&client, "create table if not exists filler(v text)").await;
        until_settled("everything is archived", async || {
            run(&client, "insert into filler select repeat('f', 4000) || g from generate_series(1, 200) g").await;
            let lsn = one(&client, "select archived_lsn from holdfast_stat_archive").await;
            (lsn_number(&lsn) < wanted).then_some(lsn)
        })
        .await;
    }
}

/// Dump, list, verify, restore with roll-forward, drill, forget; then with failures.
async fn against(store: StoreServer) {
    let bed = Bed::start(store);
    let proxy = &bed.store.proxy;
    let client = bed.node.connect().await;
    fill(&client, 6).await;
    let first = bed.create().unwrap();
    fill(&client, 1).await;
    let expected = sum(&bed.node).await;
    bed.until_archived().await;
    assert_eq!(bed.json("list")[0]["name"], first["name"]);
    let verified = bed.json("verify");
    assert!(
        verified["problems"].as_array().is_some_and(Vec::is_empty) && verified["chunks"].as_u64() > Some(1),
        "{verified}"
    );
    assert_eq!(bed.restored("plain", &[]).await.unwrap(), expected);
    let scratch = bed.scratch.path().join("drill").display().to_string();
    let drilled =
        bed.holdfast(&["dump", "drill", "--from", &bed.place(), "--at", &bed.node.at(), "--scratch", &scratch]);
    assert!(drilled.status.success(), "{drilled:?}");

    // Every third request fails: requests are tried again.
    let mut n = 0;
    proxy.breaks(move |_| {
        n += 1;
        (n % 3 == 0).then_some(Fault::Error)
    });
    fill(&client, 3).await;
    bed.create().unwrap();
    let expected = sum(&bed.node).await;
    bed.until_archived().await;
    assert_eq!(bed.restored("errors", &[]).await.unwrap(), expected);
    assert!(proxy.done(Fault::Error) > 5);

    // A request without an answer, and half an answer.
    let mut n = 0;
    proxy.breaks(move |request| {
        n += u32::from(request.is_in("chunks"));
        match n {
            3 => Some(Fault::Hang),
            6 if request.method == "GET" => Some(Fault::ShortRead),
            _ => None,
        }
    });
    fill(&client, 8).await;
    let outcome = bed.create();
    assert!(proxy.done(Fault::Hang) > 0);
    proxy.heals();
    if let Err(error) = outcome {
        // Named, and the next attempt succeeds.
        assert!(error.contains("chunks/"), "{error}");
        bed.create().unwrap();
    }
    proxy.breaks(|request| (request.method == "GET" && request.is_in("chunks")).then_some(Fault::ShortRead));
    let error = bed.restored("short", &[]).await.unwrap_err();
    assert!(error.contains("chunks/") && proxy.done(Fault::ShortRead) > 0, "{error}");
    proxy.heals();
    bed.until_archived().await;
    assert_eq!(bed.restored("short", &[]).await.unwrap(), sum(&bed.node).await);

    // Puts that are confirmed and not done: no such dump is listed.
    for (folder, fault) in
        [("chunks", Fault::Lie), ("dumps", Fault::Lie), ("chunks", Fault::Half), ("dumps", Fault::Half)]
    {
        let before = bed.json("list").as_array().unwrap().len();
        fill(&client, 2).await;
        let is_put = |method: &str| ["PUT", "POST"].contains(&method);
        let in_path = format!("some/dumps/{folder}");
        proxy.breaks(move |request| {
            let about = request.target.replace("%2F", "/").contains(&in_path);
            (is_put(request.method) && about).then_some(fault)
        });
        let error = bed.create().unwrap_err();
        let done = proxy.done(fault);
        assert!(done > 0 && error.contains(&format!("{folder}/")), "{folder} {fault:?}: {error}");
        proxy.heals();
        let error = error.lines().last().unwrap_or_default();
        eprintln!("{folder} {fault:?} {done} times: {error}");
        // Nothing of it is left that would be taken for a dump, or that the next one would build on.
        let listed = bed.json("list");
        assert_eq!(listed.as_array().unwrap().len(), before, "{listed}");
        bed.create().unwrap();
        let verified = bed.json("verify");
        assert!(verified["problems"].as_array().is_some_and(Vec::is_empty), "{verified}");
    }

    // A list that lags: what it lacks is not seen, and what is seen is right.
    let listed = bed.json("list").as_array().unwrap().len();
    proxy.breaks(|request| request.lists().then_some(Fault::OldList));
    assert!(bed.json("list").as_array().unwrap().len() <= listed && proxy.done(Fault::OldList) > 0);
    match bed.restored("lagging", &[]).await {
        Ok(rows) => assert!(rows.split(' ').next().unwrap().parse::<u64>().unwrap() >= 6000, "{rows}"),
        Err(error) => {
            assert!(error.contains("dumps/") || error.contains("segment") || error.contains("no dump"), "{error}")
        }
    }
    proxy.heals();
}

fn no_store(program: &str) {
    skipped(&format!("{program} is not installed; crates/cli/tests/it/backups/stores/servers.rs names the command"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_by_moto_with_failures() {
    let Some(store) = StoreServer::s3() else { return no_store("moto_server") };
    against(store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn azure_by_azurite_with_failures() {
    let Some(store) = StoreServer::azure() else { return no_store("azurite-blob") };
    against(store).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn google_by_fake_gcs_server_with_failures() {
    let Some(store) = StoreServer::google() else {
        return no_store("fake-gcs-server");
    };
    against(store).await;
}
