//! The mark of a directory whose server runs under a supervisor: `control/cluster`, with the cluster's and the node's name.
//!
//! Without it a server that is started by hand would know of no group, and serve as a master of its own.
//!
//! Failure: a mark that cannot be read counts as one.

use std::io;
use std::path::Path;

/// `holdfast_replication::settings::CLUSTER_MARK`, below `control`.
const NAME: &str = "cluster";

/// Marks the control directory; the text is for the person who reads it.
pub fn marked(control: &Path, cluster: &str, node: &str) -> io::Result<()> {
    let path = control.join(NAME);
    let text = format!("node {node} of cluster {cluster}: its server is started by holdfast cluster run\n");
    if std::fs::read_to_string(&path).is_ok_and(|found| found == text) {
        return Ok(());
    }
    std::fs::write(path, text)
}

/// What the mark of a data directory says, if there is one.
pub fn is_supervised(data: &Path) -> Option<String> {
    match std::fs::read_to_string(data.join("control").join(NAME)) {
        Ok(text) => Some(text.trim().to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound || error.kind() == io::ErrorKind::NotADirectory => None,
        Err(error) => Some(format!("its mark cannot be read: {error}")),
    }
}
