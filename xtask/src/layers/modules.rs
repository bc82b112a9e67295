//! The modules of a crate: which file each is in, what it defines, what it imports and what it names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use super::mentions;

/// A path as it is written, and its line.
#[derive(Clone, Debug)]
pub struct Mention {
    pub path: Vec<String>,
    pub line: usize,
}

/// A name that a `use` brings into a module.
#[derive(Debug)]
pub struct Import {
    pub name: String,
    pub path: Vec<String>,
}

#[derive(Debug, Default)]
pub struct Module {
    /// The index of its file in [`Modules::files`].
    pub file: usize,
    pub parent: Option<usize>,
    pub children: BTreeMap<String, usize>,
    /// Names of the items that it defines itself.
    pub items: Vec<String>,
    pub imports: Vec<Import>,
    /// Modules whose names it imports with `*`.
    pub globs: Vec<Vec<String>>,
    /// Everything that makes an edge if it leads to another file.
    pub mentions: Vec<Mention>,
}

/// The modules of one compiled root (`lib.rs`, `main.rs`); the root is module 0.
#[derive(Debug, Default)]
pub struct Modules {
    pub files: Vec<PathBuf>,
    pub modules: Vec<Module>,
    /// `macro_rules!` by name, with the file.
    pub macros: BTreeMap<String, usize>,
}

impl Modules {
    /// Reads a root file and every module below it.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let mut all = Self::default();
        let directory = root.parent().context("a source file has a directory")?.to_path_buf();
        all.read_file(root.to_path_buf(), None, &directory)?;
        Ok(all)
    }

    fn read_file(&mut self, path: PathBuf, parent: Option<usize>, children: &Path) -> anyhow::Result<usize> {
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let file = syn::parse_file(&text).with_context(|| path.display().to_string())?;
        self.files.push(path);
        let file_index = self.files.len() - 1;
        self.read_items(&file.items, file_index, parent, children)
    }

    /// Reads the items of a module; `children` is the directory for the files of its child modules.
    fn read_items(
        &mut self,
        items: &[syn::Item],
        file: usize,
        parent: Option<usize>,
        children: &Path,
    ) -> anyhow::Result<usize> {
        let index = self.modules.len();
        self.modules.push(Module { file, parent, ..Module::default() });
        let mut found = mentions::collect(items);
        for name in found.macros.drain(..) {
            self.macros.insert(name, file);
        }
        let module = &mut self.modules[index];
        module.items = found.items;
        module.imports = found.imports;
        module.globs = found.globs;
        module.mentions = found.mentions;
        for item in items {
            let syn::Item::Mod(child) = item else { continue };
            if mentions::only_for_tests(&child.attrs) {
                continue;
            }
            let name = child.ident.to_string();
            let below = children.join(&name);
            let child_index = match &child.content {
                Some((_, items)) => self.read_items(items, file, Some(index), &below)?,
                None => self.read_file(file_of(child, children, &name)?, Some(index), &below)?,
            };
            self.modules[index].children.insert(name, child_index);
        }
        Ok(index)
    }
}

/// The file of `mod name;`
fn file_of(module: &syn::ItemMod, children: &Path, name: &str) -> anyhow::Result<PathBuf> {
    if module.attrs.iter().any(|attribute| attribute.path().is_ident("path")) {
        bail!("mod {name} has a #[path], which `cargo xtask layers` does not read");
    }
    let beside = children.join(format!("{name}.rs"));
    let inside = children.join(name).join("mod.rs");
    match (beside.exists(), inside.exists()) {
        (true, _) => Ok(beside),
        (false, true) => Ok(inside),
        (false, false) => bail!("neither {} nor {} exists", beside.display(), inside.display()),
    }
}
