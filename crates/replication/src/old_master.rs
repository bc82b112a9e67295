//! A master that was promoted without a control plane watches the address of the master before it: an operator may start that
//! one again, and then two servers take writes.
//!
//! Every [`LOOK_EVERY`] this server asks there which role that server has:
//!
//! | at the address | what is done |
//! |---|---|
//! | no answer, another program, another trail | nothing, asked again |
//! | a master of the same trail with the old master's name, or in an older epoch | it is asked again in a newer epoch and is deposed by that: it acknowledges nothing from then on. Both servers warn, in their logs and their status |
//! | a master of the same trail that has followed this server since its promotion | this server warns: that one was promoted later, and watches this one in turn |
//! | another master of the same trail | this server warns: a later master may have the address by now |
//! | this server itself, at an address that moved | nothing |
//! | a standby of the same trail with the old master's name | it was brought back: the watch ends |
//! | another standby of the same trail | nothing, asked again |
//!
//! Epochs alone do not order the two, because each restart raises the epoch as a promotion does. What counts is the promotion:
//! the operator has vouched that the old master is stopped, or has accepted that what only it has is lost. Which promotion was
//! the later one is in the masterships that each server has met ([`holdfast_standby::mastership`]). A server that was frozen while
//! its old master was promoted again still looks for that one as its old master when it continues.
//!
//! Address and name, a line each, are in the file `old_master` until then, so that the watch survives restarts.
//!
//! Failure: until this server reaches it, a restarted old master takes writes, as before; that is at most [`LOOK_EVERY`] where
//! the two can reach each other. A file that cannot be written ends the watch with the next restart, which is logged.

use crate::certificates::Certificates;
use crate::dialer::Dialer;
use crate::identity::identity;
use crate::masterships::Masterships;
use crate::notify::Notify;
use crate::replaced::Replaced;
use holdfast_engine::Engine;
use holdfast_standby::link::greet;
use holdfast_standby::message::{Message, Stop, Wants, Welcome};
use holdfast_standby::{Connect, Identity, LinkError, LinkOptions, Mastership, Reason};
use holdfast_types::Epoch;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// How often the address is tried.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is known of the old master, for the status.
#[derive(Default)]
pub struct OldMaster {
    /// It runs as a master, in words.
    runs: Mutex<Option<String>>,
}

impl OldMaster {
    pub fn warning(&self) -> Option<String> {
        self.runs.lock().clone()
    }
}

/// What a look found.
enum Found {
    Nothing,
    Master {
        /// It is deposed by this look.
        deposed: bool,
    },
    Standby,
}

/// Watches the master that this one replaced.
pub struct OldMasterWatch {
    pub dir: PathBuf,
    pub replaced: Replaced,
    /// This server's name.
    pub name: String,
    pub engine: Engine,
    pub masterships: Arc<Masterships>,
    pub certificates: Option<Certificates>,
    pub options: LinkOptions,
    pub notify: Notify,
    pub known: Arc<OldMaster>,
}

impl OldMasterWatch {
    /// Watches until the old master was brought back, or until `stop`.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        loop {
            let found = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                found = self.find() => found,
            };
            match found {
                Found::Nothing => *self.known.runs.lock() = None,
                Found::Master { deposed } => self.warn(deposed),
                Found::Standby => {
                    *self.known.runs.lock() = None;
                    return self.forget();
                }
            }
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    fn warn(&self, deposed: bool) {
        let (name, Replaced { address, .. }) = (&self.name, &self.replaced);
        let text = match deposed {
            true => format!(
                "the old master at {address} RUNS as a master, and may have answered clients since {name} was promoted. It was made to \
                 acknowledge nothing from now on. Stop it, and bring it back with: holdfast rejoin, which writes what only it has \
                 to lost-LSN.sql"
            ),
            false => format!(
                "a server at {address}, the old master's address, RUNS as a master of the same trail as {name}: two servers take \
                 writes. Stop the one that was not promoted last, and bring it back with: holdfast rejoin"
            ),
        };
        if self.known.runs.lock().replace(text.clone()).as_ref() != Some(&text) {
            self.notify.warn(&text);
        }
    }

    fn forget(&self) {
        match Replaced::remove(&self.dir) {
            Ok(()) => tracing::info!("the old master at {} is a standby now", self.replaced.address),
            Err(error) => tracing::warn!("the record of the old master cannot be removed: {error}"),
        }
    }

    async fn find(&self) -> Found {
        let own = identity(&self.engine);
        // In an epoch that deposes no server: a standby that was brought back has not seen this server's newest epoch when
        // this server has just started, and would refuse as a deposed master does.
        let Ok(welcome) = self.ask(Identity { epoch: Epoch(0), ..own }).await else { return Found::Nothing };
        let is_replaced = welcome.name == self.replaced.name;
        match welcome.follows {
            // An address that moved here.
            _ if welcome.name == self.name => Found::Nothing,
            Some(_) if is_replaced => Found::Standby,
            Some(_) => Found::Nothing,
            None if is_later(&welcome.masterships, &self.masterships.list()) => Found::Master { deposed: false },
            None if is_replaced || welcome.identity.epoch < own.epoch => {
                // Restarts have raised its epoch.
                let newer = Epoch(welcome.identity.epoch.0.saturating_add(1)).max(own.epoch);
                let asked = self.ask(Identity { epoch: newer, ..own }).await;
                Found::Master { deposed: asked.is_err_and(|error| is_deposed(&error)) }
            }
            None => Found::Master { deposed: false },
        }
    }

    /// Asks to follow, and ends the link when that is answered.
    async fn ask(&self, identity: Identity) -> Result<Welcome, LinkError> {
        let to = Dialer { address: self.replaced.address.clone(), certificates: self.certificates.clone() };
        let connected = tokio::time::timeout(self.options.greeting_max, to.connect()).await;
        let stream = connected.map_err(|_| LinkError::TooSlow { what: "connect" })?.map_err(LinkError::Io)?;
        let (mut link, welcome) = greet(stream, &self.name, 0, Wants::Follow(identity), &self.options).await?;
        let stop = Stop { orderly: true, why: "the old master was looked for".to_owned() };
        // The link ends in either case.
        let _ = link.writer.send(&Message::Stop(stop)).await;
        link.end(&Ok(())).await;
        Ok(welcome)
    }
}

/// Whether the other server has followed this one since its promotion: it knows one of this server's masterships that come
/// before those of any other node. `own`: the latest first, so these are this server's.
fn is_later(other: &[Mastership], own: &[Mastership]) -> bool {
    let mut since_promotion = own.iter().take_while(|one| one.node == own[0].node);
    since_promotion.any(|one| other.contains(one))
}

fn is_deposed(error: &LinkError) -> bool {
    matches!(error, LinkError::Refused(refusal) if refusal.reason == Reason::Deposed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(marks: &[(&str, u64)]) -> Vec<Mastership> {
        marks.iter().map(|(node, mark)| Mastership { node: (*node).to_owned(), mark: *mark, accepted: false }).collect()
    }

    #[test]
    fn the_server_that_has_met_the_other_was_promoted_later() {
        // b was promoted after a, and started twice since.
        let own = list(&[("b", 4), ("b", 3), ("a", 2), ("b", 1)]);
        // a runs on, or was started again, or was put back.
        assert!(!is_later(&list(&[("a", 2), ("b", 1)]), &own));
        assert!(!is_later(&list(&[("a", 5), ("a", 2), ("b", 1)]), &own));
        assert!(!is_later(&list(&[("b", 1)]), &own));
        assert!(!is_later(&[], &own));
        // a followed b, and was promoted: whichever of b's starts it has met.
        assert!(is_later(&list(&[("a", 5), ("b", 4), ("b", 3), ("a", 2)]), &own));
        assert!(is_later(&list(&[("a", 6), ("a", 5), ("b", 3), ("a", 2)]), &own));
        assert!(is_later(&list(&[("c", 7), ("a", 6), ("b", 3)]), &own));
        assert!(!is_later(&list(&[("a", 2)]), &[]));
    }
}
