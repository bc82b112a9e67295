//! What one database must hold: plain SQLite after everything acknowledged, and what was sent and not answered.

use super::client::{Sent, query, send};
use super::plain::{Plain, dump};
use super::workload::{SCHEMA, Transaction};
use holdfast_engine::Database;
use holdfast_seams::testing::Seeded;
use holdfast_types::{SqlError, Value};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// One database and what it must hold.
pub struct Model {
    pub plain: Plain,
    /// Sent, not answered when the power failed, in order.
    pub unanswered: Vec<Transaction>,
    pub random: Seeded,
}

/// Why a transaction was answered with an error, or not at all.
pub enum Refusal<'a> {
    /// The connection broke before COMMIT was sent.
    Lost,
    Error(&'a SqlError),
}

/// What became of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    Acknowledged,
    /// As plain SQLite refuses it.
    Refused,
    /// By the fault, so that nothing of it is there.
    Failed,
    None,
}

/// How much of what was not answered is there.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Unanswered {
    pub survived: u64,
    pub lost: u64,
}

impl Model {
    /// A database with its tables.
    pub fn begin(db: &Database, seed: u64) -> Model {
        let mut model = Model { plain: Plain::new(), unanswered: Vec::new(), random: Seeded::new(seed) };
        for sql in SCHEMA {
            let made = Transaction::Message(vec![sql.to_owned()]);
            send(db, &made).answer().expect("answered").unwrap();
            assert!(model.plain.run(&made));
        }
        model
    }

    /// Takes the answer to a transaction. `excused`: the fault explains this refusal, which SQLite would not have made;
    /// then nothing of the transaction may be there.
    pub fn answered(&mut self, transaction: Transaction, sent: Sent, excused: impl Fn(Refusal<'_>) -> bool) -> Answer {
        if matches!(sent, Sent::Lost) {
            assert!(excused(Refusal::Lost), "lost for no reason: {transaction:?}");
            return Answer::Failed;
        }
        match sent.answer() {
            None => {
                self.unanswered.push(transaction);
                Answer::None
            }
            Some(Ok(())) => {
                // What was sent before it ran before it, and is durable if it changed anything: only the answer was lost.
                for earlier in std::mem::take(&mut self.unanswered) {
                    self.plain.run(&earlier);
                }
                assert!(self.plain.run(&transaction), "SQLite refuses {transaction:?}");
                Answer::Acknowledged
            }
            Some(Err(e)) if excused(Refusal::Error(&e)) => Answer::Failed,
            Some(Err(e)) => {
                assert!(!self.plain.run(&transaction), "{e}, but SQLite accepts {transaction:?}");
                Answer::Refused
            }
        }
    }

    /// Everything that is there; an error names what cannot be read.
    pub fn read(db: &Database) -> Result<String, String> {
        let there = dump(|sql| query(db, sql))?;
        let sound = query(db, "pragma integrity_check")?;
        if sound == [[Value::Text("ok".into())]] { Ok(there) } else { Err(format!("integrity_check: {sound:?}")) }
    }

    /// What is there must be what was acknowledged and a beginning of what was not answered; the error says where it
    /// differs.
    pub fn compare(&mut self, there: &str) -> Result<Unanswered, String> {
        let mut survived = 0;
        let mut unanswered = std::mem::take(&mut self.unanswered).into_iter();
        while self.plain.dump() != there {
            let Some(next) = unanswered.next() else {
                let plain = self.plain.dump();
                let at = there.lines().zip(plain.lines()).position(|(a, b)| a != b).unwrap_or_default();
                let line = |s: &str| s.lines().nth(at).unwrap_or("").chars().take(300).collect::<String>();
                let (there, plain) = (line(there), line(&plain));
                return Err(format!(
                    "not what was acknowledged, nor with what was under way\n there {there}\n plain {plain}"
                ));
            };
            self.plain.run(&next);
            survived += 1;
        }
        Ok(Unanswered { survived, lost: unanswered.count() as u64 })
    }
}

/// The seeds to run: `HOLDFAST_SEED` one, or `HOLDFAST_SEEDS` of them from `HOLDFAST_SEED_FIRST` on.
pub fn seeds(usual: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|n: String| n.parse::<u64>().ok());
    match number("HOLDFAST_SEED") {
        Some(seed) => seed..seed + 1,
        None => {
            let first = number("HOLDFAST_SEED_FIRST").unwrap_or(0);
            first..first + number("HOLDFAST_SEEDS").unwrap_or(usual)
        }
    }
}

/// Runs every seed, two at a time. Returns what those returned that passed, and the seeds that failed.
pub fn each_seed<T: Send>(seeds: &std::ops::Range<u64>, run: impl Fn(u64) -> T + Sync) -> (Vec<T>, Vec<u64>) {
    let next = AtomicU64::new(seeds.start);
    let (outcomes, failed) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            match catch_unwind(AssertUnwindSafe(|| run(seed))) {
                Ok(outcome) => outcomes.lock().unwrap().push(outcome),
                Err(_) => {
                    println!("seed {seed} failed");
                    failed.lock().unwrap().push(seed);
                }
            }
        }
    };
    std::thread::scope(|scope| (0..2).for_each(|_| _ = scope.spawn(work)));
    (outcomes.into_inner().unwrap(), failed.into_inner().unwrap())
}
