//! How a command connects to a running server as a client: an address or a URL, the environment that libpq's users set, and TLS;
//! and how a subscription connects to its publisher ([`ConnInfo`], [`ReplicationLink`]).
//!
//! | source | gives |
//! |---|---|
//! | `HOST:PORT`, or the directory of a Unix socket and the port | the address |
//! | `postgresql://USER:PASSWORD@HOST:PORT/?sslmode=...&sslrootcert=...&sslcert=...&sslkey=...` | the same and what it names |
//! | `PGUSER`, `PGPASSWORD`, `PGSSLMODE`, `PGSSLROOTCERT`, `PGSSLCERT`, `PGSSLKEY` | what the URL does not name |
//!
//! | `sslmode` | connects |
//! |---|---|
//! | none | through a Unix socket without TLS; with an authority named as by `verify-full`; to this machine as by `prefer`; else not at all |
//! | `disable`, `allow`, `prefer` | without TLS, or with it where the server has it; only to this machine: passwords and rows do not leave it in plain text |
//! | `require` | with TLS; the certificate is not checked, unless an authority is named: then as by `verify-ca` |
//! | `verify-ca` | with TLS; the certificate is one of the authority |
//! | `verify-full` | the same, and it is for that host |
//!
//! Passwords are proven by SCRAM-SHA-256, bound to the TLS channel where there is one.
//!
//! Failure: what is wrong in an address or a file is said by name; a server that refuses is quoted.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod conninfo;
mod replication;
mod server;
mod statement;
mod tls;

pub use conninfo::ConnInfo;
pub use replication::{LinkError, Received, ReplicationLink};
pub use server::{ClientError, Given, Server};
pub use statement::{Row, StatementError, row_of, rows, run};
