//! Vetoes every COMMIT that was not announced: the writer opens the gate only for a batch whose images are complete, so no
//! change reaches the store without a record in the trail (RULE 8, guarantee 4).

use super::conn::Conn;
use rusqlite::ffi;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Lets a COMMIT through only while it is open; it is closed when installed. SQLite turns a vetoed COMMIT into a
/// ROLLBACK (sqlite.org/c3ref/commit_hook.html).
#[derive(Clone)]
pub struct CommitGate(Arc<AtomicBool>);

impl CommitGate {
    pub fn open(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn close(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

unsafe extern "C" fn hook(gate: *mut c_void) -> c_int {
    // SAFETY: `gate` is the flag that `install_commit_gate` stored in the connection, which outlives its hook.
    let open = unsafe { &*gate.cast::<AtomicBool>() }.load(Ordering::Relaxed);
    c_int::from(!open)
}

impl Conn {
    /// Installs a closed gate, which stays as long as the connection.
    pub fn install_commit_gate(&mut self) -> CommitGate {
        let flag = Arc::new(AtomicBool::new(false));
        // SAFETY: `db` is open. The connection keeps a reference to the flag until after it has been closed, so the
        // pointer stays valid as long as SQLite may use it.
        unsafe { ffi::sqlite3_commit_hook(self.db(), Some(hook), Arc::as_ptr(&flag).cast_mut().cast()) };
        self.gate = Some(flag.clone());
        CommitGate(flag)
    }
}

#[cfg(test)]
mod tests {
    use super::super::conn::OpenFlags;
    use super::*;

    #[test]
    fn a_commit_that_was_not_announced_is_undone() {
        let mut c = Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap();
        c.exec("create table t(x)").unwrap();
        let gate = c.install_commit_gate();
        assert!(c.exec("insert into t values(1)").is_err());
        gate.open();
        c.exec("insert into t values(2)").unwrap();
        gate.close();
        assert!(c.exec("begin; insert into t values(3); commit").is_err());
        assert_eq!(c.query_rows("select x from t").unwrap(), [[holdfast_types::Value::Int(2)]]);
    }
}
