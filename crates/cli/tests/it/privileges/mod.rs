//! Owners and privileges, against PostgreSQL 15 and against attacks.

mod attacks;
mod oracle;
mod sqlite;
mod table;
