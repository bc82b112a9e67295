//! The files of rules in the data directory: `pg_hba.conf`, `pg_ident.conf`, and the secret of mock verifiers.
//!
//! The first start writes them; an older directory gets them at its next start. A file with a mistake refuses the start, and
//! names each line. At a reload (SIGHUP, `pg_reload_conf()`) both files are read before either takes effect: with a mistake in
//! one, the rules stay as they are, and the log names each line.
//!
//! What the rules in force were read from is kept, because a master writes it to the trail ([`super::share`]). Rules that come
//! from there replace both files as one step ([`super::taking`]).
//!
//! The secret (`authentication_secret`, 64 hexadecimal digits) makes the salts that are sent for roles that do not exist. If it
//! is lost, another one is made; a client that has recorded salts before can then tell such roles from others.

use super::hba::{self, Attempt, Connection, Method, Rule};
use super::ident::{self, Mapping};
use super::taking;
use holdfast_seams::replace::{read_whole, replace};
use holdfast_seams::{Disk, RealDisk};
use parking_lot::{Mutex, RwLock};
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use xxhash_rust::xxh3::xxh3_64;

pub const HBA_FILE: &str = "pg_hba.conf";
pub const IDENT_FILE: &str = "pg_ident.conf";
pub const SECRET_FILE: &str = "authentication_secret";
/// The checksum of the rules when they were last equal to those in the trail.
pub const SHARED_FILE: &str = "shared_rules";

/// The largest file of rules.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What the first start writes.
pub const HBA_TEMPLATE: &str = include_str!("pg_hba.conf");
pub const IDENT_TEMPLATE: &str = include_str!("pg_ident.conf");

/// Why the rules cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    #[error("cannot {what} {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error("{}: {}", path.display(), problems.join("; "))]
    Content { path: PathBuf, problems: Vec<String> },
    #[error(
        "{} line {line} lets every client at that address connect without a password (trust), and the server listens on \
         {listen}, which is not an address of this machine only: write scram-sha-256 or cert in place of trust, or listen on \
         127.0.0.1",
        path.display()
    )]
    Trusting { path: PathBuf, line: u32, listen: String },
    #[error(
        "{} does not fit the files that it is about (pg_hba.conf.taken, pg_ident.conf.taken): remove it to start with \
         pg_hba.conf and pg_ident.conf as they are",
        path.display()
    )]
    Taking { path: PathBuf },
}

/// Names of the files of rules, and what is in them.
pub type RuleTexts = Vec<(String, String)>;

/// The rules in force.
#[derive(Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    mappings: Vec<Mapping>,
    /// What they were read from.
    texts: RuleTexts,
}

impl Rules {
    /// The rule that decides about a connection.
    pub fn find(&self, attempt: &Attempt<'_>) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.matches(attempt))
    }

    /// Whether a rule other than `reject` would decide about the connection if it were encrypted.
    pub fn find_encrypted(&self, attempt: &Attempt<'_>) -> bool {
        let rule = self.rules.iter().find(|rule| rule.matches_as(attempt, true));
        rule.is_some_and(|rule| rule.method != Method::Reject)
    }

    /// Whether a map lets a user of the system, or of a certificate, connect as a role. Without a map the names must be equal.
    pub fn allows(&self, map: Option<&str>, system: &str, role: &str) -> bool {
        match map {
            None | Some("") => system == role,
            Some(map) => self.mappings.iter().any(|mapping| mapping.allows(map, system, role)),
        }
    }

    /// The line of a rule by which clients of other machines connect without a proof.
    fn trusting(&self) -> Option<u32> {
        let trusts = |rule: &&Rule| {
            rule.method == Method::Trust
                && !matches!(rule.connection, Connection::Local | Connection::HostGssEnc)
                && !rule.addresses.is_loopback()
        };
        self.rules.iter().find(trusts).map(|rule| rule.line)
    }

    #[cfg(test)]
    pub fn of(hba: &str, ident: &str) -> Rules {
        let rules = hba::parse(hba).into_iter().map(|entry| entry.rule.unwrap()).collect();
        let mappings = ident::parse(ident).into_iter().map(|entry| entry.mapping.unwrap()).collect();
        Rules { rules, mappings, texts: RuleTexts::new() }
    }
}

impl std::fmt::Debug for RuleFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuleFiles").field("dir", &self.dir).field("current", &self.current).finish_non_exhaustive()
    }
}

/// The files, and the rules that were read from them.
pub struct RuleFiles {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    current: RwLock<Arc<Rules>>,
    /// Held while the files are replaced or read again.
    one_at_a_time: Mutex<()>,
    /// An address of the server that other machines reach.
    beyond: OnceLock<String>,
}

impl RuleFiles {
    /// Writes the files that are missing, and reads the rules.
    pub fn open(dir: &Path) -> Result<RuleFiles, RulesError> {
        Self::open_on(Arc::new(RealDisk::new()), dir)
    }

    /// Opens the files on the given disk.
    pub fn open_on(disk: Arc<dyn Disk>, dir: &Path) -> Result<RuleFiles, RulesError> {
        taking::complete(&*disk, dir)?;
        for (name, template) in [(HBA_FILE, HBA_TEMPLATE), (IDENT_FILE, IDENT_TEMPLATE)] {
            let path = dir.join(name);
            let found =
                disk.metadata(&path).map_err(|source| RulesError::Io { what: "read", path: path.clone(), source })?;
            if found.is_none() {
                write(&*disk, &path, template)?;
            }
        }
        let current = RwLock::new(Arc::new(read(&*disk, dir)?));
        Ok(RuleFiles { disk, dir: dir.to_owned(), current, one_at_a_time: Mutex::new(()), beyond: OnceLock::new() })
    }

    pub fn current(&self) -> Arc<Rules> {
        self.current.read().clone()
    }

    /// Reads the files again; after a mistake the rules stay as they are.
    pub fn reload(&self) -> Result<(), RulesError> {
        let _one_at_a_time = self.one_at_a_time.lock();
        taking::complete(&*self.disk, &self.dir)?;
        let rules = read(&*self.disk, &self.dir)?;
        self.check_trust(&rules, self.beyond.get())?;
        *self.current.write() = Arc::new(rules);
        Ok(())
    }

    /// What the rules in force were read from.
    pub fn in_force(&self) -> RuleTexts {
        self.current().texts.clone()
    }

    /// What the first start writes.
    pub fn initial() -> RuleTexts {
        vec![(HBA_FILE.into(), HBA_TEMPLATE.into()), (IDENT_FILE.into(), IDENT_TEMPLATE.into())]
    }

    /// Replaces both files by the rules in the trail, as one step, notes that they are equal, and puts the rules in force.
    /// With a mistake in one everything stays as it is.
    pub fn take(&self, texts: &RuleTexts) -> Result<(), RulesError> {
        let of = |name: &str| texts.iter().find(|(n, _)| n == name).map(|(_, text)| text.clone()).unwrap_or_default();
        let rules = parse(&self.dir, of(HBA_FILE), of(IDENT_FILE))?;
        self.check_trust(&rules, self.beyond.get())?;
        let _one_at_a_time = self.one_at_a_time.lock();
        taking::take(&*self.disk, &self.dir, &rules.texts)?;
        *self.current.write() = Arc::new(rules);
        Ok(())
    }

    /// The checksum of the rules when they were last equal to those in the trail, if it is known.
    pub fn noted(&self) -> Option<u64> {
        let text = text(&*self.disk, &self.dir.join(SHARED_FILE)).ok()?;
        u64::from_str_radix(text.trim_end(), 16).ok()
    }

    pub fn note(&self, checksum: u64) -> Result<(), RulesError> {
        write(&*self.disk, &self.dir.join(SHARED_FILE), &format!("{checksum:016x}\n"))
    }

    /// Refuses rules that let clients of other machines in without a proof, for a server that they can reach. `listen`: an
    /// address of it that is not loopback.
    pub fn refuse_trusting(&self, listen: Option<String>) -> Result<(), RulesError> {
        self.check_trust(&self.current(), listen.as_ref())?;
        listen.into_iter().for_each(|listen| _ = self.beyond.set(listen));
        Ok(())
    }

    fn check_trust(&self, rules: &Rules, listen: Option<&String>) -> Result<(), RulesError> {
        match (listen, rules.trusting()) {
            (Some(listen), Some(line)) => {
                Err(RulesError::Trusting { path: self.dir.join(HBA_FILE), line, listen: listen.clone() })
            }
            _ => Ok(()),
        }
    }

    /// The entries of `pg_hba.conf` as it is now, for `pg_hba_file_rules`.
    pub fn hba_entries(&self) -> Result<Vec<hba::Entry>, RulesError> {
        Ok(hba::parse(&text(&*self.disk, &self.dir.join(HBA_FILE))?))
    }

    /// The entries of `pg_ident.conf` as it is now, for `pg_ident_file_mappings`.
    pub fn ident_entries(&self) -> Result<Vec<ident::Entry>, RulesError> {
        Ok(ident::parse(&text(&*self.disk, &self.dir.join(IDENT_FILE))?))
    }
}

fn read(disk: &dyn Disk, dir: &Path) -> Result<Rules, RulesError> {
    parse(dir, text(disk, &dir.join(HBA_FILE))?, text(disk, &dir.join(IDENT_FILE))?)
}

/// The checksum of files of rules, for [`SHARED_FILE`].
pub fn checksum(texts: &RuleTexts) -> u64 {
    let all: Vec<u8> =
        texts.iter().flat_map(|(name, text)| [name.as_bytes(), b"\0", text.as_bytes(), b"\0"].concat()).collect();
    xxh3_64(&all)
}

/// The rules in these texts, which are, or will be, the files in `dir`.
fn parse(dir: &Path, hba: String, ident: String) -> Result<Rules, RulesError> {
    let (path, mut problems, mut rules) = (dir.join(HBA_FILE), Vec::new(), Vec::new());
    for hba::Entry { line, rule } in hba::parse(&hba) {
        match rule {
            Ok(rule) => rules.push(rule),
            Err(error) => problems.push(format!("line {line}: {error}")),
        }
    }
    if rules.is_empty() && problems.is_empty() {
        problems.push("configuration file contains no entries".into());
    }
    if !problems.is_empty() {
        return Err(RulesError::Content { path, problems });
    }
    let (path, mut mappings) = (dir.join(IDENT_FILE), Vec::new());
    for ident::Entry { line, mapping } in ident::parse(&ident) {
        match mapping {
            Ok(mapping) => mappings.push(mapping),
            Err(error) => problems.push(format!("line {line}: {error}")),
        }
    }
    if !problems.is_empty() {
        return Err(RulesError::Content { path, problems });
    }
    Ok(Rules { rules, mappings, texts: vec![(HBA_FILE.into(), hba), (IDENT_FILE.into(), ident)] })
}

pub fn text(disk: &dyn Disk, path: &Path) -> Result<String, RulesError> {
    let failed = |source| RulesError::Io { what: "read", path: path.to_owned(), source };
    let bytes = read_whole(disk, path, FILE_BYTES_MAX).map_err(failed)?;
    let bytes = bytes.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    String::from_utf8(bytes).map_err(|error| {
        let line = error.as_bytes()[..error.utf8_error().valid_up_to()].split(|b| *b == b'\n').count();
        RulesError::Content {
            path: path.to_owned(),
            problems: vec![format!("line {line}: invalid byte sequence for encoding \"UTF8\"")],
        }
    })
}

pub fn write(disk: &dyn Disk, path: &Path, text: &str) -> Result<(), RulesError> {
    let failed = |source: io::Error| RulesError::Io { what: "write", path: path.to_owned(), source };
    if let Some(dir) = path.parent() {
        disk.create_dir(dir).map_err(failed)?;
    }
    replace(disk, path, text.as_bytes()).map_err(|error| failed(error.into()))
}

/// The secret of mock verifiers; made where there is none.
pub fn secret(dir: &Path) -> Result<[u8; 32], RulesError> {
    let path = dir.join(SECRET_FILE);
    let failed = |source: io::Error| RulesError::Io { what: "read", path: path.clone(), source };
    let stored = read_whole(&RealDisk::new(), &path, 1024).map_err(failed)?;
    if let Some(secret) = stored.as_deref().and_then(from_hex) {
        return Ok(secret);
    }
    if stored.is_some() {
        tracing::warn!("{} is not a secret of this server; another one is made", path.display());
    }
    let new = holdfast_scram::random::<32>().map_err(|error| failed(io::Error::other(error)))?;
    let hex = new.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    write(&RealDisk::new(), &path, &(hex + "\n"))?;
    Ok(new)
}

fn from_hex(text: &[u8]) -> Option<[u8; 32]> {
    let text = std::str::from_utf8(text).ok()?.trim_end();
    if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut secret = [0; 32];
    for (at, byte) in secret.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_start_writes_files_that_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let files = RuleFiles::open(dir.path()).unwrap();
        assert_eq!(files.current().rules.len(), 4);
        assert!(files.current().trusting().is_none() && files.refuse_trusting(Some("10.0.0.1:5433".into())).is_ok());
        let (first, again) = (secret(dir.path()).unwrap(), secret(dir.path()).unwrap());
        assert_eq!(first, again);
        std::fs::write(dir.path().join(SECRET_FILE), "zz").unwrap();
        assert_ne!(secret(dir.path()).unwrap(), first);
    }

    #[test]
    fn a_mistake_refuses_the_start_and_keeps_the_rules_at_a_reload() {
        let dir = tempfile::tempdir().unwrap();
        let files = RuleFiles::open(dir.path()).unwrap();
        let hba = dir.path().join(HBA_FILE);
        std::fs::write(&hba, "local all all trust\nlocal all\nbad all all x\n").unwrap();
        assert!(files.reload().is_err());
        assert_eq!(files.current().rules.len(), 4, "the old rules");
        let error = RuleFiles::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("line 2: end-of-line before role") && error.contains("line 3: invalid conn"), "{error}");
        assert_eq!(files.hba_entries().unwrap().iter().filter(|e| e.rule.is_err()).count(), 2);
        for (content, said) in [
            (&b"# nothing\n"[..], "contains no entries"),
            (b"local all all trust\nlocal \xff all trust", "line 2: invalid byte sequence"),
        ] {
            std::fs::write(&hba, content).unwrap();
            let error = RuleFiles::open(dir.path()).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
        std::fs::write(&hba, "local all all trust").unwrap();
        std::fs::write(dir.path().join(IDENT_FILE), "m\n").unwrap();
        assert!(files.reload().is_err());
        assert_eq!(files.current().rules.len(), 4, "neither takes effect");
        std::fs::write(dir.path().join(IDENT_FILE), "").unwrap();
        files.reload().unwrap();
        assert_eq!(files.current().rules.len(), 1);
    }

    #[test]
    fn trust_beyond_this_machine_is_found() {
        for (rule, line) in [
            ("local all all trust", None),
            ("host all all 127.0.0.0/8 trust", None),
            ("host all all ::1/128 trust", None),
            ("\nhost all all 10.0.0.0/8 trust", Some(2)),
            ("hostssl all all all trust clientcert=verify-ca", Some(1)),
            ("host all all samenet trust", Some(1)),
            ("host all all all scram-sha-256", None),
        ] {
            assert_eq!(Rules::of(rule, "").trusting(), line, "{rule}");
        }
    }
}
