//! Roles: statements about them against PostgreSQL's answers, and that they survive.

pub mod against_postgresql;
mod lasting;
mod reported;
