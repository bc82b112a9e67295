//! `layers.toml`: the floors of each crate and what it must not depend on.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// A circle may have this many files.
    pub circle_files_max: usize,
    /// By the name of the crate's directory.
    #[serde(default)]
    pub crates: BTreeMap<String, Rules>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The floors from the top down, each a list of path prefixes below `src`, without `.rs`.
    #[serde(default)]
    pub floors: Vec<Vec<String>>,
    /// The crates of this workspace that it may depend on, by directory; every crate where it is missing.
    pub knows: Option<Vec<String>>,
    /// Crates that it must not depend on, and paths such as `std::net` that it must not name.
    #[serde(default)]
    pub never: Vec<String>,
    /// An exception: its largest circle has as many files today.
    pub circle_files_today: Option<usize>,
    /// Exceptions: imports that go up today, as `FROM -> TO` below `src`.
    #[serde(default)]
    pub upward_today: Vec<String>,
}

impl Table {
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        toml::from_str(&text).with_context(|| path.display().to_string())
    }
}

impl Rules {
    /// True for a file at or below a prefix: `branch` has `branch.rs` and `branch/watch.rs`, `*` has every file.
    pub fn is_on(file: &str, prefix: &str) -> bool {
        if prefix == "*" {
            return true;
        }
        let name = file.strip_suffix(".rs").unwrap_or(file);
        name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The floor of a file, 0 at the top: the one with the longest prefix. `lib.rs` and `main.rs` are at the top unless
    /// they are listed.
    pub fn floor(&self, file: &str) -> Option<usize> {
        let floors = self.floors.iter().enumerate();
        let listed = floors.flat_map(|(floor, prefixes)| prefixes.iter().map(move |prefix| (prefix, floor)));
        let longest = listed.filter(|(prefix, _)| Self::is_on(file, prefix)).max_by_key(|(prefix, _)| prefix.len());
        longest.map(|(_, floor)| floor).or_else(|| matches!(file, "lib.rs" | "main.rs").then_some(0))
    }
}
