//! cluster.toml: the nodes of a cluster, and what it keeps running. Every node has the same file.
//!
//! ```toml
//! name = "shop"
//! [node.a]                              # b alike; w: witness = true
//! links = ["10.0.0.1", "10.1.0.1"]      # HOST or HOST:PORT, port 7433 if none is given
//! data = "/srv/holdfast"                # of a witness: its vote and log
//! clients = "db1.example:5433"          # optional: where clients reach its server, for holdfast cluster dsn
//! [database]
//! nodes = ["a", "b"]                    # by preference
//! level = "hot"                         # default
//! alone = "go_on"                       # default; or "wait"
//! ```
//! A file that is no TOML, or has an unknown key, is reported with the first such place; all other flaws are reported together,
//! each with its line and the next step.
//!
//! Failure: a file with a flaw starts nothing.

mod flaws;
mod shape;

use crate::error::ClusterError;
use holdfast_control::{NodeId, Role};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The port of a node's control plane where a link names none.
pub const PORT: u16 = 7433;
/// The longest file.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// A checked cluster.toml.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cluster {
    pub name: String,
    pub nodes: BTreeMap<NodeId, Node>,
    pub database: Database,
    /// From record 2 on.
    pub lease_ms: u32,
    /// The names of the service groups.
    pub groups: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// HOST:PORT, at least one.
    pub links: Vec<String>,
    pub data: PathBuf,
    pub role: Role,
    /// HOST:PORT at which clients reach its server, for connection strings.
    pub clients: Option<String>,
}

impl Node {
    /// The control plane's directory: where the in-process member has it, too.
    pub fn control_dir(&self) -> PathBuf {
        match self.role {
            Role::Data => self.data.join("control"),
            Role::Witness => self.data.clone(),
        }
    }

    /// The link that the control plane uses.
    pub fn address(&self) -> &str {
        self.links.first().map(String::as_str).unwrap_or_default()
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Database {
    /// By preference.
    pub nodes: Vec<NodeId>,
    pub address: Option<String>,
    pub level: String,
    /// Commits wait while no standby is there.
    pub waits_alone: bool,
}

/// What is wrong with a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flaw {
    /// From 1; `None`: of the file as a whole.
    pub line: Option<usize>,
    pub what: String,
    /// What to do about it.
    pub next: String,
}

impl Cluster {
    /// Reads and checks a file.
    pub fn load(path: &Path) -> Result<Cluster, ClusterError> {
        let flawed = |flaws: Vec<Flaw>| ClusterError::Flawed { path: path.to_owned(), flaws: flaws.len() };
        Cluster::parse(&read(path)?).map_err(flawed)
    }

    pub fn parse(text: &str) -> Result<Cluster, Vec<Flaw>> {
        match toml::from_str::<shape::Shape>(text) {
            Ok(shape) => flaws::checked(text, shape),
            Err(error) => {
                let line = error.span().map(|span| line_of(text, span.start));
                let next = "see docs/cluster.md for the keys of cluster.toml".to_owned();
                Err(vec![Flaw { line, what: error.message().trim().replace('\n', " "), next }])
            }
        }
    }

    /// The node of that name.
    pub fn node(&self, path: &Path, name: &str) -> Result<(NodeId, &Node), ClusterError> {
        let found = self.nodes.iter().find(|(node, _)| node.as_str() == name);
        let known = || self.nodes.keys().map(NodeId::as_str).collect::<Vec<_>>().join(", ");
        let missing = || ClusterError::NoNode { path: path.to_owned(), node: name.to_owned(), known: known() };
        found.map(|(node, found)| (*node, found)).ok_or_else(missing)
    }

    /// The control planes' addresses of all nodes.
    pub fn addresses(&self) -> BTreeMap<NodeId, String> {
        self.nodes.iter().map(|(node, found)| (*node, found.address().to_owned())).collect()
    }
}

/// The text of a cluster.toml.
pub fn read(path: &Path) -> Result<String, ClusterError> {
    let io = |what| ClusterError::io(what, path);
    if std::fs::metadata(path).map_err(io("read"))?.len() > FILE_BYTES_MAX {
        return Err(io("read")(std::io::Error::other("it is longer than 1 MiB")));
    }
    std::fs::read_to_string(path).map_err(io("read"))
}

/// The line, from 1, of a byte of the text.
fn line_of(text: &str, byte: usize) -> usize {
    text.as_bytes().iter().take(byte).filter(|byte| **byte == b'\n').count() + 1
}
