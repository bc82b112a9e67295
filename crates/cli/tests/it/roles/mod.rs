//! Roles: statements about them against PostgreSQL's answers, and that they survive.

mod against_postgresql;
mod lasting;
mod reported;
