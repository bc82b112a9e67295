//! Pulling the plug, with two machines: the only proof of what the doctor cannot know.
//!
//! | step | where | what it does |
//! |---|---|---|
//! | recorder | another machine | keeps the last sequence number that it received |
//! | writer | the machine to be tested | writes a record, syncs it, reports it to the recorder; again and again |
//! | | | a person pulls the plug |
//! | verify | the machine, with power again | compares the file with the recorder: is each number that it received there? |
//!
//! The conversation is lines of text over TCP, each answered or not as the table says. A number reaches the recorder only
//! after its record's sync has returned, so every one it knows was acknowledged.
//!
//! | line | answer |
//! |---|---|
//! | `holdfast-power-test 1` | the same; anything else ends it |
//! | `run ID` | none; what follows is about this run |
//! | `synced NUMBER` | none |
//! | `ask` | `run ID NUMBER`: the run begun last, and its last number; 0 is none |
//!
//! A recorder is for one machine at a time. The run is not taken from the file: a disk that lost all of a run may still
//! hold the one before.
//!
//! The file is written in place over zeros, block by block and round and round, as the trail's segments are.

mod conversation;
mod record;
mod recorder;
mod verify;
mod writer;

pub use recorder::Recorder;
pub use verify::{Outcome, verify};
pub use writer::{WriterOptions, write};

/// The file in the data directory.
pub const FILE_NAME: &str = "power-test.records";
