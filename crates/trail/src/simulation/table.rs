//! The recovery table (module `recovery`), row by row, each on a trail damaged for it.
