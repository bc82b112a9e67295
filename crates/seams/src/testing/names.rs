//! Directory changes of a simulated disk: those requested, and those that a sync of the directory made durable.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

#[derive(Clone)]
pub enum NameChange {
    Link(PathBuf, usize),
    Unlink(PathBuf),
    Rename(PathBuf, PathBuf),
    Exchange(PathBuf, PathBuf),
}

/// Applies a change.
pub fn apply(names: &mut BTreeMap<PathBuf, usize>, change: &NameChange) {
    match change {
        NameChange::Link(path, file) => {
            names.insert(path.clone(), *file);
        }
        NameChange::Unlink(path) => {
            names.remove(path);
        }
        NameChange::Rename(from, to) => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
        NameChange::Exchange(from, to) => {
            let (first, second) = (names.remove(from), names.remove(to));
            names.extend(first.map(|file| (to.clone(), file)));
            names.extend(second.map(|file| (from.clone(), file)));
        }
    }
}

/// The directory whose sync makes the change durable.
pub fn dir_of(change: &NameChange) -> Option<&Path> {
    match change {
        NameChange::Link(path, _) | NameChange::Unlink(path) => path.parent(),
        NameChange::Rename(_, path) | NameChange::Exchange(_, path) => path.parent(),
    }
}
