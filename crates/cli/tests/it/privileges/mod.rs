//! Owners and privileges, against PostgreSQL 15 and against attacks.

mod oracle;
mod table;
