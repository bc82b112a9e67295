//! The server as the HTTP listener sees it: role, figures, sessions, events, logins.
//!
//! The listener lives as long as the process; [`Standing`] tells it which role the server has at the moment, if any.
//! See [`holdfast_web`] for the pages.

mod collect;
mod console_key;
pub mod events;
mod machine;
mod source;
mod standing;

pub use console_key::{ConsoleError, console_url};
pub(crate) use source::start;
pub(crate) use standing::{Standing, Why};
