//! Room in SQLite's page cache for statements that read much.
//!
//! A connection keeps few pages, as there are many connections. A join that goes to its rows by an index comes back to each page
//! again and again, and each time the page was read from the file and its checksum computed. While it runs, such a statement
//! keeps more: 200,000 rows joined to a table of 40 MB in no order took 0.55 s without and 0.36 s with it (by turns, both cores busy).
//!
//! A statement that finds all room taken runs with what its connection has.

use crate::state::semaphore::Semaphore;
use holdfast_store::sqlite::Conn;

/// Statements that have a wide cache at the same time; together they keep at most `memory_bytes_max`.
const AT_ONCE_MAX: usize = 4;

/// A wide cache is never larger.
const WIDE_KIB_MAX: u64 = 64 << 10;

/// The room: see the module.
pub struct WideCaches {
    taken: Semaphore,
    kib: u64,
}

impl WideCaches {
    /// For an engine that may keep this much of its databases in memory.
    pub fn new(memory_bytes_max: u64) -> WideCaches {
        let kib = (memory_bytes_max / AT_ONCE_MAX as u64 / 1024).min(WIDE_KIB_MAX);
        WideCaches { taken: Semaphore::default(), kib }
    }

    /// Runs a statement with a wide cache, if there is room for one. Afterwards the connection keeps `usual_kib`.
    pub fn run<T>(&self, conn: &mut Conn, usual_kib: u32, statement: impl FnOnce(&mut Conn) -> T) -> T {
        let room = (self.kib > u64::from(usual_kib)).then(|| self.taken.take(AT_ONCE_MAX)).flatten();
        // A cache that keeps its size makes the statement slow and nothing else.
        let widened = room.is_some() && set_cache(conn, self.kib);
        let done = statement(conn);
        if widened {
            set_cache(conn, u64::from(usual_kib));
        }
        done
    }
}

fn set_cache(conn: &mut Conn, kib: u64) -> bool {
    conn.exec(&format!("pragma cache_size=-{kib}")).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_store::sqlite::OpenFlags;
    use holdfast_types::Value;

    fn cache_kib(conn: &mut Conn) -> Value {
        let id = conn.prepare("pragma cache_size").unwrap();
        assert!(conn.step(id).unwrap());
        let kib = conn.column(id, 0).to_value();
        conn.reset(id);
        kib
    }

    fn conn() -> Conn {
        let mut conn = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        conn.exec("pragma cache_size=-4096").unwrap();
        conn
    }

    #[test]
    fn a_statement_has_it_while_it_runs_and_as_many_as_there_is_room_for() {
        let caches = WideCaches::new(256 << 20);
        let mut conns: Vec<Conn> = (0..=AT_ONCE_MAX).map(|_| conn()).collect();
        fn each(caches: &WideCaches, conns: &mut [Conn]) -> Vec<Value> {
            let Some((first, others)) = conns.split_first_mut() else { return Vec::new() };
            caches.run(first, 4096, |first| {
                let mut seen = vec![cache_kib(first)];
                seen.extend(each(caches, others));
                seen
            })
        }
        let mut expected = vec![Value::Int(-65_536); AT_ONCE_MAX];
        expected.push(Value::Int(-4096));
        assert_eq!(each(&caches, &mut conns), expected);
        assert!(conns.iter_mut().all(|conn| cache_kib(conn) == Value::Int(-4096)));
        assert_eq!(each(&caches, &mut conns), expected, "the room is given back");
    }

    #[test]
    fn where_there_is_little_memory_there_is_less_of_it_or_none() {
        let mut conn = conn();
        let mut widened = |bytes| WideCaches::new(bytes).run(&mut conn, 4096, cache_kib);
        assert_eq!(widened(64 << 20), Value::Int(-16_384));
        assert_eq!(widened(16 << 20), Value::Int(-4096));
    }
}
