//! The memory that sessions keep for their clients, and its two limits: one for each session, one for all of them.
//!
//! Counted is what a client decides the size of and the server keeps: answers that were not sent yet, rows of suspended
//! portals, parameters of statements that have not run, prepared statements, messages that have not arrived as a whole. Beyond a
//! limit the request that asks for more fails with 53200, and only that request. What a statement uses while it runs is not
//! counted here: its thread bounds it.
//!
//! Each purpose has a [`Kept`]. It charges whole units of [`UNIT_BYTES`], and nothing for the first [`FREE_BYTES`], so that a
//! session with small messages touches no counter that it shares.

use holdfast_types::{SqlError, SqlResult, SqlState};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What each purpose of a session may keep without being counted.
pub const FREE_BYTES: usize = 256 << 10;
/// What is charged at a time.
pub const UNIT_BYTES: usize = 1 << 20;

/// The memory of all sessions of a server.
#[derive(Debug)]
pub struct ServerMemory {
    used: AtomicUsize,
    max: usize,
}

impl ServerMemory {
    /// At most `max` bytes.
    pub fn new(max: usize) -> Arc<ServerMemory> {
        Arc::new(ServerMemory { used: AtomicUsize::new(0), max })
    }

    /// Bytes charged by all sessions.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The account of a new session, which may use at most `max` bytes.
    pub fn session(self: &Arc<ServerMemory>, max: usize) -> Arc<SessionMemory> {
        Arc::new(SessionMemory { server: self.clone(), used: AtomicUsize::new(0), max })
    }
}

/// The memory of one session.
#[derive(Debug)]
pub struct SessionMemory {
    server: Arc<ServerMemory>,
    used: AtomicUsize,
    max: usize,
}

impl SessionMemory {
    /// An account without limits.
    pub fn unlimited() -> Arc<SessionMemory> {
        ServerMemory::new(usize::MAX).session(usize::MAX)
    }

    fn take(&self, bytes: usize) -> SqlResult<()> {
        take(&self.used, bytes, self.max).map_err(|_| full("this session", self.max, "session_memory_bytes_max"))?;
        take(&self.server.used, bytes, self.server.max).map_err(|_| {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            full("all sessions", self.server.max, "sessions_memory_bytes_max")
        })?;
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.server.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

fn take(used: &AtomicUsize, bytes: usize, max: usize) -> Result<usize, usize> {
    let more = |now: usize| now.checked_add(bytes).filter(|sum| *sum <= max);
    used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
}

#[cold]
fn full(who: &str, max: usize, name: &str) -> SqlError {
    SqlError::new(SqlState::OUT_OF_MEMORY, "out of memory")
        .with_detail(format!(
            "Unsent results, suspended portals, parameters and prepared statements of {who} would need more than {max} \
             bytes ({name})."
        ))
        .with_hint(
            "Fetch large results through a cursor, close portals and prepared statements that are no longer needed.",
        )
}

/// The bytes that a session keeps for one purpose. Dropping it gives them back.
#[derive(Debug)]
pub struct Kept {
    memory: Arc<SessionMemory>,
    bytes: usize,
    charged: usize,
}

impl Kept {
    pub fn new(memory: &Arc<SessionMemory>) -> Kept {
        Kept { memory: memory.clone(), bytes: 0, charged: 0 }
    }

    /// The purpose keeps `bytes` from now on. 53200 where a limit does not permit that; the number is then as before.
    #[inline]
    pub fn set(&mut self, bytes: usize) -> SqlResult<()> {
        if bytes > self.charged + FREE_BYTES {
            self.charge(bytes)?;
        } else if self.charged > 0 && bytes + 2 * UNIT_BYTES < self.charged {
            self.release(bytes);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// It keeps `bytes` more. 53200 as by [`Kept::set`].
    pub fn add(&mut self, bytes: usize) -> SqlResult<()> {
        self.set(self.bytes.saturating_add(bytes))
    }

    /// It keeps `bytes` less.
    pub fn remove(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.release(self.bytes);
    }

    #[cold]
    fn charge(&mut self, bytes: usize) -> SqlResult<()> {
        let wanted = bytes.div_ceil(UNIT_BYTES).saturating_mul(UNIT_BYTES);
        self.memory.take(wanted - self.charged)?;
        self.charged = wanted;
        Ok(())
    }

    fn release(&mut self, bytes: usize) {
        let needed = if bytes <= FREE_BYTES { 0 } else { bytes.div_ceil(UNIT_BYTES) * UNIT_BYTES };
        if needed < self.charged {
            self.memory.give_back(self.charged - needed);
            self.charged = needed;
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.memory.give_back(self.charged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_named_and_what_is_dropped_is_given_back() {
        let server = ServerMemory::new(12 * UNIT_BYTES);
        let (a, b) = (server.session(8 * UNIT_BYTES), server.session(8 * UNIT_BYTES));
        let (mut rows, mut texts, mut others) = (Kept::new(&a), Kept::new(&a), Kept::new(&b));
        rows.set(FREE_BYTES).unwrap();
        assert_eq!(server.used(), 0, "small amounts are free");
        rows.set(5 * UNIT_BYTES).unwrap();
        texts.add(3 * UNIT_BYTES).unwrap();
        let error = texts.add(UNIT_BYTES).unwrap_err();
        assert_eq!(error.state(), SqlState::OUT_OF_MEMORY);
        assert!(error.to_string().contains("out of memory"), "{error}");
        others.set(4 * UNIT_BYTES).unwrap();
        assert!(others.set(5 * UNIT_BYTES).is_err(), "the server's limit");
        assert_eq!((server.used(), others.bytes), (12 * UNIT_BYTES, 4 * UNIT_BYTES), "a refusal changes nothing");
        drop(rows);
        others.set(5 * UNIT_BYTES).unwrap();
        texts.remove(3 * UNIT_BYTES);
        drop(others);
        assert_eq!(server.used(), 0);
    }
}
