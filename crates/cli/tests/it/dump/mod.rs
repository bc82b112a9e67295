//! Dumps and restores as the operator meets them: real processes, directories.

pub mod bed;
mod clock;
mod create;
mod damage;
mod encrypted;
mod interrupted;
mod moments;
mod parts;
mod places;
mod readme;
mod serve;
mod two_hundred;
