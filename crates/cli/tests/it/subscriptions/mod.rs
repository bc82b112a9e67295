//! Databases here as subscribers of publications elsewhere.

mod bed;
mod following;
