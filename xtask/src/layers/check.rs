//! Holds the files of the workspace against the table.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use super::graph;
use super::manifests::Manifests;
use super::modules::Modules;
use super::resolve;
use super::table::{Rules, Table};

/// An import from one file to another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Edge {
    /// Below `src`, as `branch/mod.rs`.
    pub from: String,
    pub to: String,
    /// The first line that names something of the other file, and what it names.
    pub line: usize,
    pub name: String,
}

/// Files that import each other, directly or through others.
#[derive(Debug, Serialize)]
pub struct Circle {
    pub files: Vec<String>,
    pub edges: Vec<Edge>,
    /// More files than are allowed.
    pub too_large: bool,
}

/// What was found in one crate.
#[derive(Debug, Serialize)]
pub struct CrateReport {
    pub name: String,
    pub files: usize,
    pub edges: Vec<Edge>,
    pub circles: Vec<Circle>,
    pub upward: Vec<Edge>,
    /// Anything else that is wrong, as a sentence.
    pub faults: Vec<String>,
    /// Exceptions that are no longer needed or could be smaller.
    pub notes: Vec<String>,
    /// Exceptions that are in use.
    pub exceptions: usize,
}

/// The whole workspace.
#[derive(Debug, Serialize)]
pub struct Report {
    pub circle_files_max: usize,
    pub crates: Vec<CrateReport>,
    pub clean: bool,
}

/// Checks every crate below a workspace's root, or one of them.
pub fn workspace(root: &Path, table: &Table, only: Option<&str>) -> anyhow::Result<Report> {
    let directories = directories(root)?;
    let manifests = Manifests::read(directories.iter().map(PathBuf::as_path))?;
    let mut crates = Vec::new();
    for directory in &directories {
        let name = directory_name(directory);
        if only.is_none_or(|only| only == name) {
            let rules = table.crates.get(&name);
            crates.push(one(directory, rules.unwrap_or(&Rules::default()), table.circle_files_max, &manifests)?);
        }
    }
    if let Some(only) = only.filter(|_| crates.is_empty()) {
        anyhow::bail!("no crate {only} in {}", root.display());
    }
    if let Some(unknown) = table.crates.keys().find(|name| !directories.iter().any(|d| directory_name(d) == **name)) {
        anyhow::bail!("layers.toml names the crate {unknown}, which does not exist");
    }
    let clean = crates.iter().all(CrateReport::is_clean);
    Ok(Report { circle_files_max: table.circle_files_max, crates, clean })
}

/// The directories with a `Cargo.toml`: in the root, and in `crates`.
fn directories(root: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for parent in [root.join("crates"), root.to_path_buf()] {
        for entry in std::fs::read_dir(&parent).with_context(|| parent.display().to_string())? {
            let path = entry?.path();
            if path.join("Cargo.toml").exists() && path.join("src").exists() {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

pub fn directory_name(directory: &Path) -> String {
    directory.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// The roots that are compiled: `lib.rs`, `main.rs`, and what is in `bin`.
fn roots(source: &Path) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = ["lib.rs", "main.rs"].iter().map(|name| source.join(name)).collect();
    for entry in std::fs::read_dir(source.join("bin")).into_iter().flatten().flatten() {
        roots.push(if entry.path().is_dir() { entry.path().join("main.rs") } else { entry.path() });
    }
    roots.retain(|root| root.exists());
    roots
}

fn one(directory: &Path, rules: &Rules, circle_files_max: usize, manifests: &Manifests) -> anyhow::Result<CrateReport> {
    let source = directory.join("src");
    let below = |path: &Path| path.strip_prefix(&source).unwrap_or(path).to_string_lossy().into_owned();
    let mut files = BTreeSet::new();
    let mut edges = BTreeSet::new();
    let mut faults = Vec::new();
    for root in roots(&source) {
        let modules = Modules::read(&root)?;
        files.extend(modules.files.iter().map(|file| below(file)));
        edges.extend(resolve::edges(&modules).into_iter().map(|edge| Edge {
            from: below(&modules.files[edge.from]),
            to: below(&modules.files[edge.to]),
            line: edge.line,
            name: edge.name,
        }));
        for (file, line, path) in resolve::outside(&modules) {
            let forbidden = rules.never.iter().find(|one| one.contains("::") && is_below_path(&path, one));
            faults.extend(forbidden.map(|one| {
                format!("{}:{line} names {path}; layers.toml forbids {one} here", below(&modules.files[file]))
            }));
        }
    }
    let name = directory_name(directory);
    faults.extend(dependencies(&name, rules, manifests));
    let files: Vec<String> = files.into_iter().collect();
    let edges: Vec<Edge> = edges.into_iter().collect();
    let mut report = CrateReport {
        name,
        files: files.len(),
        circles: circles(&files, &edges),
        edges,
        upward: Vec::new(),
        faults,
        notes: Vec::new(),
        exceptions: 0,
    };
    report.judge_circles(rules, circle_files_max);
    report.judge_floors(rules, &files);
    Ok(report)
}

/// `std::net::TcpStream` is below `std::net`.
fn is_below_path(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Dependencies that the table forbids.
fn dependencies(name: &str, rules: &Rules, manifests: &Manifests) -> Vec<String> {
    let mut faults = Vec::new();
    if let Some(knows) = &rules.knows {
        let siblings = manifests.siblings(name);
        let unknown = siblings.iter().filter(|sibling| !knows.iter().any(|known| known == *sibling));
        faults.extend(unknown.map(|sibling| format!("depends on {sibling}; layers.toml allows {}", knows.join(", "))));
    }
    for never in rules.never.iter().filter(|never| !never.contains("::")) {
        if let Some(way) = manifests.way_to(name, never) {
            faults.push(format!("depends on {never} ({}); layers.toml forbids it", way.join(" -> ")));
        }
    }
    faults
}

/// True for a file of a module below the module of the file `parent`: `a/b.rs` is within `a.rs` and `a/mod.rs`.
fn is_within(file: &str, parent: &str) -> bool {
    match parent.strip_suffix(".rs").unwrap_or(parent) {
        "lib" | "main" => true,
        name => file.strip_prefix(name.strip_suffix("/mod").unwrap_or(name)).is_some_and(|rest| rest.starts_with('/')),
    }
}

fn circles(files: &[String], edges: &[Edge]) -> Vec<Circle> {
    let index = |file: &String| files.binary_search(file).expect("edges are between files of the list");
    // What a module takes from the modules below it is no import: it consists of them.
    let imports: Vec<&Edge> = edges.iter().filter(|edge| !is_within(&edge.to, &edge.from)).collect();
    let pairs = imports.iter().map(|edge| (index(&edge.from), index(&edge.to)));
    let found = graph::circles(files.len(), pairs).into_iter().map(|members| {
        let files: Vec<String> = members.into_iter().map(|member| files[member].clone()).collect();
        let inside = imports.iter().filter(|edge| files.contains(&edge.from) && files.contains(&edge.to));
        Circle { edges: inside.copied().cloned().collect(), files, too_large: false }
    });
    found.collect()
}

impl CrateReport {
    pub fn is_clean(&self) -> bool {
        self.upward.is_empty() && self.faults.is_empty() && self.circles.iter().all(|circle| !circle.too_large)
    }

    /// Marks the circles that are larger than allowed.
    fn judge_circles(&mut self, rules: &Rules, limit: usize) {
        let allowed = rules.circle_files_today.unwrap_or(limit).max(limit);
        let largest = self.circles.first().map_or(0, |circle| circle.files.len());
        for circle in &mut self.circles {
            circle.too_large = circle.files.len() > allowed;
        }
        if let Some(today) = rules.circle_files_today {
            if largest <= limit {
                self.notes.push("circle_files_today is no longer needed".to_owned());
            } else {
                self.exceptions += 1;
                if largest < today {
                    self.notes.push(format!("circle_files_today can be {largest} (it is {today})"));
                }
            }
        }
    }

    /// Finds the imports that go up, and files without a floor.
    fn judge_floors(&mut self, rules: &Rules, files: &[String]) {
        if rules.floors.is_empty() {
            return;
        }
        let without = files.iter().filter(|file| rules.floor(file).is_none());
        self.faults.extend(without.map(|file| format!("{file} is on no floor of layers.toml")));
        let prefixes = rules.floors.iter().flatten();
        let empty = prefixes.filter(|prefix| !files.iter().any(|file| Rules::is_on(file, prefix)));
        self.faults.extend(empty.map(|prefix| format!("layers.toml names {prefix}, and no file is there")));
        let up = self.edges.iter().filter(|edge| rules.floor(&edge.to) < rules.floor(&edge.from));
        let is_excepted = |edge: &Edge| rules.upward_today.contains(&format!("{} -> {}", edge.from, edge.to));
        let (excepted, upward): (Vec<&Edge>, Vec<&Edge>) = up.partition(|edge| is_excepted(edge));
        self.exceptions += excepted.len();
        let is_used = |one: &String| excepted.iter().any(|edge| format!("{} -> {}", edge.from, edge.to) == *one);
        let unused = rules.upward_today.iter().filter(|one| !is_used(one));
        self.notes.extend(unused.map(|one| format!("the exception {one} is no longer needed")));
        self.upward = upward.into_iter().cloned().collect();
    }
}
