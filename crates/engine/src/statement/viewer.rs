//! What the statement that runs on this thread knows of its session: the role that receives the results, from which the
//! catalogue hides what it may not see, the roles as its transaction has changed them, and the session's parameters. The
//! statement's sink knows all ([`holdfast_types::Sink::viewer`], [`holdfast_types::Sink::own_roles`],
//! [`holdfast_types::Sink::settings`]).

use holdfast_types::access::Roles;
use holdfast_types::{SessionSettings, Sink};
use std::cell::RefCell;
use std::sync::Arc;

#[derive(Default)]
struct Seen {
    viewer: Option<u32>,
    own_roles: Option<Arc<Roles>>,
    settings: Option<Arc<dyn SessionSettings>>,
}

thread_local! {
    static SEEN: RefCell<Seen> = const { RefCell::new(Seen { viewer: None, own_roles: None, settings: None }) };
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

/// Shows what a sink knows for as long as the value lives.
pub struct Viewing(Seen);

impl Viewing {
    pub fn by(sink: &dyn Sink) -> Viewing {
        let (viewer, own_roles, settings) = (sink.viewer(), sink.own_roles(), sink.settings());
        Viewing(SEEN.replace(Seen { viewer, own_roles, settings }))
    }
}

impl Drop for Viewing {
    fn drop(&mut self) {
        SEEN.set(std::mem::take(&mut self.0));
    }
}
