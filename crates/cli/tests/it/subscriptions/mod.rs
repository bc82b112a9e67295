//! Databases here as subscribers of publications elsewhere: statements about subscriptions and what psql shows against PostgreSQL's
//! answers, what no client may change, and what arrives.

mod bad_publishers;
pub mod bed;
mod commands;
mod cuts;
mod drop_database;
mod following;
mod held_up;
mod lasting;
mod meanwhile;
mod partition;
mod postgres;
mod power_cuts;
mod promoted;
mod proxy;
mod random;
mod side;
mod statements;
