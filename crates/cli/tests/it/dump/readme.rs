//! README's "Bring a table back", as it stands there: its commands, in a shell.

use super::bed::SMALL;
use crate::node::{Node, one, run};
use std::path::Path;
use std::process::Command;

/// The commands of a section of README: its blocks of `sh`.
fn commands(section: &str) -> Vec<String> {
    let readme = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).unwrap();
    let section = readme.split(&format!("\n## {section}\n")).nth(1).unwrap().split("\n## ").next().unwrap().to_owned();
    let blocks = section.split("```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// Runs a block with this build's program and with the test's directory and port for those of README.
fn run_block(block: &str, dir: &Path, node: &Node) -> String {
    let text = block
        .replace("/tmp/", &format!("{}/", dir.display()))
        .replace("127.0.0.1:5433", &node.at())
        .replace("-p 5433", &format!("-p {}", node.port));
    let script = format!("set -eu; holdfast() {{ {} \"$@\"; }}\n{text}", env!("CARGO_BIN_EXE_holdfast"));
    let output = Command::new("bash").arg("-c").arg(&script).current_dir(dir).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{script}\n{}\n{}", text(&output.stdout), text(&output.stderr));
    let said = text(&output.stderr);
    assert!(!said.contains("ERROR"), "{said}");
    text(&output.stdout)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_of_readme_bring_a_table_back() {
    let scratch = tempfile::TempDir::new().unwrap();
    let blocks = commands("Bring a table back");
    assert_eq!(blocks.len(), 3, "{blocks:?}");
    let mut node = Node::new(&scratch, "holdfast-data");
    // The test's own segments are small; README's server has the default.
    node.configure(SMALL);
    // The server is started by this test.
    let (configure, _) = blocks[0].split_once("holdfast serve").unwrap();
    run_block(configure, scratch.path(), &node);
    node.start();
    run_block(&blocks[1], scratch.path(), &node);
    let client = node.connect().await;
    assert_eq!(one(&client, "select count(*) from pg_class where relname = 'orders'").await, "0");
    let said = run_block(&blocks[2], scratch.path(), &node);
    assert!(
        said.contains("table orders of database holdfast is back as orders")
            && said.contains("just before transaction"),
        "{said}"
    );
    assert_eq!(one(&client, "select count(*) || ' ' || sum(amount) from orders").await, "200000 200001000.00");
    run(&client, "insert into orders (amount) values (1)").await;
    assert!(one(&client, "select max(id) from orders").await.parse::<u32>().unwrap() > 200_000);
    let refused = client.batch_execute("insert into orders (amount) values (-1)").await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "23514");
}
