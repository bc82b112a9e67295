//! The command that brings a server back as a standby, as messages name it: with everything that is known of it here.

use std::path::Path;

/// `from`: HOST:PORT of the master, where it is known.
pub fn rejoin_command(from: Option<&str>, dir: &Path, name: &str) -> String {
    format!("holdfast rejoin --from {} --data {} --name {name}", from.unwrap_or("HOST:PORT"), dir.display())
}
