//! PostgreSQL's SQL over SQLite: splits and fingerprints messages, translates statements, and provides types, functions
//! and the catalogue.
//!
//! The crate is a function from text to text; it never talks to SQLite. A message goes through [`Scan`], which splits
//! it and finds its literals in one pass; [`StatementCache`] has the statements that were seen before; [`translate`]
//! parses, binds and rewrites the others. What the rewritten SQL needs at run time is in [`mod@functions`] (scalar
//! functions for every connection) and [`catalogue`] (the tables of `pg_catalog` and `information_schema`). The engine
//! provides two more functions: [`NEXT_ID_FUNCTION`] and [`ADVISORY_FUNCTION`].
//!
//! In a database of PostgreSQL's dialect a statement has PostgreSQL's result or an error, never another result. In a
//! database of SQLite's dialect it has SQLite's result.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod advisory;
mod bind;
pub mod cache;
pub mod catalogue;
mod command;
mod context;
mod copy;
mod cursor;
mod ddl;
mod default;
pub mod error;
mod facts;
mod fingerprint;
mod finish;
pub mod functions;
mod ids;
pub mod keys;
mod lex;
mod lock_table;
mod locks;
mod log_group;
mod names;
mod params;
mod parse;
pub mod privilege_statement;
mod privileges;
pub mod publication_statement;
pub mod publications;
pub mod published_copy;
mod relations;
mod role_statement;
mod roles;
mod scan;
mod secrets;
mod session;
pub mod sqlite;
mod start_parameters;
mod statement;
pub mod subscription_statement;
pub mod subscriptions;
mod tokens;
mod translate;
mod translated;
pub mod types;
mod vacuum;
mod words;

pub use advisory::{ADVISORY_FUNCTION, AdvisoryOp};
pub use bind::acl_call::{ACL_CONTAINS_FUNCTION, ACL_ITEMS_FUNCTION, MAKE_ACL_ITEM_FUNCTION};
pub use bind::catalogue_call::{
    RELOAD_FUNCTION, RESET_STATEMENTS_FUNCTION, SIGNAL_FUNCTION, SWITCH_FUNCTION, SignalOp, WAIT_SLICE_FUNCTION,
};
pub use bind::privilege_call::{ACL_DEFAULT_FUNCTION, HAS_PRIVILEGE_FUNCTION, MAY_SEE_FUNCTION};
pub use bind::settings_call::{CURRENT_SETTING_FUNCTION, SET_CONFIG_FUNCTION};
pub use cache::{Entry, StatementCache};
pub use command::{CopyColumn, CopyFormat, CopyIn, FetchCount, FetchDirection, Isolation, Kind, TransactionModes};
pub use context::Context;
pub use facts::facts;
pub use fingerprint::normalized;
pub use functions::{Function, functions};
pub use ids::NEXT_ID_FUNCTION;
pub use log_group::{LogGroup, log_group};
pub use names::Among;
pub use params::{Coerce, Param, ParamSource, SessionValue, SessionValues};
pub use role_statement::{DatabaseGrant, RoleOption, RoleSpec, RoleStatement};
pub use scan::{Class, Literal, Piece, Scan};
pub use secrets::without_secrets;
pub use translate::translate;
pub use translated::{Notice, TempDdl, Translated, TranslatedStep};
