//! Master and standby: levels, base copy, applying, crashes, promotion.
//!
//! `HOLDFAST_SEED=n cargo test -p holdfast-engine --test it standby` repeats one seed, `HOLDFAST_SEEDS=n` runs more.

mod catalogue;
mod failing;
mod follow;
mod levels;
mod pair;
mod power;
mod workload;
