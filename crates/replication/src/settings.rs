//! What this crate needs of the server's settings. The node knows `holdfast.toml`: its keys, its defaults, how it is
//! checked. This crate gets values, and for the commands that work on a stopped server's directory the trait
//! [`SettingsFile`].

use holdfast_engine::Options as EngineOptions;
use holdfast_standby::LinkOptions;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// Name of the settings file in a data directory.
pub const FILE_NAME: &str = "holdfast.toml";
/// In a data directory whose server runs under a supervisor, which knows its control plane (`holdfast_cluster` writes it).
pub const CLUSTER_MARK: &str = "control/cluster";

/// `synchronous_standby_away` and `mirror_away`: what commits do while the standbys, or the mirror, that they wait for are
/// away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Away {
    Wait,
    GoOn,
}

/// The settings file of a data directory, as the node implements it.
pub trait SettingsFile: Send + Sync {
    /// Writes the file of a directory that has none, for a node of this name. An existing file stays as it is.
    fn create(&self, dir: &Path, node_name: &str) -> io::Result<()>;

    /// How links behave that a command opens for this directory: the defaults where the file is missing or cannot be read.
    fn link_options(&self, dir: &Path) -> LinkOptions;

    /// What an engine on this directory is opened with: the defaults where the file is missing. Fails with the file's path,
    /// the line and the key.
    fn engine_options(&self, dir: &Path) -> io::Result<EngineOptions>;

    /// The text of a settings file without the setting `mirror`.
    fn without_mirror(&self, text: &str) -> io::Result<String>;
}
