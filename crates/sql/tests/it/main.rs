//! Every integration test of the translation, in one binary: each further binary would be linked on its own.

mod catalogue;
mod common;
mod costs;
mod group_order;
mod hostile;
mod ids;
mod locking;
mod oracle;
mod sqlite_dialect;
mod sqlite_tokens;
mod stored_schema;
mod subscriptions;
mod workloads;
