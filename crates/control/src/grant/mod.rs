//! Leases without a disk: pulses ask, voters grant by their answers, and the end of a mastership is an entry of Raft's log.
//!
//! Everything here is a state machine without I/O, threads or a clock: the caller hands in readings of the clocks and messages.
//! Nothing allocates, locks or waits, so that the pulse thread of a supervisor can own it. docs/grants.md has the rules (C1 to
//! C19) with their tests.
//!
//! [`Beat`] joins them to a turn of the pulse loop:
//!
//! 1. The caller reads all queued messages into a buffer of fixed size, then both clocks; [`Watch::turn`] gives the moment.
//! 2. [`Voter::look`] takes what Raft's log says ([`VoterLog`], written by the thread of the control plane);
//!    [`Holder::set_voters`].
//! 3. For each message: [`Heard::take`], [`PeerClocks::take`] (after `true`: [`Holder::stood_still`]); a pulse is judged by
//!    [`Voter::ask`] and answered at once; an answer goes to [`Holder::answered`], or to [`Wait::answered`] on a successor. The page
//!    gets [`Holder::end`].
//! 4. When 25 ms are over, when a node is heard again, or when an ending entry has been applied that names this node:
//!    [`SentPulses::next`], ask this node's own [`Voter`], send the pulse to all others.
//!
//! Each message names what its sender has: [`Voter::is_silent`], [`Voter::report`], [`Heard::nodes`], the end of its page. What other
//! threads need to know is in [`Seen`].
//!
//! | part | answers |
//! |---|---|
//! | [`Pulse`] | what is sent |
//! | [`Beat`] | what is done in a turn |
//! | [`Watch`], [`Reading`] | how much time has passed |
//! | [`VoterLog`] | what is applied, appended, durable, from another thread |
//! | [`Voter`] | is this pulse granted, is the master silent, when was the last grant |
//! | [`Holder`] | until when is the lease held |
//! | [`Wait`] | is the lease of the old master out |
//! | [`Heard`] | which nodes are heard, does a majority count silence |
//! | [`PeerClocks`] | did this machine stand still, is its clock wrong |

mod beat;
#[cfg(test)]
pub(crate) mod beat_sabotaged;
mod board;
mod clocks;
mod ended_runs;
mod holder;
mod log;
mod pulse;
mod seen;
mod sent;
mod silence;
mod time;
mod voter;
mod voters;
mod wait;

pub use beat::{Beat, Own, Page, To};
pub use clocks::{CLOCK_OFF_PPM, ClockVerdict, PeerClocks, STANDSTILL_NS};
pub use ended_runs::EndedRuns;
pub use holder::Holder;
pub use log::{Applied, LogView, Meaning, Stage, VoterLog, Word};
pub use pulse::{Answers, PULSE_BYTES, PULSE_EVERY_MS, Pulse, Report};
pub use seen::{Seen, SeenBoard};
pub use sent::{SENT_MAX, SentPulses};
pub use silence::{HEARD_NS, Heard};
pub use time::{Moment, Reading, TURN_NS_MAX, Watch};
pub use voter::{NotGranted, Voter};
pub use voters::{LogPosition, NODES_MAX, NodeSet, Roster, Voters};
pub use wait::Wait;
