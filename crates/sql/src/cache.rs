//! Translations of statements seen before, found by skeleton, so that a message that differs from an earlier one
//! only in its literals is not parsed again.
//!
//! A translation records which literals became parameters. The others are part of it: `LIMIT 10` and `LIMIT 20` have
//! one skeleton and two entries. An entry is found only under the dialect and schema epoch it was made for, so a schema
//! change makes the old entries unreachable; they are dropped when room is needed. Entries that were not used since the
//! last sweep are dropped first. The cache holds at most `entries_max` entries, `bytes_max` bytes
//! of text, and [`ENTRY_BYTES_MAX`] bytes of each; a larger statement is translated every time.

use crate::fingerprint::{query_id, text_id};
use crate::scan::Piece;
use crate::translated::Translated;
use holdfast_types::schema::Dialect;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// The largest skeleton plus fixed literals, and the largest translation, that is kept, in bytes.
pub const ENTRY_BYTES_MAX: usize = 64 << 10;
/// The largest number of entries with one skeleton and different fixed literals.
const VARIANTS_MAX: usize = 32;

/// A translated statement with what the caller stores next to it, such as the prepared statement.
#[derive(Debug)]
pub struct Entry<T> {
    pub translated: Translated,
    pub extra: T,
    /// The statement's number in `pg_stat_statements`.
    pub query_id: i64,
    key: Key,
    used: AtomicBool,
    /// Role and version of the roles for which its privileges were last checked; [`UNCHECKED`] before.
    passed: AtomicU64,
}

/// The texts of a translation, and of the statement that the caller prepares from it.
fn translation_bytes(translated: &Translated) -> usize {
    2 * translated.steps.iter().map(|step| step.sql.len()).sum::<usize>()
}

fn sum_bytes<T>(entries: &[Arc<Entry<T>>]) -> usize {
    entries.iter().map(|entry| entry.bytes()).sum()
}

const UNCHECKED: u64 = u64::MAX;

/// A role and the roles' version. `None` for a version that is not kept: that of a transaction that has changed roles, which
/// only its session sees.
fn role_key(role: u32, version: u64) -> Option<u64> {
    Some(u64::from(role) << 32 | u64::from(u32::try_from(version).ok()?))
}

impl<T> Entry<T> {
    /// Whether the role had the privileges that it needs, with the roles at this version.
    pub fn has_passed(&self, role: u32, version: u64) -> bool {
        role_key(role, version).is_some_and(|key| self.passed.load(Ordering::Relaxed) == key)
    }

    /// The role has the privileges that it needs.
    pub fn pass(&self, role: u32, version: u64) {
        if let Some(key) = role_key(role, version) {
            self.passed.store(key, Ordering::Relaxed);
        }
    }

    /// About the bytes that it keeps.
    fn bytes(&self) -> usize {
        size_of::<Entry<T>>() + self.key.bytes() + translation_bytes(&self.translated)
    }

    /// The epoch of the schema it was translated under.
    pub fn epoch(&self) -> u32 {
        self.key.epoch
    }
}

#[derive(Debug, PartialEq)]
struct Key {
    skeleton: Box<[u8]>,
    dialect: Dialect,
    epoch: u32,
    /// Literals that are part of the translation, by number.
    fixed: Box<[(usize, Box<str>)]>,
}

impl Key {
    fn matches(&self, piece: &Piece<'_>, epoch: u32) -> bool {
        self.epoch == epoch
            && self.dialect == piece.dialect()
            && *self.skeleton == *piece.skeleton()
            && self.fixed.iter().all(|(i, raw)| piece.literal(*i).is_some_and(|l| l.raw == &**raw))
    }

    fn bytes(&self) -> usize {
        self.skeleton.len() + self.fixed.iter().map(|(_, raw)| raw.len()).sum::<usize>()
    }
}

#[derive(Debug)]
struct Inner<T> {
    by_hash: HashMap<u64, Vec<Arc<Entry<T>>>>,
    len: usize,
    bytes: usize,
}

/// The cache; shared by all sessions of a database.
#[derive(Debug)]
pub struct StatementCache<T> {
    inner: RwLock<Inner<T>>,
    entries_max: usize,
    bytes_max: usize,
}

impl<T> StatementCache<T> {
    pub fn new(entries_max: usize, bytes_max: usize) -> StatementCache<T> {
        StatementCache {
            inner: RwLock::new(Inner { by_hash: HashMap::new(), len: 0, bytes: 0 }),
            entries_max: entries_max.max(1),
            bytes_max,
        }
    }

    /// The entry for this statement under this schema epoch.
    pub fn lookup(&self, piece: &Piece<'_>, epoch: u32) -> Option<Arc<Entry<T>>> {
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let entry = inner.by_hash.get(&piece.hash())?.iter().find(|e| e.key.matches(piece, epoch))?;
        entry.used.store(true, Ordering::Relaxed);
        Some(entry.clone())
    }

    /// Stores a translation, unless it is not cacheable or too large, and returns it.
    pub fn insert(&self, piece: &Piece<'_>, epoch: u32, translated: Translated, extra: T) -> Arc<Entry<T>> {
        let lifted = translated.lifted();
        let fixed = (0..piece.literal_count())
            .filter(|i| !lifted.contains(i))
            .filter_map(|i| piece.literal(i).map(|l| (i, l.raw.into())))
            .collect();
        let key = Key { skeleton: piece.skeleton().into(), dialect: piece.dialect(), epoch, fixed };
        let query_id = if translated.kind.is_planned() { query_id(piece) } else { text_id(piece.text()) };
        let is_small = key.bytes() <= ENTRY_BYTES_MAX && translation_bytes(&translated) <= ENTRY_BYTES_MAX;
        let keep = translated.cacheable && is_small;
        let (used, passed) = (AtomicBool::new(true), AtomicU64::new(UNCHECKED));
        let entry = Arc::new(Entry { translated, extra, query_id, key, used, passed });
        if keep {
            self.keep(piece.hash(), entry.clone());
        }
        entry
    }

    fn keep(&self, hash: u64, entry: Arc<Entry<T>>) {
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let bytes = entry.bytes();
        let has_room = |inner: &Inner<T>| inner.len < self.entries_max && inner.bytes + bytes <= self.bytes_max;
        if !has_room(&inner) {
            inner.sweep();
            if !has_room(&inner) {
                inner.by_hash.clear();
                (inner.len, inner.bytes) = (0, 0);
            }
        }
        let variants = inner.by_hash.entry(hash).or_default();
        let before = (variants.len(), sum_bytes(variants));
        variants.retain(|e| e.key != entry.key);
        if variants.len() >= VARIANTS_MAX {
            variants.remove(0);
        }
        variants.push(entry);
        let after = (variants.len(), sum_bytes(variants));
        inner.len = inner.len + after.0 - before.0;
        inner.bytes = inner.bytes + after.1 - before.1;
    }

    /// Number of entries held.
    pub fn len(&self) -> usize {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Inner<T> {
    /// Drops what was not used since the last sweep.
    fn sweep(&mut self) {
        self.by_hash.retain(|_, variants| {
            variants.retain(|e| e.used.swap(false, Ordering::Relaxed));
            !variants.is_empty()
        });
        self.len = self.by_hash.values().map(Vec::len).sum();
        self.bytes = self.by_hash.values().map(|variants| sum_bytes(variants)).sum();
    }
}
