//! A server that backs itself up: its schedule, its drills, its archive's retention; and standbys made of its dumps.

mod clocks;
mod clones;
mod drill;
mod from_dump;
mod import;
mod mirror;
mod power_cut;
mod retention;
mod schedule;
#[cfg(feature = "object-stores")]
mod stores;

use crate::dump::bed::SMALL;
use crate::node::{Node, one};
use std::path::PathBuf;
use tempfile::TempDir;
use tokio_postgres::Client;

/// A server that archives, and dumps itself as its settings say. Not started.
struct Backed {
    node: Node,
    archive: PathBuf,
    dumps: PathBuf,
    scratch: TempDir,
}

impl Backed {
    /// `lines`: besides the places.
    fn new(lines: &str) -> Backed {
        let scratch = TempDir::new().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let (archive, dumps) = (path("archive"), path("dumps"));
        [&archive, &dumps].into_iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        let node = Node::new(&scratch, "a");
        let backed = Backed { node, archive, dumps, scratch };
        backed.node.configure(&format!("node_name = \"a\"\n{}\n{lines}", backed.places()));
        backed
    }

    fn started(lines: &str) -> Backed {
        let mut backed = Backed::new(lines);
        backed.node.start();
        backed
    }

    /// The settings of archive, dumps and the operator's command.
    fn places(&self) -> String {
        let (archive, dumps, told) = (self.archive.display(), self.dumps.display(), self.told_path());
        let told = told.display();
        format!("{SMALL}archive = \"{archive}\"\ndump.to = \"{dumps}\"\nnotify_command = \"echo >> {told}\"")
    }

    fn told_path(&self) -> PathBuf {
        self.scratch.path().join("told")
    }

    /// What the operator's command was run with, a line each.
    fn told(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.told_path()).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn place(&self) -> &str {
        self.dumps.to_str().unwrap()
    }
}

/// A column of `holdfast_stat_dump`.
async fn stat(client: &Client, column: &str) -> String {
    one(client, &format!("select {column} from holdfast_stat_dump")).await
}

async fn stat_number(client: &Client, column: &str) -> u64 {
    stat(client, column).await.parse().unwrap_or(0)
}
