//! PostgreSQL's SQL over SQLite: splitting and fingerprinting of messages, translation, types, functions, and the
//! catalogue.
//!
//! The crate is a function from text to text; it never talks to SQLite. A message goes through [`Scan`], which
//! splits it and finds its literals in one pass; [`StatementCache`] knows the statements seen before; [`translate`]
//! parses, binds and rewrites the others. What the rewritten SQL needs at run time is in [`functions`] (scalar
//! functions for every connection) and [`catalogue`] (the tables of `pg_catalog` and `information_schema`); two more
//! functions are the engine's: [`NEXT_ID_FUNCTION`] and [`ADVISORY_FUNCTION`].
//!
//! In a database of PostgreSQL's dialect a statement has PostgreSQL's result or an error, never a third thing; in
//! one of SQLite's dialect it has SQLite's.

mod advisory;
mod bind;
pub mod cache;
pub mod catalogue;
mod copy;
mod cursor;
mod ddl;
mod default;
pub mod error;
pub mod functions;
mod ids;
mod locks;
mod parse;
mod scan;
mod session;
pub mod sqlite;
mod start_parameters;
mod statement;
mod translate;
pub mod types;
mod words;

pub use advisory::{ADVISORY_FUNCTION, AdvisoryOp};
pub use bind::WAIT_SLICE_FUNCTION;
pub use cache::{Entry, StatementCache};
pub use cursor::{FetchCount, FetchDirection};
pub use functions::{Function, functions};
pub use ids::NEXT_ID_FUNCTION;
pub use locks::{LockStrength, LockWait, RowLock, TableLockMode};
pub use scan::{Class, Literal, Piece, Scan};
pub use start_parameters::ParametersOf;
pub use translate::{
    Coerce, Context, CopyColumn, CopyFormat, CopyIn, Isolation, Kind, Notice, OnCommit, Param, ParamSource,
    SessionValue, SessionValues, TempDdl, TransactionModes, Translated, translate,
};
