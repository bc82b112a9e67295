//! Subscriptions: statements about them and what psql shows against PostgreSQL's answers, what no client may change, and that
//! they survive.

mod lasting;
mod statements;
