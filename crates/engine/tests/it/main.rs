//! Every integration test of the engine, in one binary: each further binary would be linked on its own.

mod attacks;
mod branches;
mod check;
mod engine;
mod faults;
mod feeds;
mod first_start;
mod full_disk;
mod golden;
mod import;
mod oracle;
mod power_cut;
mod prepared;
mod standby;
mod stress;
mod support;
mod together;
mod trail_dump;
mod wrong_files;
