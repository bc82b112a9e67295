//! The databases being served, each with its cache of translated statements, shared by all sessions.

use crate::plan::Extra;
use crate::settings::REQUIRE_TRANSACTION;
use holdfast_engine::{Database, Engine, LockWait, ParameterChange, ParametersOf, Report, RowLock, RowMode};
use holdfast_sql::{Context, Entry, Kind, LockStrength, Piece, StatementCache, Translated, translate};
use holdfast_types::schema::{Dialect, Schema};
use holdfast_types::{Level, SqlError, SqlResult, SqlState};
use parking_lot::{Mutex, MutexGuard, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Translated statements kept per database and list of parameter types.
const CACHE_ENTRIES_MAX: usize = 4096;

/// Different lists of parameter types that Parse messages asked for; beyond it the caches start anew.
const CACHES_MAX: usize = 256;

/// How long DROP DATABASE waits for sessions that are ending, and between two looks at them.
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
    /// The setting `require_transaction`: it is the database's, whichever way a session has come here.
    requires_transaction: AtomicBool,
}

fn new_cache() -> Cache {
    Arc::new(StatementCache::new(CACHE_ENTRIES_MAX))
}

impl Served {
    fn new(db: Database, parameters: &[(String, String)]) -> Served {
        let served = Served {
            db,
            plain: new_cache(),
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

    /// Are changes outside transactions refused?
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
        typed.entry(param_types.into()).or_insert_with(new_cache).clone()
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
            let mut statement = self.db.prepare(&translated.steps[0], report_under(&translated, schema))?;
            if crate::plan::complete(&mut translated, &statement, schema) {
                statement = self.db.prepare(&translated.steps[0], report_under(&translated, schema))?;
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
        translate(piece, &Context { dialect, schema, database: self.db.name(), user, param_types })
    }
}

/// One SQLite statement that needs nothing of the statements before it.
pub fn is_prepared_ahead(translated: &Translated) -> bool {
    let kind = matches!(
        translated.kind,
        Kind::Query | Kind::Insert | Kind::Update | Kind::Delete | Kind::CopyIn(_) | Kind::CopyOut(_) | Kind::Explain
    );
    kind && translated.steps.len() == 1
}

fn row_lock(lock: &holdfast_sql::RowLock) -> RowLock {
    RowLock {
        table: lock.table.clone(),
        mode: match lock.strength {
            LockStrength::KeyShare => RowMode::KeyShare,
            LockStrength::Share => RowMode::Share,
            LockStrength::NoKeyUpdate => RowMode::NoKeyUpdate,
            LockStrength::Update => RowMode::Update,
        },
        wait: match lock.wait {
            holdfast_sql::LockWait::Wait => LockWait::Wait,
            holdfast_sql::LockWait::NoWait => LockWait::NoWait,
            holdfast_sql::LockWait::SkipLocked => LockWait::Skip,
        },
        key: lock.key.clone(),
        limit: lock.limit,
    }
}

/// How the engine is to report the last step of a translated statement.
pub fn report_under(translated: &Translated, schema: &Schema) -> Report {
    Report { epoch: Some(schema.permanent_epoch()), ..report(translated) }
}

/// The same for what may run under any schema.
pub fn report(translated: &Translated) -> Report {
    Report {
        epoch: None,
        desc: translated.desc.clone(),
        verb: translated.verb,
        counts: translated.counts,
        ddl: false,
        write: translated.locks,
        row_locks: translated.row_locks.iter().map(row_lock).collect(),
        advisory: translated.advisory,
    }
}

/// A session's use of a database, given up when dropped.
pub struct InUse(Arc<Served>);

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
    /// Names of databases that are being dropped, which may wait for a standby. Locked only while `served` is.
    dropping: Mutex<HashSet<String>>,
}

impl Databases {
    pub fn new(engine: Engine) -> Databases {
        Databases { engine, served: Mutex::default(), dropping: Mutex::default() }
    }

    /// A database that sessions already use; `None` where finding out could block.
    pub fn enter_open(&self, name: &str) -> Option<InUse> {
        let served = self.served.try_lock()?;
        let found = served.get(name)?.clone();
        found.sessions.fetch_add(1, Ordering::AcqRel);
        Some(InUse(found))
    }

    /// A database for a new session. Opens it if nobody has yet, which blocks for a moment.
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

    /// May this server answer at this moment?
    pub fn has_right(&self) -> bool {
        self.engine.has_right()
    }

    /// CREATE DATABASE. Blocks until it has reached its level.
    pub fn create(&self, name: &str, dialect: Dialect, level: Level) -> SqlResult<()> {
        self.engine.create_database(name, dialect, level)
    }

    /// Is there a database of that name?
    pub fn exists(&self, name: &str) -> bool {
        self.engine.databases().iter().any(|d| d.name == name)
    }

    /// ALTER DATABASE and ALTER ROLE ... SET and RESET. Blocks until it has reached its level.
    pub fn change_parameters(&self, of: &ParametersOf, change: ParameterChange, level: Level) -> SqlResult<()> {
        self.engine.change_parameters(of, change, level)?;
        // Whoever has changed them last reads them last.
        let served = self.served.lock();
        if let ParametersOf::Database(name) = of
            && let Some(served) = served.get(name)
        {
            served.take_parameters(&self.engine.database_parameters(name));
        }
        Ok(())
    }

    /// What a session starts with because of that, in the order in which it is to be set.
    pub fn start_parameters(&self, database: &str, user: &str) -> Vec<(String, String)> {
        let mut parameters = self.engine.database_parameters(database);
        parameters.extend(self.engine.role_parameters(user));
        parameters
    }

    /// DROP DATABASE. Blocks until it has reached its level; no session enters meanwhile. As in PostgreSQL, sessions that
    /// are just ending are given some time.
    pub fn drop_database(&self, name: &str, level: Level) -> SqlResult<()> {
        self.begin_to_drop(name)?;
        let dropped = self.engine.drop_database(name, level);
        let _served = self.served.lock();
        self.dropping.lock().remove(name);
        dropped
    }

    /// From now on no session enters it.
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

fn being_dropped(name: &str) -> SqlError {
    SqlError::new(SqlState::OBJECT_IN_USE, format!("database \"{name}\" is being dropped"))
}
