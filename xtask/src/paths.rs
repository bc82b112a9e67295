//! Where things are: the workspace, what the tests build, and where the servers under test keep their data.

use std::path::{Path, PathBuf};

/// The workspace's root directory.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace's root").to_path_buf()
}

/// Cargo's target directory.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// What the tests install and build for themselves: a Python environment, the JDBC driver, the Go client. Kept
/// between runs; deleting it costs the next run a download.
pub fn tools() -> PathBuf {
    target().join("test-tools")
}

/// A directory below `tests/clients`.
pub fn client(name: &str) -> PathBuf {
    root().join("tests/clients").join(name)
}

/// A fresh data directory on the disk that also holds the build, because a temporary directory may be kept in
/// memory, where a sync costs nothing and direct I/O may be refused. It disappears when the value is dropped.
pub fn scratch(name: &str) -> anyhow::Result<tempfile::TempDir> {
    let base = target().join("test-data");
    std::fs::create_dir_all(&base)?;
    Ok(tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(base)?)
}
