//! Scalar functions that the rewritten SQL calls. They are registered on every connection; nothing stored in a database
//! refers to them.
//!
//! Each takes SQLite values and returns one, or an error that the connection passes through SQLite with
//! [`crate::error::encode`]. A function marked strict returns NULL where an argument is NULL.

pub mod array;
mod catalogue;
pub mod datetime;
mod digest;
mod function;
mod inet;
mod interval;
pub mod json;
mod jsonb;
mod number;
mod numeric;
mod pattern;
mod sleep;
mod text;

pub use function::Function;

/// All functions to register.
pub fn functions() -> impl Iterator<Item = &'static Function> {
    const ALL: &[&[Function]] = &[
        number::FUNCTIONS,
        numeric::FUNCTIONS,
        text::FUNCTIONS,
        pattern::FUNCTIONS,
        sleep::FUNCTIONS,
        datetime::FUNCTIONS,
        array::FUNCTIONS,
        digest::FUNCTIONS,
        catalogue::FUNCTIONS,
        inet::FUNCTIONS,
        interval::FUNCTIONS,
        jsonb::FUNCTIONS,
    ];
    ALL.iter().copied().flatten()
}
