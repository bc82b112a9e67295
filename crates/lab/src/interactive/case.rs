//! The cases of the study, and the sizes they run at.

use crate::Study;

/// Something that is measured, as `--only` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// The authorization as five messages.
    Authorization,
    /// pgbench's TPC-B, at a small and a large scale.
    Tpcb,
    /// The authorization with a pause before each statement.
    ThinkTime,
    /// A client that sleeps in a transaction while the rest work.
    Sleeper,
    /// Connections, idle and each with an open transaction.
    Memory,
    /// A transaction of many statements.
    LongTransaction,
}

impl Case {
    /// All, in the order they run.
    pub const ALL: [Case; 6] =
        [Case::Authorization, Case::Tpcb, Case::ThinkTime, Case::Sleeper, Case::Memory, Case::LongTransaction];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Case::Authorization => "authorization",
            Case::Tpcb => "tpcb",
            Case::ThinkTime => "think-time",
            Case::Sleeper => "sleeper",
            Case::Memory => "memory",
            Case::LongTransaction => "long-transaction",
        }
    }

    /// Works on the study's two files and their servers; the memory is measured on servers of its own.
    pub fn needs_authorizations(self) -> bool {
        !matches!(self, Case::Tpcb | Case::Memory)
    }
}

/// Sizes the goals are defined with, or small ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    pub log_rows: u64,
    /// TPC-B's.
    pub scales: [u32; 2],
    /// Connections whose memory is measured.
    pub connections: usize,
    /// Of the long transaction.
    pub statements: usize,
    /// Runs of each rate at each server, by turns; the middle one counts.
    pub rounds: usize,
    /// How long the sleeper sleeps, and the others are measured.
    pub sleep_seconds: u64,
    /// Measurements with the sleeper, and as many without.
    pub sleep_rounds: usize,
    /// Client counts of the authorization and TPC-B.
    pub clients: Vec<usize>,
    /// Client counts with think time.
    pub clients_thinking: Vec<usize>,
}

impl Sizes {
    pub fn of(study: &Study) -> Sizes {
        let small = study.quick;
        let or = |counts: &[usize]| if study.clients.is_empty() { counts.to_vec() } else { study.clients.clone() };
        Sizes {
            log_rows: study.log_rows.unwrap_or(if small { 5_000 } else { 300_000 }),
            scales: [1, study.scale.unwrap_or(if small { 2 } else { 40 })],
            connections: if small { 50 } else { 1_000 },
            statements: if small { 1_000 } else { 10_000 },
            rounds: if small { 1 } else { 3 },
            sleep_seconds: if small { 1 } else { 10 },
            sleep_rounds: if small { 1 } else { 3 },
            clients: or(&[40]),
            clients_thinking: or(&[40, 200]),
        }
    }
}
