//! Temporary tables as a statement sees them: their definitions, how a statement uses them, and the schema that shows
//! them.

pub mod shown;
pub mod tables;
pub mod uses;
