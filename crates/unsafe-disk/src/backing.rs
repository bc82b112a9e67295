//! The backing directory: a plain tree that always holds exactly what is durable.
//!
//! A file that has bytes there but no durable name (just created, or unlinked and still open) lies as an object in a
//! directory of its own, which is emptied at every start and power cut. A change of names is applied in two steps, first
//! all old entries are taken away, then all new ones put in place, so that renames, replacements and exchanges are one.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::file::FileData;
use crate::names::NameChange;
use crate::node::{Attributes, Directory, Ino, Kind, Node, ROOT};
use crate::state::State;

/// Name of the objects' directory in the backing directory.
const OBJECTS: &str = ".unsafe-disk-objects";

impl State {
    pub fn object_path(&self, ino: Ino) -> PathBuf {
        self.root.join(OBJECTS).join(ino.to_string())
    }

    /// Reads the backing directory: the power is on, and everything is durable.
    pub fn load(&mut self) -> io::Result<()> {
        let objects = self.root.join(OBJECTS);
        match fs::remove_dir_all(&objects) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir(&objects)?,
        }
        let root = self.root.clone();
        let attributes = attributes(&fs::metadata(&root)?)?;
        let kind = Kind::Directory(Directory::default());
        self.nodes.insert(ROOT, Node::new(kind, attributes, ROOT, OsString::new()));
        self.load_directory(ROOT, &root)?;
        self.power_on = true;
        Ok(())
    }

    fn load_directory(&mut self, directory: Ino, path: &Path) -> io::Result<()> {
        let mut entries = fs::read_dir(path)?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(|entry| entry.file_name());
        for entry in entries {
            let name = entry.file_name();
            if directory == ROOT && name == OBJECTS {
                continue;
            }
            let metadata = fs::symlink_metadata(entry.path())?;
            let kind = if metadata.is_dir() {
                Kind::Directory(Directory::default())
            } else if metadata.is_file() {
                self.used_bytes += metadata.len();
                Kind::File(FileData::durable(metadata.len()))
            } else if metadata.is_symlink() {
                Kind::Symlink(fs::read_link(entry.path())?.into_os_string())
            } else {
                tracing::warn!("{} is no file, directory or link; left out", entry.path().display());
                continue;
            };
            let is_directory = metadata.is_dir();
            let ino = self.new_ino();
            let mut node = Node::new(kind, attributes(&metadata)?, directory, name.clone());
            node.durable_names.push((directory, name.clone()));
            self.nodes.insert(ino, node);
            if let Some(Node { kind: Kind::Directory(parent), .. }) = self.nodes.get_mut(&directory) {
                parent.live.insert(name.clone(), ino);
                parent.durable.insert(name, ino);
            }
            if is_directory {
                self.load_directory(ino, &entry.path())?;
            }
        }
        Ok(())
    }

    /// Where the backing has a directory's entry.
    fn entry_path(&self, directory: Ino, name: &OsStr) -> PathBuf {
        let mut parts = vec![name.to_owned()];
        let mut at = directory;
        while at != ROOT
            && let Some((parent, name)) = self.nodes.get(&at).and_then(|node| node.durable_names.first())
        {
            parts.push(name.clone());
            at = *parent;
        }
        parts.iter().rev().fold(self.root.clone(), |path, part| path.join(part))
    }

    /// Where the backing has a file, if it has it.
    fn backing_path(&self, ino: Ino) -> Option<PathBuf> {
        let node = self.nodes.get(&ino)?;
        if node.is_object {
            return Some(self.object_path(ino));
        }
        node.durable_names.first().map(|(directory, name)| self.entry_path(*directory, name))
    }

    /// The open backing file of a file; made as an object when there is none and `create` says so.
    pub fn open_backing(&mut self, ino: Ino, create: bool) -> io::Result<Option<Arc<fs::File>>> {
        let Some(data) = self.nodes.get(&ino).and_then(Node::file) else { return Ok(None) };
        if let Some(open) = &data.backing {
            return Ok(Some(open.clone()));
        }
        let file = match self.backing_path(ino) {
            Some(path) => fs::File::options().read(true).write(true).open(path)?,
            None if create => self.make_object(ino)?,
            None => return Ok(None),
        };
        let file = Arc::new(file);
        if let Some(data) = self.nodes.get_mut(&ino).and_then(Node::file_mut) {
            data.backing = Some(file.clone());
        }
        Ok(Some(file))
    }

    fn make_object(&mut self, ino: Ino) -> io::Result<fs::File> {
        let path = self.object_path(ino);
        let file = fs::File::options().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.is_object = true;
            set_attributes(&path, &node.attributes);
        }
        Ok(file)
    }

    /// Makes a change of names durable.
    pub fn apply(&mut self, change: &NameChange) -> io::Result<()> {
        for entry in &change.entries {
            let stays = |ino| change.entries.iter().any(|other| other.now == Some(ino));
            let Some(old) = self.durable_entry(entry.directory, &entry.name) else { continue };
            self.detach(entry.directory, &entry.name, old, stays(old))?;
        }
        for entry in &change.entries {
            if let Some(ino) = entry.now {
                self.attach(entry.directory, &entry.name, ino)?;
            }
        }
        Ok(())
    }

    fn durable_entry(&self, directory: Ino, name: &OsStr) -> Option<Ino> {
        match &self.nodes.get(&directory)?.kind {
            Kind::Directory(directory) => directory.durable.get(name).copied(),
            _ => None,
        }
    }

    fn durable_entries(&mut self, directory: Ino) -> Option<&mut Directory> {
        match &mut self.nodes.get_mut(&directory)?.kind {
            Kind::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    /// Takes an entry away. A file that still lives keeps its bytes as an object.
    fn detach(&mut self, directory: Ino, name: &OsStr, ino: Ino, stays: bool) -> io::Result<()> {
        let path = self.entry_path(directory, name);
        let object = self.object_path(ino);
        let Some(node) = self.nodes.get_mut(&ino) else { return Ok(()) };
        let last = node.durable_names.len() == 1;
        if node.is_directory() {
            if stays {
                fs::rename(&path, &object)?
            } else {
                fs::remove_dir(&path)?
            }
            node.is_object = stays;
        } else {
            let lives = stays || node.links > 0 || node.open > 0;
            if last && lives && !node.is_object {
                fs::hard_link(&path, &object)?;
                node.is_object = true;
            }
            fs::remove_file(&path)?;
        }
        node.durable_names.retain(|(dir, named)| !(*dir == directory && named == name));
        if let Some(entries) = self.durable_entries(directory) {
            entries.durable.remove(name);
        }
        Ok(())
    }

    fn attach(&mut self, directory: Ino, name: &OsStr, ino: Ino) -> io::Result<()> {
        let path = self.entry_path(directory, name);
        let object = self.object_path(ino);
        let Some(node) = self.nodes.get(&ino) else { return Ok(()) };
        match &node.kind {
            Kind::Directory(_) if node.is_object => fs::rename(&object, &path)?,
            Kind::Directory(_) => {
                fs::DirBuilder::new().mode(0o700).create(&path)?;
                set_attributes(&path, &node.attributes);
            }
            Kind::Symlink(target) => std::os::unix::fs::symlink(target, &path)?,
            Kind::File(_) => {
                self.open_backing(ino, true)?;
                let from = self.backing_path(ino).ok_or_else(|| io::Error::other("its backing file is gone"))?;
                fs::hard_link(from, &path)?;
                if self.nodes.get(&ino).is_some_and(|node| node.is_object) {
                    fs::remove_file(&object)?;
                }
            }
        }
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.is_object = false;
            node.durable_names.push((directory, name.to_owned()));
        }
        if let Some(entries) = self.durable_entries(directory) {
            entries.durable.insert(name.to_owned(), ino);
        }
        Ok(())
    }

    /// Brings a file's mode and owner to the backing, if it has the file.
    pub fn keep_attributes(&self, ino: Ino) {
        if let (Some(path), Some(node)) = (self.backing_path(ino), self.nodes.get(&ino)) {
            set_attributes(&path, &node.attributes);
        }
    }
}

/// Mode and owner as far as this process may set them; an unprivileged one owns everything itself.
fn set_attributes(path: &Path, attributes: &Attributes) {
    use std::os::unix::fs::PermissionsExt as _;
    let _ = std::os::unix::fs::lchown(path, Some(attributes.uid), Some(attributes.gid));
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(attributes.mode & 0o7777));
}

fn attributes(metadata: &fs::Metadata) -> io::Result<Attributes> {
    let modified = metadata.modified()?;
    let (mode, uid, gid) = (metadata.mode() & 0o7777, metadata.uid(), metadata.gid());
    Ok(Attributes { mode, uid, gid, modified, changed: modified })
}

/// True for a name that users may not take.
pub fn is_reserved(parent: Ino, name: &OsStr) -> bool {
    parent == ROOT && name.as_bytes() == OBJECTS.as_bytes()
}
