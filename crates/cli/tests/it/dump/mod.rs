//! Dumps and restores as the operator meets them: real processes, directories.

pub mod bed;
mod create;
mod damage;
mod interrupted;
mod moments;
mod places;
