//! Where a name leads: through modules, imports and re-exports to the file that defines it.

use std::collections::HashSet;

use super::modules::Modules;

/// Where a name can lead; a name may be a module and an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Module(usize),
    /// Something that this file defines.
    File(usize),
    /// Something of another crate.
    Outside,
}

/// An edge: a file that names something of another, the first line where it does, and the name.
#[derive(Debug)]
pub struct Edge {
    pub from: usize,
    pub to: usize,
    pub line: usize,
    pub name: String,
}

/// Every edge between two files of the crate, the first mention of each.
pub fn edges(all: &Modules) -> Vec<Edge> {
    let mut seen = HashSet::new();
    let mut edges = Vec::new();
    for (index, module) in all.modules.iter().enumerate() {
        for mention in &module.mentions {
            for place in places(all, index, &mention.path) {
                if let Place::File(to) = place
                    && to != module.file
                    && seen.insert((module.file, to))
                {
                    let name = mention.path.join("::");
                    edges.push(Edge { from: module.file, to, line: mention.line, name });
                }
            }
        }
    }
    edges
}

/// Where a path leads; `name!` is a macro called by its name alone.
fn places(all: &Modules, module: usize, path: &[String]) -> Vec<Place> {
    match path {
        [name] if name.ends_with('!') => {
            all.macros.get(name.trim_end_matches('!')).map(|file| Place::File(*file)).into_iter().collect()
        }
        path => Search::new(all).path(module, path),
    }
}

/// The paths that leave the crate, as `std::net::TcpStream`, imports put in front; with the file and the line.
pub fn outside(all: &Modules) -> Vec<(usize, usize, String)> {
    let mut found = Vec::new();
    for module in &all.modules {
        for mention in &module.mentions {
            let first = &mention.path[0];
            let import = module.imports.iter().find(|import| import.name == *first && mention.path.len() > 1);
            let path: Vec<&str> = match import {
                Some(import) => import.path.iter().chain(&mention.path[1..]).map(String::as_str).collect(),
                None => mention.path.iter().map(String::as_str).collect(),
            };
            if !matches!(path[0], "crate" | "self" | "super" | "Self") {
                found.push((module.file, mention.line, path.join("::")));
            }
        }
        found.extend(module.globs.iter().map(|glob| (module.file, 1, glob.join("::"))));
    }
    found
}

/// One search; it remembers what it is looking for, so that imports in a ring end.
struct Search<'a> {
    all: &'a Modules,
    asked: HashSet<(usize, String)>,
}

impl<'a> Search<'a> {
    fn new(all: &'a Modules) -> Self {
        Self { all, asked: HashSet::new() }
    }

    fn path(&mut self, from: usize, path: &[String]) -> Vec<Place> {
        let mut module = from;
        for (step, name) in path.iter().enumerate() {
            let last = step + 1 == path.len();
            match name.as_str() {
                "crate" if step == 0 => module = 0,
                "self" => {}
                "super" => module = self.all.modules[module].parent.unwrap_or(0),
                name => {
                    let mut places = self.name(module, name);
                    if places.is_empty() && step > 0 && !matches!(path[0].as_str(), "Self") {
                        // Written by a macro: the module that it is in is known at least.
                        places.push(Place::File(self.all.modules[module].file));
                    }
                    if last {
                        return places;
                    }
                    let next = places.iter().find_map(|place| match place {
                        Place::Module(module) => Some(*module),
                        _ => None,
                    });
                    match next {
                        Some(next) => module = next,
                        None => return places, // a variant or a function of a type
                    }
                }
            }
        }
        vec![Place::Module(module)]
    }

    fn name(&mut self, module: usize, name: &str) -> Vec<Place> {
        if !self.asked.insert((module, name.to_owned())) {
            return Vec::new();
        }
        let all = self.all;
        let here = &all.modules[module];
        let mut places = Vec::new();
        places.extend(here.children.get(name).map(|child| Place::Module(*child)));
        if here.items.iter().any(|item| item == name) {
            places.push(Place::File(here.file));
        }
        for import in here.imports.iter().filter(|import| import.name == name) {
            let found = self.path(module, &import.path);
            places.extend(if found.is_empty() { vec![Place::Outside] } else { found });
        }
        if places.is_empty() {
            for glob in &here.globs {
                for place in self.path(module, glob) {
                    if let Place::Module(from) = place {
                        places.extend(self.name(from, name));
                    }
                }
            }
        }
        if places.is_empty() && module == 0 {
            places.extend(all.macros.get(name).map(|file| Place::File(*file)));
        }
        self.asked.remove(&(module, name.to_owned()));
        places
    }
}
