//! `holdfast doctor`: can the machine keep the promise that the server makes?
//!
//! The server syncs before it answers. Whether a sync reaches the medium is decided below it: by mount options, by the
//! layers of block devices, by a drive's write cache, by a hypervisor. The doctor looks at all of these (`look`), measures
//! what a sync costs (`probe`), and gives a verdict on each (`checks`): good, warn, bad, or that it cannot know. What it
//! cannot know only pulling the plug answers, and `power_test` does that with two machines.
//!
//! Everything read from `/proc`, `/sys` and `/etc` goes through [`Root`], so that tests look at machines that are not
//! there. The doctor changes nothing but its probe file, which it removes. A file it cannot read is something it does not
//! know, never an error.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod checks;
mod look;
pub mod power_test;
mod probe;
mod report;
mod root;
mod settings;

pub use checks::examine;
pub use look::{Survey, survey};
pub use probe::{Measured, measure};
pub use report::{Finding, Report, Verdict};
pub use root::Root;
pub use settings::{Delay, Mirror, Settings};
