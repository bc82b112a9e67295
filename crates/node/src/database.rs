//! The databases being served, each with its cache of translated statements, shared by all sessions.

use crate::plan::Extra;
use crate::privilege_change::dependents;
use crate::roles::Listed;
use crate::settings::REQUIRE_TRANSACTION;
use holdfast_engine::{Database, Engine, Report, WaitInfo};
use holdfast_sql::{Context, Entry, Kind, Piece, StatementCache, Translated, translate};
use holdfast_types::access::{DatabaseAccess, RoleChanges, Roles};
use holdfast_types::schema::{Dialect, Schema};
use holdfast_types::{Level, ParameterChange, SqlError, SqlResult, SqlState};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Translated statements kept per database and list of parameter types.
const CACHE_ENTRIES_MAX: usize = 4096;

/// Bytes of translated statements: of those whose parameter types are left open, and of each list of types.
const CACHE_BYTES_MAX: usize = 32 << 20;
const TYPED_CACHE_BYTES_MAX: usize = 1 << 20;

/// Different lists of parameter types in Parse messages; beyond it the caches are cleared.
const CACHES_MAX: usize = 256;

/// How long DROP DATABASE waits for sessions that are ending, and how often it checks.
const SESSIONS_END_MAX: Duration = Duration::from_secs(5);
const SESSIONS_PAUSE: Duration = Duration::from_millis(10);

type Cache = Arc<StatementCache<Extra>>;

/// A database in use.
pub struct Served {
    pub db: Database,
    plain: Cache,
    /// Statements whose parameter types the client chose, by those types.
    typed: RwLock<HashMap<Box<[u32]>, Cache>>,
    sessions: AtomicUsize,
    /// The database's setting `require_transaction`; it holds for every session in the database.
    requires_transaction: AtomicBool,
}

fn new_cache(bytes_max: usize) -> Cache {
    Arc::new(StatementCache::new(CACHE_ENTRIES_MAX, bytes_max))
}

impl Served {
    fn new(db: Database, parameters: &[(String, String)]) -> Served {
        let served = Served {
            db,
            plain: new_cache(CACHE_BYTES_MAX),
            typed: RwLock::default(),
            sessions: AtomicUsize::new(0),
            requires_transaction: AtomicBool::new(false),
        };
        served.take_parameters(parameters);
        served
    }

    fn take_parameters(&self, parameters: &[(String, String)]) {
        let required = parameters.iter().any(|(name, value)| name == REQUIRE_TRANSACTION && value == "on");
        self.requires_transaction.store(required, Ordering::Release);
    }

    /// Whether changes outside transactions are refused.
    pub fn requires_transaction(&self) -> bool {
        self.requires_transaction.load(Ordering::Acquire)
    }

    fn cache(&self, param_types: &[u32]) -> Cache {
        if param_types.iter().all(|t| *t == 0) {
            return self.plain.clone();
        }
        if let Some(cache) = self.typed.read().get(param_types) {
            return cache.clone();
        }
        let mut typed = self.typed.write();
        if typed.len() >= CACHES_MAX {
            typed.clear();
        }
        typed.entry(param_types.into()).or_insert_with(|| new_cache(TYPED_CACHE_BYTES_MAX)).clone()
    }

    /// A statement translated and, where it can be, prepared under a published schema.
    pub fn resolve(
        &self,
        piece: &Piece<'_>,
        schema: &Schema,
        param_types: &[u32],
        user: &str,
    ) -> SqlResult<Arc<Entry<Extra>>> {
        let cache = self.cache(param_types);
        if let Some(entry) = cache.lookup(piece, schema.epoch) {
            return Ok(entry);
        }
        let mut translated = self.translate(piece, schema, param_types, user)?;
        let extra = if is_prepared_ahead(&translated) {
            let mut statement = self.db.prepare(&translated.steps[0].sql, report_under(&translated, schema))?;
            if crate::plan::complete(&mut translated, &statement, schema) {
                statement = self.db.prepare(&translated.steps[0].sql, report_under(&translated, schema))?;
            }
            Some(statement)
        } else {
            None
        };
        Ok(cache.insert(piece, schema.epoch, translated, extra))
    }

    /// Translates without looking at the cache.
    pub fn translate(
        &self,
        piece: &Piece<'_>,
        schema: &Schema,
        param_types: &[u32],
        user: &str,
    ) -> SqlResult<Translated> {
        let dialect = self.db.dialect();
        translate(piece, &Context { dialect, schema, database: self.db.name(), user, param_types, applies: false })
    }
}

/// Whether it is one SQLite statement that does not depend on statements before it.
pub fn is_prepared_ahead(translated: &Translated) -> bool {
    let kind = matches!(
        translated.kind,
        Kind::Query | Kind::Insert | Kind::Update | Kind::Delete | Kind::CopyIn(_) | Kind::CopyOut(_) | Kind::Explain
    );
    kind && translated.steps.len() == 1
}

/// How the engine is to report the last step of a translated statement.
pub fn report_under(translated: &Translated, schema: &Schema) -> Report {
    Report { epoch: Some(schema.permanent_epoch()), ..report(translated) }
}

/// How the engine is to report the last step of a statement that may run under any schema.
pub fn report(translated: &Translated) -> Report {
    Report {
        epoch: None,
        facts: translated.steps.last().map(|step| step.facts.clone()).unwrap_or_default(),
        desc: translated.desc.clone(),
        verb: translated.verb,
        counts: translated.counts,
        ddl: false,
        write: translated.locks,
        row_locks: translated.row_locks.clone().into(),
        advisory: translated.advisory,
        internal: false,
        applied: false,
    }
}

/// A session's use of a database; dropping it ends the use.
pub struct InUse(Arc<Served>);

impl InUse {
    /// The database, for work that does not count as a use of its own.
    pub fn shared(&self) -> Arc<Served> {
        self.0.clone()
    }
}

impl std::ops::Deref for InUse {
    type Target = Served;
    fn deref(&self) -> &Served {
        &self.0
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::AcqRel);
    }
}

/// All databases of the server.
pub struct Databases {
    engine: Engine,
    served: Mutex<HashMap<String, Arc<Served>>>,
    /// Names of databases that are being dropped, which may wait for a standby. Locked only while `served` is locked.
    dropping: Mutex<HashSet<String>>,
}

impl Databases {
    pub fn new(engine: Engine) -> Databases {
        Databases { engine, served: Mutex::default(), dropping: Mutex::default() }
    }

    /// A database that is open already; `None` where opening it could block.
    pub fn enter_open(&self, name: &str) -> Option<InUse> {
        let served = self.served.try_lock()?;
        let found = served.get(name)?.clone();
        found.sessions.fetch_add(1, Ordering::AcqRel);
        Some(InUse(found))
    }

    /// A database for a new session. Opens it where it is not open yet, which blocks briefly.
    pub fn enter(&self, name: &str) -> SqlResult<InUse> {
        let mut served = self.served.lock();
        if self.dropping.lock().contains(name) {
            return Err(being_dropped(name));
        }
        let found = match served.get(name) {
            Some(found) => found.clone(),
            None => {
                let new = Served::new(self.engine.database(name)?, &self.engine.database_parameters(name));
                let new = Arc::new(new);
                served.insert(name.to_owned(), new.clone());
                new
            }
        };
        found.sessions.fetch_add(1, Ordering::AcqRel);
        Ok(InUse(found))
    }

    /// 57P03 if this server may not answer now. A client with several hosts then tries the next one.
    pub fn check_right(&self) -> SqlResult<()> {
        if self.engine.has_right() {
            return Ok(());
        }
        if self.engine.is_deposed() {
            return Err(deposed());
        }
        let message = "this server cannot renew its lease as master; another one may have taken its place";
        Err(SqlError::new(SqlState::CANNOT_CONNECT_NOW, message).with_hint(TO_THE_MASTER))
    }

    /// CREATE DATABASE. Blocks until it has reached its level.
    pub fn create(&self, name: &str, dialect: Dialect, access: DatabaseAccess, level: Level) -> SqlResult<()> {
        self.engine.create_database_for(name, dialect, access, level)
    }

    /// All databases by their names and numbers.
    pub fn listed(&self) -> Vec<Listed> {
        let listed = |d: holdfast_engine::DatabaseInfo| Listed { name: d.name, oid: d.oid, volume: d.volume };
        self.engine.databases().into_iter().map(listed).collect()
    }

    /// What a role owns or is granted in the databases, as lines of DETAIL: object by object in the database `here`, whose
    /// schema is given, and how many there are in each other one. Opens those that are not open.
    pub fn objects_of(&self, role: u32, here: &str, schema: &Schema) -> Vec<String> {
        let mut lines = dependents(schema, role);
        for info in self.engine.databases().into_iter().filter(|d| d.name != here) {
            let name = info.name;
            match self.engine.database(&name).map(|db| dependents(&db.schema(), role).len()) {
                Ok(0) => {}
                Ok(1) => lines.push(format!("1 object in database {name}")),
                Ok(count) => lines.push(format!("{count} objects in database {name}")),
                // It may own something there, and its OID must keep a name.
                Err(_) => lines.push(format!("unknown objects in database {name}, which cannot be opened")),
            }
        }
        lines
    }

    /// The name of the role that has prepared a transaction.
    pub fn prepared_owner(&self, database: &str, gid: &str) -> Option<String> {
        let of = |p: &holdfast_engine::PreparedInfo| p.database == database && p.gid == gid;
        self.engine.prepared().into_iter().find(of).map(|p| p.owner)
    }

    /// An OID for a new role.
    pub fn reserve_role_oid(&self) -> SqlResult<u32> {
        self.engine.reserve_role_oid()
    }

    /// Rises with every change of a role.
    pub fn roles_version(&self) -> u64 {
        self.engine.roles_version()
    }

    /// All roles.
    pub fn roles(&self) -> Arc<Roles> {
        self.engine.roles()
    }

    /// Whether a database of that name exists.
    pub fn exists(&self, name: &str) -> bool {
        self.engine.databases().iter().any(|d| d.name == name)
    }

    /// ALTER ROLE ALL SET and RESET. Blocks until it has reached its level.
    pub fn change_parameters_of_all(&self, change: ParameterChange, level: Level) -> SqlResult<()> {
        self.engine.change_parameters_of_all(change, level)
    }

    /// ALTER DATABASE ... SET and RESET. Blocks until it has reached its level.
    pub fn change_parameters(&self, database: &str, change: ParameterChange, level: Level) -> SqlResult<()> {
        self.engine.change_parameters(database, change, level)?;
        // The last change is read last.
        let served = self.served.lock();
        if let Some(served) = served.get(database) {
            served.take_parameters(&self.engine.database_parameters(database));
        }
        Ok(())
    }

    /// The lock that the session with this process number waits for.
    pub fn lock_wait_of(&self, pid: i32) -> Option<WaitInfo> {
        self.engine.lock_wait_of(pid)
    }

    /// Changes roles, and owners and grants of databases. Blocks until it has reached its level.
    pub fn change_roles(&self, changes: RoleChanges, level: Level) -> SqlResult<()> {
        self.engine.change_roles(changes, level)
    }

    /// The stored parameters that a session starts with, in the order in which they are set.
    pub fn start_parameters(&self, database: &str, user: &str) -> Vec<(String, String)> {
        let mut parameters = self.engine.parameters_of_all();
        parameters.extend(self.engine.database_parameters(database));
        parameters.extend(self.engine.role_parameters(user, database));
        parameters
    }

    /// DROP DATABASE. Blocks until it has reached its level; no session enters meanwhile. As in PostgreSQL, sessions that
    /// are ending are given some time.
    pub fn drop_database(&self, name: &str, level: Level) -> SqlResult<()> {
        // In front of the wait for sessions: that does not help. The engine looks again when there are none.
        self.engine.check_droppable(name)?;
        self.begin_to_drop(name)?;
        let dropped = self.engine.drop_database(name, level);
        let _served = self.served.lock();
        self.dropping.lock().remove(name);
        dropped
    }

    /// Marks the database as being dropped: no session enters it from now on.
    fn begin_to_drop(&self, name: &str) -> SqlResult<()> {
        let until = Instant::now() + SESSIONS_END_MAX;
        let mut served = self.served.lock();
        let mut sessions = 0;
        let mut look = |served: &HashMap<String, Arc<Served>>| {
            sessions = served.get(name).map_or(0, |s| s.sessions.load(Ordering::Acquire));
            sessions > 0
        };
        while look(&served) && Instant::now() < until {
            MutexGuard::unlocked(&mut served, || std::thread::sleep(SESSIONS_PAUSE));
        }
        if sessions > 0 {
            return Err(SqlError::new(
                SqlState::OBJECT_IN_USE,
                format!("database \"{name}\" is being accessed by other users"),
            )
            .with_detail(format!("There are {sessions} sessions using the database.")));
        }
        if !self.dropping.lock().insert(name.to_owned()) {
            return Err(being_dropped(name));
        }
        served.remove(name);
        Ok(())
    }
}

const TO_THE_MASTER: &str = "Connect again, to the master.";

/// 57P03 of a server that is no longer the master, or that lacks what a standby has.
pub fn deposed() -> SqlError {
    let message = "this server was deposed: another one is the master, or has acknowledged commits that this one lacks";
    SqlError::new(SqlState::CANNOT_CONNECT_NOW, message).with_hint(TO_THE_MASTER)
}

fn being_dropped(name: &str) -> SqlError {
    SqlError::new(SqlState::OBJECT_IN_USE, format!("database \"{name}\" is being dropped"))
}
