//! The role that receives the results of the statement that runs on this thread: the catalogue hides from it what it may
//! not see, and shows it the roles as its transaction has changed them. The statement's sink knows both
//! ([`holdfast_types::Sink::viewer`], [`holdfast_types::Sink::own_roles`]).

use holdfast_types::Sink;
use holdfast_types::access::Roles;
use std::cell::RefCell;
use std::sync::Arc;

type Seen = (Option<u32>, Option<Arc<Roles>>);

thread_local! {
    static VIEWER: RefCell<Seen> = const { RefCell::new((None, None)) };
}

/// `None`: no statement runs here, or its viewer is not known.
pub fn viewer() -> Option<u32> {
    VIEWER.with_borrow(|(role, _)| *role)
}

/// All roles as the viewer's open transaction has changed them; `None`: it has changed none.
pub fn own_roles() -> Option<Arc<Roles>> {
    VIEWER.with_borrow(|(_, roles)| roles.clone())
}

/// Makes the role of a sink the viewer for as long as the value lives.
pub struct Viewing(Seen);

impl Viewing {
    pub fn by(sink: &dyn Sink) -> Viewing {
        Viewing(VIEWER.replace((sink.viewer(), sink.own_roles())))
    }
}

impl Drop for Viewing {
    fn drop(&mut self) {
        VIEWER.set(std::mem::take(&mut self.0));
    }
}
