//! Databases here as subscribers of publications elsewhere: statements about subscriptions and what psql shows against PostgreSQL's
//! answers, what no client may change, and what arrives.

mod bed;
mod commands;
mod following;
mod lasting;
mod statements;
