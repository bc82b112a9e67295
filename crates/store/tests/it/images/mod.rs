//! Row images end to end: statements captured on one database, applied to another.

mod random;
mod rules;
mod volume;
