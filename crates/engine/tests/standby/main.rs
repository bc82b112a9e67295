//! Master and standby: levels, base copy, applying, crashes, promotion.
//!
//! `HOLDFAST_SEED=n cargo test -p holdfast-engine --test standby` repeats one seed, `HOLDFAST_SEEDS=n` runs more.

#[path = "../support/mod.rs"]
#[allow(dead_code)] // Each test program uses a part of it.
mod support;

mod catalogue;
mod failing;
mod follow;
mod levels;
mod pair;
mod power;
mod workload;
