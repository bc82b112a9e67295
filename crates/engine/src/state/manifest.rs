//! The list of databases: `databases.toml` in the data directory.
//!
//! ```toml
//! format = 1          # refused when newer
//! next_id = 3         # the id the next database gets; ids are never reused (RULE 6)
//! unfinished = true   # the first start has not made all its databases yet; absent ever after
//! [[database]]
//! id = 1
//! name = "holdfast"
//! dialect = "postgres"
//! file = "volumes/000001-holdfast.db"
//! prepares = true     # has had prepared transactions: opened at every start; absent where false
//! [database.parameters]  # ALTER DATABASE ... SET; absent where there are none
//! auto_transaction = "on"
//! [[role]]            # ALTER ROLE ... SET; absent where there are none
//! name = "terminals"
//! [role.parameters]
//! auto_transaction = "on"
//! ```
//!
//! Format 2 is format 1 with parameters or `prepares`; a list without either is written as format 1, which earlier
//! releases read.
//!
//! It is replaced as a whole: written next to it, synced, renamed, directory synced. CREATE DATABASE writes it after the
//! volume's file is complete, DROP DATABASE before the file is removed; a file that no list names is removed at the
//! next open.

use crate::state::error::OpenError;
use holdfast_seams::{Disk, OpenHow, replace};
use holdfast_types::VolumeId;
use holdfast_types::record::{Pairs, ParametersOf};
use holdfast_types::schema::Dialect;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The newest format that this program reads.
const FORMAT: u32 = 2;
/// A list without parameters and prepared transactions.
const FORMAT_PLAIN: u32 = 1;
/// Longest manifest that is read: a million databases would not fit, and a damaged length does no harm.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format: u32,
    pub next_id: u32,
    /// The first start is still creating the databases of a new directory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
    #[serde(default, rename = "database")]
    pub databases: Vec<Entry>,
    #[serde(default, rename = "role", skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<Role>,
}

/// Run-time parameters by name.
pub type Parameters = BTreeMap<String, String>;

#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub id: u32,
    pub name: String,
    pub dialect: DialectName,
    /// Relative to the data directory.
    pub file: String,
    /// Transactions have been prepared in it: every start opens it, so that transactions that are still prepared hold
    /// their locks and are listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prepares: bool,
    /// Parameters that its sessions start with.
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
}

/// The owner of the parameters in a record of the trail.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ParameterOwner {
    Database(VolumeId),
    Role(String),
}

impl From<ParametersOf<'_>> for ParameterOwner {
    fn from(of: ParametersOf<'_>) -> ParameterOwner {
        match of {
            ParametersOf::Database(id) => ParameterOwner::Database(id),
            ParametersOf::Role(name) => ParameterOwner::Role(name.to_owned()),
        }
    }
}

/// The parameters in a record.
pub fn owned(pairs: Pairs<'_>) -> Parameters {
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// A user whose sessions start with their own parameters.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(deny_unknown_fields)]
pub struct Role {
    pub name: String,
    pub parameters: Parameters,
}

#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum DialectName {
    Sqlite,
    Postgres,
}

impl From<Dialect> for DialectName {
    fn from(d: Dialect) -> DialectName {
        match d {
            Dialect::Sqlite => DialectName::Sqlite,
            Dialect::Postgres => DialectName::Postgres,
        }
    }
}

/// The owner of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    Listed,
    /// A database whose creation or removal was interrupted by a crash.
    Orphan,
    Foreign,
}

impl From<DialectName> for Dialect {
    fn from(d: DialectName) -> Dialect {
        match d {
            DialectName::Sqlite => Dialect::Sqlite,
            DialectName::Postgres => Dialect::Postgres,
        }
    }
}

impl Entry {
    pub fn volume(&self) -> VolumeId {
        VolumeId(self.id)
    }

    /// Name and file, for messages about the file.
    pub fn shown(&self) -> String {
        format!("{} ({})", self.name, self.file)
    }
}

/// The path of a data directory's manifest.
pub fn path(dir: &Path) -> PathBuf {
    dir.join("databases.toml")
}

impl Manifest {
    pub fn empty() -> Manifest {
        Manifest { format: FORMAT_PLAIN, next_id: 1, unfinished: false, databases: Vec::new(), roles: Vec::new() }
    }

    /// The manifest of a first start.
    pub fn begun() -> Manifest {
        Manifest { unfinished: true, ..Manifest::empty() }
    }

    /// The oldest format that can express this manifest.
    fn format_needed(&self) -> u32 {
        let plain = self.roles.is_empty() && self.databases.iter().all(|d| d.parameters.is_empty() && !d.prepares);
        if plain { FORMAT_PLAIN } else { FORMAT }
    }

    /// Adds a database under a new id; its file gets a readable name.
    pub fn add(&mut self, name: &str, dialect: Dialect) -> Entry {
        self.add_as(self.next_id, name, dialect)
    }

    /// Adds a database under an id that another node gave it.
    pub fn add_as(&mut self, id: u32, name: &str, dialect: Dialect) -> Entry {
        self.next_id = self.next_id.max(id.saturating_add(1));
        let plain: String =
            name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect();
        let plain: String = plain.chars().take(60).collect();
        let file = format!("volumes/{id:06}-{plain}.db");
        let (name, dialect) = (name.to_owned(), dialect.into());
        let entry = Entry { id, name, dialect, file, prepares: false, parameters: Parameters::new() };
        self.databases.push(entry.clone());
        entry
    }

    /// Replaces the parameters that sessions of a database or a role start with. A user without parameters is not
    /// listed; a database that is not listed has none.
    pub fn set_parameters(&mut self, of: &ParameterOwner, parameters: Parameters) {
        match of {
            ParameterOwner::Database(id) => {
                let entry = self.databases.iter_mut().find(|e| e.volume() == *id);
                entry.into_iter().for_each(|e| e.parameters = parameters.clone());
            }
            ParameterOwner::Role(name) => match self.roles.iter().position(|r| r.name == *name) {
                Some(at) if parameters.is_empty() => _ = self.roles.remove(at),
                Some(at) => self.roles[at].parameters = parameters,
                None if parameters.is_empty() => {}
                None => self.roles.push(Role { name: name.clone(), parameters }),
            },
        }
    }

    /// The owner of a file in the directory `volumes`, by its name.
    pub fn owner(&self, name: &str) -> Owner {
        const BESIDE: [&str; 3] = ["", "-wal", "-shm"];
        let file = format!("volumes/{name}");
        let listed = |entry: &Entry| BESIDE.iter().any(|s| file.strip_suffix(s) == Some(&entry.file));
        let ours =
            name.ends_with(".new") || BESIDE.iter().any(|s| name.strip_suffix(s).is_some_and(|n| n.ends_with(".db")));
        let numbered = name.len() > 7 && name.as_bytes()[..6].iter().all(u8::is_ascii_digit);
        match self.databases.iter().any(listed) {
            true => Owner::Listed,
            false if ours && numbered => Owner::Orphan,
            false => Owner::Foreign,
        }
    }

    /// Reads the manifest; `None` when there is none.
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Manifest>, OpenError> {
        let path = path(dir);
        let io = |source| OpenError::Io { what: "read", path: path.display().to_string(), source };
        let Some(metadata) = disk.metadata(&path).map_err(io)? else { return Ok(None) };
        let refuse = |message: String| OpenError::Manifest { path: path.display().to_string(), message };
        if metadata.len_bytes > BYTES_MAX {
            return Err(refuse(format!(
                "the list of databases has {} bytes; the limit is {BYTES_MAX}",
                metadata.len_bytes
            )));
        }
        let mut bytes = vec![0; metadata.len_bytes as usize];
        let n = disk.open(&path, &OpenHow::default()).and_then(|f| f.read_at(&mut bytes, 0)).map_err(io)?;
        let text = String::from_utf8_lossy(&bytes[..n]).into_owned();
        Manifest::parse(&text).map(Some).map_err(refuse)
    }

    /// Reads what [`Manifest::text`] wrote, here or on another node.
    pub fn parse(text: &str) -> Result<Manifest, String> {
        let format = toml::from_str::<toml::Table>(text).ok().and_then(|t| t.get("format")?.as_integer());
        if let Some(f) = format.filter(|f| *f > i64::from(FORMAT)) {
            return Err(format!(
                "format {f} is newer than this program knows ({FORMAT}); use the release that wrote it"
            ));
        }
        toml::from_str(text).map_err(|e| format!("damaged, restore it or the whole directory from a copy: {e}"))
    }

    /// The manifest as it is in its file.
    pub fn text(&self) -> io::Result<String> {
        let manifest = Manifest { format: self.format_needed(), ..self.clone() };
        let text = toml::to_string(&manifest).map_err(io::Error::other)?;
        if text.len() as u64 > BYTES_MAX {
            return Err(io::Error::other(format!("it would have {} bytes; the limit is {BYTES_MAX}", text.len())));
        }
        Ok(text)
    }

    /// Replaces the manifest on disk.
    pub fn write(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let text = self.text()?;
        Ok(replace(disk, &path(dir), text.as_bytes())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_their_owners() {
        let mut m = Manifest::empty();
        m.add("shop", Dialect::Sqlite);
        for (name, owner) in [
            ("000001-shop.db", Owner::Listed),
            ("000001-shop.db-wal", Owner::Listed),
            ("000001-shop.db.new", Owner::Orphan),
            ("000002-gone.db", Owner::Orphan),
            ("000002-gone.db-shm", Owner::Orphan),
            ("notes.txt", Owner::Foreign),
            ("mine.db", Owner::Foreign),
        ] {
            assert_eq!(m.owner(name), owner, "{name}");
        }
    }

    #[test]
    fn golden() {
        let mut m = Manifest::empty();
        m.add("holdfast", Dialect::Postgres);
        m.add("a/b c", Dialect::Sqlite);
        let text = toml::to_string(&m).unwrap();
        assert_eq!(
            text,
            "format = 1\nnext_id = 3\n\n[[database]]\nid = 1\nname = \"holdfast\"\ndialect = \"postgres\"\nfile = \"volumes/000001-holdfast.db\"\n\n[[database]]\nid = 2\nname = \"a/b c\"\ndialect = \"sqlite\"\nfile = \"volumes/000002-a_b_c.db\"\n"
        );
        assert_eq!(toml::from_str::<Manifest>(&text).unwrap(), m);
    }

    #[test]
    fn parameters_and_prepared_transactions_need_format_2() {
        let mut m = Manifest::empty();
        m.add("shop", Dialect::Postgres);
        assert_eq!(m.format_needed(), 1);
        m.databases[0].parameters.insert("auto_transaction".into(), "on".into());
        assert_eq!(m.format_needed(), 2);
        m.databases[0].parameters.clear();
        m.roles.push(Role { name: "clerk".into(), parameters: [("lock_timeout".into(), "1s".into())].into() });
        assert_eq!(m.format_needed(), 2);
        m.roles.clear();
        m.databases[0].prepares = true;
        assert_eq!(m.format_needed(), 2);
        m.roles.push(Role { name: "clerk".into(), parameters: [("lock_timeout".into(), "1s".into())].into() });
        assert_eq!(toml::from_str::<Manifest>(&toml::to_string(&m).unwrap()).unwrap(), m);
    }
}
