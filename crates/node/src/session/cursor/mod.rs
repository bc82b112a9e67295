//! Cursors declared in SQL: DECLARE, FETCH, MOVE, CLOSE.
//!
//! A cursor's result is insensitive: DECLARE runs the whole query, as any query runs at that point of the session, into a
//! [`spool`]; FETCH and MOVE only read the spool ([`movement`] computes which rows). A cursor holds nothing of the
//! transaction, so WITH HOLD only means that the spool is kept for longer.
//!
//! | event | cursors that end |
//! |---|---|
//! | CLOSE, DISCARD ALL, end of the session | the named cursor, or all |
//! | COMMIT | those without HOLD |
//! | ROLLBACK, failed COMMIT | those without HOLD, and those that the transaction declared |
//! | ROLLBACK TO a savepoint | those declared since |
//!
//! Failure: the query's errors come from DECLARE; in PostgreSQL some of them come from FETCH.

pub(super) mod movement;
pub(super) mod set;
pub(super) mod spool;
pub(super) mod statements;
