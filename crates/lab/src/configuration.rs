//! The configurations the study compares: their names on the command line and in the report, and what each means.

use serde::{Deserialize, Serialize};

/// One database and application set-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Configuration {
    Unaudited,
    Buffered,
    Nainsert,
    Audited,
    Autotmf,
    SqliteFull,
    SqliteNormal,
    SqliteOff,
    CaptureTriggers,
    AuditedWireSimple,
    AuditedWirePipeline,
    PostgresSimple,
    PostgresPipeline,
}

/// What a crash of the whole machine can cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Every answered authorization is there afterwards.
    Nothing,
    /// The last answered ones may be gone; the file is whole.
    Recent,
    /// The last ones may be gone and the file may be damaged.
    FileAtRisk,
}

impl Loss {
    pub fn text(self) -> &'static str {
        match self {
            Loss::Nothing => "nothing",
            Loss::Recent => "the last commits",
            Loss::FileAtRisk => "commits, even the file",
        }
    }
}

impl Configuration {
    /// All, in the order of the report.
    pub const ALL: [Configuration; 13] = [
        Configuration::Unaudited,
        Configuration::Buffered,
        Configuration::Nainsert,
        Configuration::Audited,
        Configuration::Autotmf,
        Configuration::SqliteFull,
        Configuration::SqliteNormal,
        Configuration::SqliteOff,
        Configuration::CaptureTriggers,
        Configuration::AuditedWireSimple,
        Configuration::AuditedWirePipeline,
        Configuration::PostgresSimple,
        Configuration::PostgresPipeline,
    ];

    /// The name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Configuration::Unaudited => "unaudited",
            Configuration::Buffered => "buffered",
            Configuration::Nainsert => "nainsert",
            Configuration::Audited => "audited",
            Configuration::Autotmf => "autotmf",
            Configuration::SqliteFull => "sqlite-full",
            Configuration::SqliteNormal => "sqlite-normal",
            Configuration::SqliteOff => "sqlite-off",
            Configuration::CaptureTriggers => "capture-triggers",
            Configuration::AuditedWireSimple => "audited-wire-simple",
            Configuration::AuditedWirePipeline => "audited-wire-pipeline",
            Configuration::PostgresSimple => "postgres-simple",
            Configuration::PostgresPipeline => "postgres-pipeline",
        }
    }

    /// The name a reader sees.
    pub fn label(self) -> &'static str {
        match self {
            Configuration::Unaudited => "Unaudited",
            Configuration::Buffered => "Buffered",
            Configuration::Nainsert => "NAInsert",
            Configuration::Audited => "Audited (Holdfast)",
            Configuration::Autotmf => "AutoTMF",
            Configuration::SqliteFull => "SQLite WAL, FULL",
            Configuration::SqliteNormal => "SQLite WAL, NORMAL",
            Configuration::SqliteOff => "SQLite WAL, OFF",
            Configuration::CaptureTriggers => "SQLite + capture triggers",
            Configuration::AuditedWireSimple => "Holdfast, one message",
            Configuration::AuditedWirePipeline => "Holdfast, pipeline",
            Configuration::PostgresSimple => "PostgreSQL, one message",
            Configuration::PostgresPipeline => "PostgreSQL, pipeline",
        }
    }

    /// What it is, in one sentence.
    pub fn meaning(self) -> &'static str {
        match self {
            Configuration::Unaudited => {
                "Stock SQLite, rollback journal, synchronous FULL; the update and the insert are each their own \
                 physical commit. No trail, no WAL, no transaction around the authorization."
            }
            Configuration::Buffered => {
                "As unaudited, with synchronous OFF: writes stay in the operating system's buffers. The journal still \
                 keeps the file's structure if the program dies, not if the machine does."
            }
            Configuration::Nainsert => {
                "As buffered, with the log insert streamlined: a record is answered once it is in an append buffer, \
                 and the buffer is written 64 records at a time. Its four indexes are still maintained."
            }
            Configuration::Audited => {
                "Holdfast as a library: one transaction for each authorization through the audit trail, answered when \
                 durable. Transactions of many clients share a write and a sync."
            }
            Configuration::Autotmf => {
                "`holdfast serve` over TCP, for a program that starts no transactions: each prepared statement with a \
                 Sync of its own joins the session's automatic transaction, which commits at a bound of time or rows. \
                 Answers do not wait for that."
            }
            Configuration::SqliteFull => "Stock SQLite, WAL, synchronous FULL: one durable transaction each.",
            Configuration::SqliteNormal => {
                "Stock SQLite, WAL, synchronous NORMAL: one transaction each, synced at checkpoints only."
            }
            Configuration::SqliteOff => "Stock SQLite, WAL, synchronous OFF: one transaction each, never synced.",
            Configuration::CaptureTriggers => {
                "Interception, as replication without a trail does it: SQLite WAL FULL where triggers write a second \
                 record of every change, with the row's image, to a capture table."
            }
            Configuration::AuditedWireSimple => {
                "`holdfast serve` over TCP: the whole authorization as one simple-protocol message."
            }
            Configuration::AuditedWirePipeline => {
                "`holdfast serve` over TCP: prepared statements, the authorization as one pipeline ended by Sync."
            }
            Configuration::PostgresSimple => {
                "A private PostgreSQL over TCP, the same rows: the authorization as one simple-protocol message."
            }
            Configuration::PostgresPipeline => {
                "A private PostgreSQL over TCP, the same rows: prepared statements, one pipeline ended by Sync."
            }
        }
    }

    /// What a power cut can cost.
    pub fn loss(self) -> Loss {
        match self {
            Configuration::Buffered | Configuration::Nainsert | Configuration::SqliteOff => Loss::FileAtRisk,
            Configuration::SqliteNormal | Configuration::Autotmf => Loss::Recent,
            _ => Loss::Nothing,
        }
    }

    /// Runs in this process, without a socket.
    pub fn in_process(self) -> bool {
        !matches!(
            self,
            Configuration::Autotmf
                | Configuration::AuditedWireSimple
                | Configuration::AuditedWirePipeline
                | Configuration::PostgresSimple
                | Configuration::PostgresPipeline
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_the_same_in_results() {
        for c in Configuration::ALL {
            assert_eq!(serde_json::to_value(c).unwrap(), c.name());
            assert_eq!(Configuration::ALL.iter().filter(|o| o.name() == c.name()).count(), 1);
        }
    }
}
