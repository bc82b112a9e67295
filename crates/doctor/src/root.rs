//! The file system tree that is looked at: the machine's own, or a test's below a directory.

use std::path::{Component, Path, PathBuf};

/// Files below a directory that is taken for `/`. Links between them must be relative, as those in `/sys` are.
#[derive(Clone, Debug)]
pub struct Root(PathBuf);

impl Root {
    pub fn new(directory: impl Into<PathBuf>) -> Root {
        Root(directory.into())
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// A file's text without white space around it; nothing when it cannot be read, or says nothing.
    pub fn read(&self, path: &str) -> Option<String> {
        let bytes = std::fs::read(self.at(path)).ok()?;
        let text = String::from_utf8_lossy(&bytes).trim_matches(['\n', ' ', '\0']).to_owned();
        (!text.is_empty()).then_some(text)
    }

    /// A file that holds 0 or 1.
    pub fn flag(&self, path: &str) -> Option<bool> {
        self.read(path).map(|text| text != "0")
    }

    pub fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    /// Names in a directory, sorted; none when there is no such directory.
    pub fn list(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.at(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Where a path leads when all links are followed, seen from the root.
    pub fn resolve(&self, path: &str) -> Option<String> {
        let real = self.at(path).canonicalize().ok()?;
        let root = self.0.canonicalize().ok()?;
        Some(format!("/{}", real.strip_prefix(root).ok()?.display()))
    }
}

/// The last name of a path.
pub fn base_name(path: &str) -> &str {
    path.trim_end_matches('/').rsplit('/').next().unwrap_or(path)
}

/// Whether `path` is in `directory`, or is that directory.
pub fn is_below(path: &str, directory: &str) -> bool {
    let parts = |path| Path::new(path).components().filter(|c| matches!(c, Component::Normal(_))).collect::<Vec<_>>();
    let (path, directory) = (parts(path), parts(directory));
    path.starts_with(&directory)
}
