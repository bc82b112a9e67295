//! Nodes that know each other by certificates: the whole life of a pair over TLS, and who is turned away.

use crate::node::{Node, Pair, assert_same, one, refuses, run, succeeds, until};
use std::os::unix::fs::PermissionsExt;

/// The port at which a node listens for nodes, from its log.
async fn node_port(node: &Node) -> String {
    const SAID: &str = "listening for nodes address=";
    until("it listens for nodes", async || node.log().contains(SAID)).await;
    let log = node.log();
    let behind = log.rsplit_once(SAID).unwrap().1;
    behind.split_whitespace().next().unwrap().to_owned()
}

struct Authority<'a> {
    pair: &'a Pair,
    name: &'static str,
}

impl Authority<'_> {
    fn new<'a>(pair: &'a Pair, name: &'static str) -> Authority<'a> {
        succeeds(&["cert", "authority", "--out", pair.beside(name).to_str().unwrap()]);
        Authority { pair, name }
    }

    /// A directory with certificates of that kind and name.
    fn issue(&self, kind: &str, name: &str) -> String {
        let out = self.pair.beside(&format!("{}-{name}", self.name)).to_str().unwrap().to_owned();
        let authority = self.pair.beside(self.name);
        let mut arguments =
            vec!["cert", kind, "--authority", authority.to_str().unwrap(), "--name", name, "--out", &out];
        if kind == "node" {
            arguments.extend(["--host", "127.0.0.1"]);
        }
        succeeds(&arguments);
        out
    }
}

#[tokio::test]
async fn a_pair_lives_over_tls_and_strangers_are_turned_away() {
    let mut pair = Pair::master("");
    pair.a.stop();
    let ours = Authority::new(&pair, "ours");
    let [for_a, for_b, for_c] = ["a", "b", "c"].map(|name| ours.issue("node", name));
    let tom = ours.issue("operator", "tom");
    let theirs = Authority::new(&pair, "theirs").issue("node", "b");
    let mode = |path: &str| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&format!("{for_a}/node.key")), mode(&for_a)), (0o600, 0o700));
    let again = refuses(&["cert", "authority", "--out", pair.beside("ours").to_str().unwrap()]);
    assert!(again.contains("is not overwritten"), "{again}");

    // Without certificates nobody listens for nodes.
    pair.a.configure("node_listen = \"127.0.0.1:0\"");
    let said = refuses(&["serve", "--data", pair.a.data(), "--listen", "127.0.0.1:0"]);
    assert!(said.contains("need certificates") && said.contains("holdfast cert"), "{said}");
    std::fs::rename(&for_a, pair.a.dir.join("certificates")).unwrap();
    pair.a.start();
    run(&pair.a.connect().await, "create table t(x int); insert into t values (1)").await;
    let at = node_port(&pair.a).await;

    // Strangers.
    let data = pair.b.data().to_owned();
    let create = |name: &str, certificates: &str| {
        refuses(&["standby", "create", "--from", &at, "--data", &data, "--name", name, "--certificates", certificates])
    };
    create("b", &theirs);
    let said = create("b", &for_c);
    assert!(said.contains("belongs to c") && said.contains("the standby's name is b"), "{said}");
    let said = create("tom", &tom);
    assert!(said.contains("does not have the replication role"), "{said}");
    std::fs::remove_dir_all(pair.b.dir.join("certificates")).unwrap();
    let said = refuses(&["standby", "create", "--from", &at, "--data", &data, "--name", "b"]);
    assert!(said.contains("name this side's certificates with --certificates"), "{said}");

    // Those who belong to it.
    succeeds(&["standby", "create", "--from", &at, "--data", &data, "--name", "b", "--certificates", &for_b]);
    assert_eq!(mode(&format!("{data}/certificates/node.key")), 0o600);
    pair.b.configure("node_listen = \"127.0.0.1:0\"");
    pair.b.start();
    pair.until_followed().await;
    assert_same(&pair.a, &pair.b).await;
    let status = succeeds(&["standby", "status", "--at", &at, "--certificates", &tom, "--json"]);
    assert!(status.contains("\"name\":\"b\""), "{status}");

    // The same way back and forth.
    let b_at = node_port(&pair.b).await;
    pair.a.kill();
    let ended = ["the other side closed the link", "close_notify"];
    until("the end of the link is logged", async || ended.iter().any(|words| pair.b.log().contains(words))).await;
    assert!(!pair.b.log().contains("close_notify"), "in words of our own: {}", pair.b.log());
    let said = succeeds(&["promote", "--at", &b_at, "--certificates", &tom]);
    assert!(said.contains("promoted"), "{said}");
    run(&pair.b.connect().await, "insert into t values (2)").await;
    succeeds(&["rejoin", "--from", &b_at, "--data", pair.a.data(), "--name", "a"]);
    pair.a.start();
    crate::node::until_followed(&pair.b, &pair.a).await;
    assert_same(&pair.b, &pair.a).await;
    assert_eq!(one(&pair.a.connect().await, "select count(*) from t").await, "2");
}
