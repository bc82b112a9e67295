//! The connection to a server on another machine.

use crate::node::{Node, holdfast, refuses, run, succeeds};
use tempfile::TempDir;

#[tokio::test]
async fn another_machine_is_reached_by_tls_only() {
    let scratch = TempDir::new().unwrap();
    let mut node = Node::new(&scratch, "a");
    node.configure("");
    succeeds(&["cert", "server", "--data", node.data(), "--host", "localhost"]);
    node.start();
    let client = node.connect().await;
    run(&client, "create table t(id int primary key); insert into t values (7)").await;
    let ca = node.dir.join("tls/ca.crt");
    let at = format!("localhost:{}", node.port);
    let find = ["trail", "find", "--data", node.data(), "--table", "t", "--at", &at, "--ca"];
    let found = succeeds(&[&find[..], &[ca.to_str().unwrap()]].concat());
    assert!(found.contains("insert  id=7"), "{found}");
    // A certificate of another authority.
    let other = TempDir::new().unwrap();
    let other = other.path().to_str().unwrap();
    succeeds(&["cert", "server", "--data", other, "--host", "localhost"]);
    let refused = refuses(&[&find[..], &[&format!("{other}/tls/ca.crt")]].concat());
    assert!(refused.contains("certificate"), "{refused}");
    // Nothing is sent in plain text.
    for at in ["192.0.2.1:5433", "db.example:5433"] {
        let output = holdfast(&["trail", "find", "--data", node.data(), "--table", "t", "--at", at]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(1) && said.contains("name the authority of its certificate, by --ca"),
            "{said}"
        );
    }
}
