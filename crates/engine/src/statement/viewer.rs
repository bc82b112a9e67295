//! The role that receives the results of the statement that runs on this thread: the catalogue hides from it what it may
//! not see. The statement's sink knows it ([`holdfast_types::Sink::viewer`]).

use std::cell::Cell;

thread_local! {
    static VIEWER: Cell<Option<u32>> = const { Cell::new(None) };
}

/// `None`: no statement runs here, or its viewer is not known.
pub fn viewer() -> Option<u32> {
    VIEWER.get()
}

/// Makes a role the viewer for as long as the value lives.
pub struct Viewing(Option<u32>);

impl Viewing {
    pub fn by(role: Option<u32>) -> Viewing {
        Viewing(VIEWER.replace(role))
    }
}

impl Drop for Viewing {
    fn drop(&mut self) {
        VIEWER.set(self.0);
    }
}
