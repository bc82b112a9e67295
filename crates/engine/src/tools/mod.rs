//! What works on a data directory as a whole, from outside: import, check, and reading the trail.
//!
//! The highest floor: it may import every other one, and none imports it.

pub mod check;
pub mod import;
pub mod trail_dump;
