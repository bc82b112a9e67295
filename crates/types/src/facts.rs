//! What a statement of SQLite's SQL is by its own words: [`StatementFacts`].
//!
//! Crate `sql` decides these facts once, when it translates a statement; the session carries them, and the engine reads them in
//! place of the text. What SQLite shows by its program for a statement, such as whether it is bounded or recursive, or reports to
//! its authorizer, such as what it touches, is not among them.

use std::sync::Arc;

/// Facts of one statement. The default claims nothing: every use of a fact is correct without it, but that SQLite refuses an
/// EXPLAIN without [`StatementFacts::explained_at`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatementFacts {
    /// The word that names the statement in messages, in capitals: the verb after WITH, else the first word. Empty if it is not
    /// known.
    pub verb: &'static str,
    /// The place in the text of the statement behind EXPLAIN or EXPLAIN QUERY PLAN. `None`: it is no EXPLAIN.
    pub explained_at: Option<usize>,
    /// It is a PRAGMA, or explains one. SQLite's program does not show what a PRAGMA reads.
    pub pragma: bool,
    /// It is an INSERT of VALUES, or an UPDATE or DELETE, that reads no second table and skips no row because of a conflict. A wrong
    /// "no" only costs time.
    pub names_its_rows: bool,
    /// The place in the text, behind the verb, at which OR REPLACE can be put. `None` if it is no INSERT or UPDATE, or says itself
    /// what to do with duplicates.
    pub or_replace_at: Option<usize>,
    /// The change of the schema that it is.
    pub schema_change: Option<Arc<SchemaChange>>,
}

/// A change of the schema, and the tables that it is about. Names are as the text has them, without the schema before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaChange {
    CreateTable {
        /// The tables that its foreign keys refer to.
        refers_to: Vec<String>,
    },
    CreateView,
    CreateIndex {
        table: String,
    },
    AlterTable {
        table: String,
        /// The tables that new foreign keys refer to.
        refers_to: Vec<String>,
    },
    DropTable {
        table: String,
    },
    DropView,
    DropIndex {
        index: String,
    },
    /// Triggers, virtual and temporary tables, and what is not understood.
    Other,
}
