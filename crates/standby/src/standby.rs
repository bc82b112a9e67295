//! What the link asks of a standby.

use holdfast_trail::{ReceiveError, Shipped, Trail};
use holdfast_types::Lsn;
use tokio::sync::watch;

use crate::identity::{Identity, Tip};
use crate::receive::Phase;

/// The following side.
pub trait Standby: Send + Sync + 'static {
    /// What the master's sync set and slot know it by.
    fn name(&self) -> &str;

    fn identity(&self) -> Identity;

    fn trail(&self) -> &Trail;

    /// The end of the master's trail that the base copy was taken at, as long as this trail does not reach it.
    fn anchor(&self) -> Option<Tip>;

    /// Nothing below has to be, or may be, cut off: it is in the databases, or known to be durable at the master.
    fn settled(&self) -> Lsn;

    /// What the node it follows says of itself: see [`crate::message::Welcome`].
    fn learned(&self, _follows: Option<&str>, _grouped: bool) {}

    /// Everything below has arrived, and is told to the master as received after this. It is made durable in any case, even
    /// when the link ends, unless this node fails.
    fn received(&self, _end: Lsn) {}

    /// Makes boxcars durable, in order. Called from a thread that may block, never twice at a time.
    fn receive(&self, boxcars: &[Shipped]) -> Result<(), ReceiveError> {
        self.trail().receive(boxcars)
    }

    /// Everything below is durable at the master: it may be applied and served.
    fn allow_apply(&self, lsn: Lsn);

    /// Everything below is in the databases. Tells of every change.
    fn applied(&self) -> watch::Receiver<Lsn>;

    /// What the link is doing, whenever that changes: for the status, the log and the operator's command.
    fn changed(&self, phase: &Phase);
}
