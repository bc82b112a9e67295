//! A client's session.
//!
//! ```text
//! [protocol]   a message or pipeline arrives; its answer leaves when the master's right to answer is checked
//!    |
//!    |-- outside a block, all plain statements, or BEGIN plain... COMMIT --> [single_message]
//!    |                                        |
//!    |                  [outside_block]: a part of the [automatic] transaction, or a transaction of its own:
//!    |                                   [reading] on a reader, or [writing] through the writer
//!    v
//! [statement]  one statement after another: [transaction], [command], [copy], [cursor], [temporary_statements],
//!              in a transaction [reading] at its snapshot, [writing] on its branch
//! ```
//!
//! The files stand on floors; each imports only from those above it in this table:
//!
//! | floor | files |
//! |---|---|
//! | values without a session | [`failure`], [`blocking`], [`reply_sink`], [`state`], [`temporary`], [`values`], [`cursor`]'s `set`, `movement`, `spool`, [`automatic`] |
//! | the session's fields, and whether its role may run a statement | [`node_session`], [`source`], [`privileges`] |
//! | what it does | all others |
//! | what the protocol calls | [`protocol`], [`factory`] |
//!
//! Failure is PostgreSQL's: an error in an implicit transaction undoes all of it, an error in an explicit transaction leaves
//! that failed until its end.

mod automatic;
mod blocking;
mod changes;
mod command;
mod copy;
mod cursor;
mod factory;
mod failure;
mod lock_waits;
mod log_line;
mod long_text;
mod measuring;
mod multi_database;
mod node_session;
mod outside_block;
mod prepared;
mod privilege_statements;
mod privileges;
mod protocol;
mod publication_statements;
mod published_copy;
mod reading;
mod replication;
mod reply_sink;
mod role_statements;
mod single_message;
mod source;
mod state;
mod statement;
mod subscription_statements;
mod temporary;
mod temporary_statements;
mod transaction;
mod two_phase;
mod values;
mod writing;

pub use cursor::spool::Scratch;
pub use factory::Factory;
