//! What the statement that runs on this thread knows of its session.

use holdfast_types::access::Roles;
use holdfast_types::{SessionContext, SessionSettings};
use std::cell::RefCell;
use std::sync::Arc;

thread_local! {
    static SEEN: RefCell<SessionContext> = const { RefCell::new(SessionContext::NONE) };
}

/// `None`: no statement runs here, or its viewer is not known.
pub fn viewer() -> Option<u32> {
    SEEN.with_borrow(|seen| seen.viewer)
}

/// All roles as the viewer's open transaction has changed them; `None`: it has changed none.
pub fn own_roles() -> Option<Arc<Roles>> {
    SEEN.with_borrow(|seen| seen.own_roles.clone())
}

/// The parameters of the statement's session; `None`: no statement that reads or sets them runs here.
pub fn settings() -> Option<Arc<dyn SessionSettings>> {
    SEEN.with_borrow(|seen| seen.settings.clone())
}

/// Shows a session's context for as long as the value lives.
pub struct Viewing(SessionContext);

impl Viewing {
    pub fn of(context: &SessionContext) -> Viewing {
        Viewing(SEEN.replace(context.clone()))
    }
}

impl Drop for Viewing {
    fn drop(&mut self) {
        SEEN.set(std::mem::replace(&mut self.0, SessionContext::NONE));
    }
}
