//! PostgreSQL's types over SQLite's five storage classes: names, declarations, input, output and casts.
//!
//! A value is stored in the form described in [`input`]. All conversions between text and stored form are here, so that
//! COPY, parameters, constants and casts cannot disagree. Invalid text is 22P02, a number out of range is 22003, a
//! string that is too long is 22001.

mod abbreviations;
mod array;
mod cast;
pub mod datetime;
pub mod decimal;
mod decl;
mod input;
pub mod jsonb;
mod names;
mod output;
mod sql_type;
pub mod zone;

pub use array::{
    array_text, compare as compare_arrays, compare_values, element_text, element_type, element_value, sort_key,
};
pub use cast::cast;
pub use decl::{RowidKind, declare, of_column, of_decl, view_column_types};
pub use holdfast_types::desc::{array_of, element_of, is_vector};
pub use holdfast_types::lsn::{lsn_text, parse_lsn};
pub use input::{input, instant_text, instant_us, invalid as invalid_input};
pub use names::{PG_TYPES, PgType, by_name, by_oid, format_type, from_ast, type_name};
pub use output::{output, text_of};
pub use sql_type::{Category, Type, more, numeric_modifier};
