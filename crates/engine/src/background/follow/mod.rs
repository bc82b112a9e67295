//! A standby: its trail is its master's, and one thread applies it to the standby's volumes.
//!
//! | the boxcar | is |
//! |---|---|
//! | received, durable here | in the trail; acknowledged to the master |
//! | known to be durable at the master (the next one has arrived, or the master has confirmed it) | applied |
//! | applied | visible to readers |
//!
//! Readers work on snapshots of the page store: however long one lasts, applying continues. Whatever would change something
//! is refused with 25006. Checkpoints bring the files up to what was applied; they are noted in the file `checkpoints`,
//! as the trail's own records are the master's.
//!
//! Failure: a boxcar that cannot be applied ends the applying, not the receiving, and not the readers, which stay where
//! they are; [`crate::Engine::apply_failure`] says why. A restart begins again where the files are.

mod apply;
mod catalogue;
pub mod open;
pub mod read_ahead;
pub mod start;
