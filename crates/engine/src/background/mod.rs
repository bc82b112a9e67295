//! Work that no request starts: checkpoints, redo after a crash, and following a master.
//!
//! It imports the floors of state and of statements. It knows no branch, no writer and no route: no request passes
//! here, and other floors see its results only through the state.

pub mod archiving;
pub mod checkpointer;
pub mod follow;
pub mod recovery;
pub mod redo;
pub mod volume_files;
