//! What a statement of SQLite's SQL is by its own words: [`StatementFacts`].
//!
//! Crate `sql` decides these facts once, when it translates a statement; the session carries them, and the engine reads them in
//! place of the text. What SQLite shows by its program for a statement, such as whether it is bounded or recursive, or reports to
//! its authorizer, such as what it touches, is not among them.

/// Facts of one statement. The default claims nothing: every use of a fact is correct without it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatementFacts {
    /// The word that names the statement in messages, in capitals: the verb after WITH, else the first word. Empty if it is not
    /// known.
    pub verb: &'static str,
    /// It is an INSERT of VALUES, or an UPDATE or DELETE, that reads no second table and skips no row because of a conflict. A wrong
    /// "no" only costs time.
    pub names_its_rows: bool,
}
