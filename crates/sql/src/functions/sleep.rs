//! pg_sleep in slices: the rewritten query loops until no time remains, and between two rounds SQLite checks for an
//! interrupt. So a cancel or a timeout ends it within [`SLICE_S`].

use super::function::Function;
use holdfast_types::{SqlResult, Value, ValueRef};
use std::time::Duration;

/// The length of a slice in seconds.
const SLICE_S: f64 = 0.02;

pub const FUNCTIONS: &[Function] =
    &[Function { deterministic: false, ..Function::strict("hf_sleep_slice", 1, sleep_slice) }];

/// Sleeps for up to a slice; returns the seconds that remain.
fn sleep_slice(args: &[ValueRef<'_>]) -> SqlResult<Value> {
    let remaining = match args[0] {
        ValueRef::Real(s) => s,
        ValueRef::Int(s) => s as f64,
        _ => 0.0,
    };
    std::thread::sleep(Duration::from_secs_f64(remaining.clamp(0.0, SLICE_S)));
    Ok(Value::Real(remaining - SLICE_S))
}
