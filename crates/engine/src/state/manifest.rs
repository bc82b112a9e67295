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
//! owner = 16384       # absent: the bootstrap superuser
//! connection_limit = 5                # absent: none
//! acl = ["=Tc/16384", "16385=c/16384"]  # grants, with OIDs for names; absent: the initial ones
//! [database.parameters]  # ALTER DATABASE ... SET; absent where there are none
//! auto_transaction = "on"
//! [[role]]            # a role ([`super::stored_role`]); absent where there are none
//! name = "terminals"
//! oid = 16384         # absent in format 2, see below
//! [role.parameters]   # ALTER ROLE ... SET; absent where there are none
//! auto_transaction = "on"
//! [server]            # what every node of the server shares; absent where there is nothing
//! "pg_hba.conf" = "local all all peer"
//! "all/lock_timeout" = "1s"           # ALTER ROLE ALL SET
//! ```
//!
//! Format 2 is format 1 with parameters or `prepares`; format 3 has roles, owners and grants of databases, `server`, and
//! `next_role`, the OID that the next role gets. A list is written in the oldest format that can express it, which earlier
//! releases read.
//!
//! Format 2 has parameters for names of users, and no roles. CREATE ROLE of such a name takes its parameters over.
//!
//! It is replaced as a whole: written next to it, synced, renamed, directory synced. CREATE DATABASE writes it after the
//! volume's file is complete, DROP DATABASE before the file is removed; a file that no list names is removed at the
//! next open.

use crate::state::error::OpenError;
use crate::state::stored_role::StoredRole;
use holdfast_seams::{Disk, OpenHow, replace};
use holdfast_types::VolumeId;
use holdfast_types::access::predefined::{BOOTSTRAP_OID, FIRST_ROLE_OID};
use holdfast_types::access::{AclItem, DatabaseAccess, Role};
use holdfast_types::record::{Pairs, ParametersOf};
use holdfast_types::schema::Dialect;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

/// The newest format that this program reads.
const FORMAT: u32 = 3;
/// A list without roles, owners and grants.
const FORMAT_PARAMETERS: u32 = 2;
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
    /// The OID that the next role gets: OIDs of roles are never reused, because objects in the databases name their
    /// owners by OID.
    #[serde(default = "first_role", skip_serializing_if = "is_first_role")]
    pub next_role: u32,
    #[serde(default, rename = "database")]
    pub databases: Vec<Entry>,
    #[serde(default, rename = "role", skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<StoredRole>,
    /// What every node of the server shares, by name.
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub server: Parameters,
}

fn first_role() -> u32 {
    FIRST_ROLE_OID
}

fn is_first_role(oid: &u32) -> bool {
    *oid == FIRST_ROLE_OID
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
    /// OID of the owner; `None`: the bootstrap superuser.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
    /// The largest number of sessions; `None`: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_limit: Option<i32>,
    /// The grants; `None`: the initial ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acl: Option<Vec<String>>,
    /// Parameters that its sessions start with.
    #[serde(default, skip_serializing_if = "Parameters::is_empty")]
    pub parameters: Parameters,
}

/// The owner of the parameters in a record of the trail.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ParameterOwner {
    Database(VolumeId),
    Role(String),
    Server,
}

impl From<ParametersOf<'_>> for ParameterOwner {
    fn from(of: ParametersOf<'_>) -> ParameterOwner {
        match of {
            ParametersOf::Database(id) => ParameterOwner::Database(id),
            ParametersOf::Role(name) => ParameterOwner::Role(name.to_owned()),
            ParametersOf::Server => ParameterOwner::Server,
        }
    }
}

impl ParameterOwner {
    /// As a record names it.
    pub fn in_record(&self) -> ParametersOf<'_> {
        match self {
            ParameterOwner::Database(id) => ParametersOf::Database(*id),
            ParameterOwner::Role(name) => ParametersOf::Role(name),
            ParameterOwner::Server => ParametersOf::Server,
        }
    }
}

/// The parameters in a record.
pub fn owned(pairs: Pairs<'_>) -> Parameters {
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
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

    /// Owner and grants. A grant that cannot be read gives nothing.
    pub fn access(&self) -> DatabaseAccess {
        let item = |text: &String| AclItem::parse(text, |oid| oid.parse().ok());
        DatabaseAccess {
            owner: self.owner.unwrap_or(BOOTSTRAP_OID),
            connection_limit: self.connection_limit.unwrap_or(-1),
            acl: self.acl.as_ref().map(|acl| acl.iter().filter_map(item).collect()),
        }
    }

    pub fn set_access(&mut self, access: &DatabaseAccess) {
        self.owner = Some(access.owner).filter(|oid| *oid != BOOTSTRAP_OID);
        self.connection_limit = Some(access.connection_limit).filter(|limit| *limit >= 0);
        let text = |item: &AclItem| item.text(|oid| oid.to_string());
        self.acl = access.acl.as_ref().map(|acl| acl.iter().map(text).collect());
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
        Manifest {
            format: FORMAT_PLAIN,
            next_id: 1,
            unfinished: false,
            next_role: FIRST_ROLE_OID,
            databases: Vec::new(),
            roles: Vec::new(),
            server: Parameters::new(),
        }
    }

    /// The manifest of a first start.
    pub fn begun() -> Manifest {
        Manifest { unfinished: true, ..Manifest::empty() }
    }

    /// The oldest format that can express this manifest.
    fn format_needed(&self) -> u32 {
        let has_access = |d: &Entry| d.owner.is_some() || d.connection_limit.is_some() || d.acl.is_some();
        let has_roles = self.next_role != FIRST_ROLE_OID || self.roles.iter().any(|r| r.oid.is_some());
        if has_roles || !self.server.is_empty() || self.databases.iter().any(has_access) {
            return FORMAT;
        }
        let plain = self.roles.is_empty() && self.databases.iter().all(|d| d.parameters.is_empty() && !d.prepares);
        if plain { FORMAT_PLAIN } else { FORMAT_PARAMETERS }
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
        let (owner, connection_limit, acl) = (None, None, None);
        let parameters = Parameters::new();
        let entry = Entry { id, name, dialect, file, prepares: false, owner, connection_limit, acl, parameters };
        self.databases.push(entry.clone());
        entry
    }

    /// Replaces the parameters that sessions of a database, or of a user in a list of format 2, start with. A database that
    /// is not listed has none; those of a role that is stored are part of it.
    pub fn set_parameters(&mut self, of: &ParameterOwner, parameters: Parameters) {
        match of {
            ParameterOwner::Database(id) => {
                let entry = self.databases.iter_mut().find(|e| e.volume() == *id);
                entry.into_iter().for_each(|e| e.parameters = parameters.clone());
            }
            ParameterOwner::Role(name) => match self.roles.iter().position(|r| r.name == *name) {
                Some(at) if self.roles[at].oid.is_some() => {}
                Some(at) if parameters.is_empty() => _ = self.roles.remove(at),
                Some(at) => self.roles[at].parameters = parameters,
                None if parameters.is_empty() => {}
                None => self.roles.push(StoredRole::of_format_2(name, parameters)),
            },
            ParameterOwner::Server => self.server = parameters,
        }
    }

    /// The roles that are stored; the others are as they are initially.
    pub fn stored_roles(&self) -> impl Iterator<Item = Role> {
        self.roles.iter().filter_map(StoredRole::role)
    }

    /// Sets a role, all of it. Its OID is not given to another one.
    pub fn set_role(&mut self, role: &Role) {
        self.next_role = self.next_role.max(role.oid.saturating_add(1));
        let stored = StoredRole::from(role);
        self.roles.retain(|r| r.oid.is_some() || r.name != role.name);
        match self.roles.iter_mut().find(|r| r.oid == Some(role.oid)) {
            Some(found) => *found = stored,
            None => self.roles.push(stored),
        }
    }

    /// Removes a role, and its parts in other roles' memberships are the caller's.
    pub fn remove_role(&mut self, oid: u32) {
        self.next_role = self.next_role.max(oid.saturating_add(1));
        self.roles.retain(|r| r.oid != Some(oid));
    }

    /// Sets owner and grants of a database.
    pub fn set_access(&mut self, id: VolumeId, access: &DatabaseAccess) {
        let entry = self.databases.iter_mut().find(|e| e.volume() == id);
        entry.into_iter().for_each(|e| e.set_access(access));
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
    fn roles_and_grants_need_format_3() {
        let mut m = Manifest::empty();
        m.add("shop", Dialect::Postgres);
        m.set_parameters(&ParameterOwner::Role("clerk".into()), [("lock_timeout".into(), "1s".into())].into());
        assert_eq!(m.format_needed(), 2);
        let access = DatabaseAccess {
            owner: 16384,
            connection_limit: 7,
            acl: Some(vec![AclItem::parse("=c/10", |n| n.parse().ok()).unwrap()]),
        };
        m.set_access(VolumeId(1), &access);
        assert_eq!((m.format_needed(), m.databases[0].access()), (3, access));
        m.set_access(VolumeId(1), &DatabaseAccess::default());
        assert_eq!(m.format_needed(), 2);
        let clerk = Role { login: true, password: Some("SCRAM-SHA-256$x".into()), ..Role::new(16384, "clerk") };
        m.set_role(&clerk);
        assert_eq!((m.format_needed(), m.next_role, m.roles.len()), (3, 16385, 1));
        let text = m.text().unwrap();
        assert_eq!(
            text,
            "format = 3\nnext_id = 2\nnext_role = 16385\n\n[[database]]\nid = 1\nname = \"shop\"\ndialect = \"postgres\"\nfile = \"volumes/000001-shop.db\"\n\n[[role]]\nname = \"clerk\"\noid = 16384\nattributes = [\"inherit\", \"login\"]\npassword = \"SCRAM-SHA-256$x\"\n"
        );
        assert_eq!(Manifest::parse(&text).unwrap().stored_roles().collect::<Vec<_>>(), [clerk]);
        m.remove_role(16384);
        assert_eq!((m.format_needed(), m.next_role), (3, 16385), "its OID is not used again");
    }

    #[test]
    fn what_nodes_share_needs_format_3() {
        let mut m = Manifest::empty();
        m.add("shop", Dialect::Postgres);
        m.set_parameters(
            &ParameterOwner::Server,
            [("pg_hba.conf".into(), "# rules\nlocal all all peer\n".into())].into(),
        );
        let text = m.text().unwrap();
        assert!(text.starts_with("format = 3\n") && text.contains("[server]\n\"pg_hba.conf\" = "), "{text}");
        assert_eq!(Manifest::parse(&text).unwrap().server, m.server);
        m.set_parameters(&ParameterOwner::Server, Parameters::new());
        assert_eq!(m.format_needed(), 1);
    }

    #[test]
    fn parameters_and_prepared_transactions_need_format_2() {
        let mut m = Manifest::empty();
        m.add("shop", Dialect::Postgres);
        assert_eq!(m.format_needed(), 1);
        m.databases[0].parameters.insert("auto_transaction".into(), "on".into());
        assert_eq!(m.format_needed(), 2);
        m.databases[0].parameters.clear();
        m.roles.push(StoredRole::of_format_2("clerk", [("lock_timeout".into(), "1s".into())].into()));
        assert_eq!(m.format_needed(), 2);
        m.roles.clear();
        m.databases[0].prepares = true;
        assert_eq!(m.format_needed(), 2);
        m.roles.push(StoredRole::of_format_2("clerk", [("lock_timeout".into(), "1s".into())].into()));
        assert_eq!(toml::from_str::<Manifest>(&toml::to_string(&m).unwrap()).unwrap(), m);
    }
}
