//! What a crate depends on, read from its `Cargo.toml`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;

/// The packages of a workspace.
#[derive(Debug, Default)]
pub struct Manifests {
    /// Directory name -> package.
    packages: BTreeMap<String, Package>,
}

#[derive(Debug)]
struct Package {
    name: String,
    /// Names of `[dependencies]` and `[build-dependencies]`, those of a target included.
    dependencies: Vec<String>,
}

impl Manifests {
    pub fn read<'a>(directories: impl Iterator<Item = &'a Path>) -> anyhow::Result<Self> {
        let mut packages = BTreeMap::new();
        for directory in directories {
            let path = directory.join("Cargo.toml");
            let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let manifest: toml::Table = toml::from_str(&text).with_context(|| path.display().to_string())?;
            packages.insert(super::check::directory_name(directory), package(&manifest).context("no package.name")?);
        }
        Ok(Self { packages })
    }

    /// The workspace's crates that a crate depends on directly, by directory.
    pub fn siblings(&self, directory: &str) -> Vec<&str> {
        let Some(package) = self.packages.get(directory) else { return Vec::new() };
        let names = package.dependencies.iter();
        names.filter_map(|name| self.packages.iter().find(|(_, one)| one.name == *name)).map(|(d, _)| &**d).collect()
    }

    /// The way by which a crate reaches a dependency, itself first: directly or through crates of the workspace.
    pub fn way_to(&self, directory: &str, dependency: &str) -> Option<Vec<String>> {
        let mut ways = vec![vec![directory.to_owned()]];
        let mut seen = vec![directory.to_owned()];
        while let Some(way) = ways.pop() {
            let last = way.last()?;
            if self.packages.get(last)?.dependencies.iter().any(|name| name == dependency) {
                return Some([way, vec![dependency.to_owned()]].concat());
            }
            for sibling in self.siblings(last) {
                if !seen.iter().any(|name| name == sibling) {
                    seen.push(sibling.to_owned());
                    ways.insert(0, [way.clone(), vec![sibling.to_owned()]].concat());
                }
            }
        }
        None
    }
}

fn package(manifest: &toml::Table) -> Option<Package> {
    let name = manifest.get("package")?.get("name")?.as_str()?.to_owned();
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let tables =
        [manifest].into_iter().chain(targets.into_iter().flatten().filter_map(|(_, target)| target.as_table()));
    let mut dependencies = Vec::new();
    for table in tables {
        for kind in ["dependencies", "build-dependencies"] {
            let found = table.get(kind).and_then(toml::Value::as_table).into_iter().flatten();
            // `name = { package = "real" }`
            dependencies
                .extend(found.map(|(name, value)| {
                    value.get("package").and_then(toml::Value::as_str).unwrap_or(name).to_owned()
                }));
        }
    }
    Some(Package { name, dependencies })
}
