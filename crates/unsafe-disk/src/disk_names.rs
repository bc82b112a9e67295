//! Names: creating, linking, renaming, removing. Each is seen at once and durable later.

use std::ffi::{OsStr, OsString};
use std::time::SystemTime;

use rustix::io::Errno;

use crate::disk::Disk;
use crate::faults::Operation;
use crate::file::FileData;
use crate::names::{Entry, NameChange};
use crate::node::{Attributes, Directory, Ino, Kind, Node, ROOT};
use crate::state::State;

/// What is made.
pub enum Made {
    File,
    Directory,
    Symlink(OsString),
}

/// What a rename does when the new name is taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    Replace,
    Refuse,
    Exchange,
}

fn child_path(state: &State, parent: Ino, name: &OsStr) -> String {
    match state.path(parent) {
        at if at.is_empty() => name.to_string_lossy().into_owned(),
        at => format!("{at}/{}", name.to_string_lossy()),
    }
}

fn check_name(parent: Ino, name: &OsStr) -> Result<(), Errno> {
    if crate::backing::is_reserved(parent, name) {
        return Err(Errno::PERM);
    }
    if name.len() > 255 { Err(Errno::NAMETOOLONG) } else { Ok(()) }
}

impl Disk {
    /// Makes something new; `owner` is user and group.
    pub fn make(&self, parent: Ino, name: &OsStr, what: Made, mode: u32, owner: (u32, u32)) -> Result<Ino, Errno> {
        check_name(parent, name)?;
        let (mut state, verdict) = self.begin(Operation::Name, |state| child_path(state, parent, name))?;
        if state.directory(parent)?.live.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let now = SystemTime::now();
        let attributes = Attributes { mode: mode & 0o7777, uid: owner.0, gid: owner.1, modified: now, changed: now };
        let kind = match what {
            Made::File => Kind::File(FileData::default()),
            Made::Directory => Kind::Directory(Directory::default()),
            Made::Symlink(target) => Kind::Symlink(target),
        };
        let ino = state.new_ino();
        state.nodes.insert(ino, Node::new(kind, attributes, parent, name.to_owned()));
        state.directory_mut(parent)?.live.insert(name.to_owned(), ino);
        let entry = Entry { directory: parent, name: name.to_owned(), was: None, now: Some(ino) };
        state.changed(NameChange { entries: vec![entry], moves_directory: false })?;
        self.end_change(state, &verdict, &[parent])?;
        Ok(ino)
    }

    /// Gives a file one more name.
    pub fn link(&self, ino: Ino, parent: Ino, name: &OsStr) -> Result<(), Errno> {
        check_name(parent, name)?;
        let (mut state, verdict) = self.begin(Operation::Name, |state| child_path(state, parent, name))?;
        if state.directory(parent)?.live.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let node = state.node_mut(ino)?;
        if node.is_directory() {
            return Err(Errno::PERM);
        }
        node.links += 1;
        (node.parent, node.name) = (parent, name.to_owned());
        state.directory_mut(parent)?.live.insert(name.to_owned(), ino);
        let entry = Entry { directory: parent, name: name.to_owned(), was: None, now: Some(ino) };
        state.changed(NameChange { entries: vec![entry], moves_directory: false })?;
        self.end_change(state, &verdict, &[parent])
    }

    /// Removes a file's name, or an empty directory when `directory` says that it must be one.
    pub fn remove(&self, parent: Ino, name: &OsStr, directory: bool) -> Result<(), Errno> {
        let (mut state, verdict) = self.begin(Operation::Name, |state| child_path(state, parent, name))?;
        let ino = state.lookup(parent, name)?;
        check_replaceable(&state, ino, directory)?;
        state.directory_mut(parent)?.live.remove(name);
        state.node_mut(ino)?.links -= 1;
        let entry = Entry { directory: parent, name: name.to_owned(), was: Some(ino), now: None };
        state.changed(NameChange { entries: vec![entry], moves_directory: directory })?;
        state.reap(ino);
        self.end_change(state, &verdict, &[parent])
    }

    pub fn rename(&self, from: (Ino, &OsStr), to: (Ino, &OsStr), taken: Taken) -> Result<(), Errno> {
        check_name(to.0, to.1)?;
        let (mut state, verdict) = self.begin(Operation::Name, |state| child_path(state, to.0, to.1))?;
        let ino = state.lookup(from.0, from.1)?;
        let target = state.directory(to.0)?.live.get(to.1).copied();
        let is_directory = state.node(ino)?.is_directory();
        match (taken, target) {
            (Taken::Refuse, Some(_)) => return Err(Errno::EXIST),
            (Taken::Exchange, None) => return Err(Errno::NOENT),
            (Taken::Replace, Some(target)) if target == ino => return Ok(()),
            (Taken::Replace, Some(target)) => check_replaceable(&state, target, is_directory)?,
            _ => {}
        }
        let swapped = target.filter(|_| taken == Taken::Exchange);
        let moves_directory = [Some(ino), target].into_iter().flatten().any(|moved| is_dir(&state, moved));
        place(&mut state, from, swapped)?;
        place(&mut state, to, Some(ino))?;
        if let (Some(target), Taken::Replace) = (target, taken) {
            state.node_mut(target)?.links -= 1;
        }
        let entry = |(directory, name): (Ino, &OsStr), was, now| Entry { directory, name: name.to_owned(), was, now };
        let entries = vec![entry(from, Some(ino), swapped), entry(to, target, Some(ino))];
        state.changed(NameChange { entries, moves_directory })?;
        if let Some(target) = target {
            state.reap(target);
        }
        self.end_change(state, &verdict, &[from.0, to.0])
    }
}

fn is_dir(state: &State, ino: Ino) -> bool {
    state.nodes.get(&ino).is_some_and(Node::is_directory)
}

/// Puts a file under a name, or takes the name away.
fn place(state: &mut State, (directory, name): (Ino, &OsStr), ino: Option<Ino>) -> Result<(), Errno> {
    let Some(ino) = ino else {
        state.directory_mut(directory)?.live.remove(name);
        return Ok(());
    };
    state.directory_mut(directory)?.live.insert(name.to_owned(), ino);
    let node = state.node_mut(ino)?;
    (node.parent, node.name) = (directory, name.to_owned());
    Ok(())
}

/// A file gives way to a file, an empty directory to a directory.
fn check_replaceable(state: &State, ino: Ino, by_directory: bool) -> Result<(), Errno> {
    match (&state.node(ino)?.kind, by_directory) {
        (Kind::Directory(_), false) => Err(Errno::ISDIR),
        (Kind::Directory(directory), true) if !directory.live.is_empty() || ino == ROOT => Err(Errno::NOTEMPTY),
        (Kind::Directory(_), true) => Ok(()),
        (_, true) => Err(Errno::NOTDIR),
        (_, false) => Ok(()),
    }
}
