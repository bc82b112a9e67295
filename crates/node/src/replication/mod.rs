//! This node among others: whose standby it is, or who its standbys are.
//!
//! | file | what |
//! |---|---|
//! | [`file`] | `standby.toml`: is this server a standby, and whose |
//! | [`certificates`] | this node's, for links beyond this machine |
//! | [`door`] | links of other nodes come in |
//! | [`reach`] | links go out |
//! | [`asked`] | what they may have: the trail, a base copy, the status, a promotion |
//! | [`following`] | a standby follows its master |
//! | [`copying`] | a base copy on its way in |
//! | [`rejoin`] | a deposed master comes back |
//! | [`control`] | the lease, and who may be master |
//! | [`comparing`] | who of a quorum has everything |
//! | [`away`] | what commits do while their standbys are away |
//! | [`raising`] | levels that rise while a standby lags |
//! | [`asking`] | what the commands ask of a running server |
//! | [`pair_check`] | may this directory follow that server |
//! | [`archiving`] | finished segments go to the archive |
//! | [`archived`] | what standbys lack comes out of it |
//! | [`standing`] | what the views show |
//!
//! A server has one role at a time. To change it the server is taken down to its listening socket and put up again
//! ([`crate::server`]): recovery is the only way to become a master.

mod archived;
mod archiving;
mod asked;
mod asking;
mod away;
mod certificates;
mod comparing;
mod control;
mod copying;
mod door;
mod file;
mod following;
mod given_up;
mod notify;
mod pair_check;
mod raising;
mod reach;
mod rejoin;
mod standing;

pub use archived::FromArchive;
pub use archiving::Archiving;
pub use asked::Asked;
pub use asking::{AskError, Asking};
pub use away::{InSync, SyncWatch, tell_given_up};
pub use certificates::{Certificates, FILES as CERTIFICATE_FILES, install as install_certificates, secure_members};
pub use comparing::Comparing;
pub use control::{Control, ControlSetupError};
pub use copying::{CopyError, CopyTo, check_target as check_copy_target, copy_from};
pub(crate) use copying::{begin as begin_copy, copy_over};
pub use door::Door;
pub use file::{StandbyFile, StandbyFileError};
pub(crate) use following::identity;
pub use following::{Following, follow_master};
pub use given_up::GivenUp;
pub use notify::Notify;
pub use pair_check::{PairCheck, check_pair};
pub use raising::raise_levels;
pub(crate) use rejoin::make_way;
pub use rejoin::{RejoinError, Rejoined, rejoin};
pub use standing::Standings;

pub use holdfast_standby::base_copy::Progress;

use crate::config::Config;
use holdfast_standby::LinkOptions;
use holdfast_standby::identity::Tip;
use holdfast_types::Epoch;
use std::time::Duration;

/// Where the operator waits for what came of a promotion.
pub type Reply = std::sync::mpsc::Sender<Result<String, String>>;

/// What ends a role.
pub enum Event {
    /// The operator wants this standby to be the master; told what came of it.
    Promote {
        /// Given by the control plane.
        epoch: Option<Epoch>,
        /// Where the operator accepts that something may be lost.
        given_up: Option<GivenUp>,
        reply: Reply,
    },
    /// What the master never made durable is to be cut off this standby's trail.
    CutBack(Tip),
}

/// How links of this server behave.
pub fn link_options(config: &Config) -> LinkOptions {
    let silence_max = Duration::from_millis(config.standby_timeout_ms);
    let packing = config.standby_packing.into();
    let grouped = !config.control_members.trim().is_empty();
    LinkOptions { silence_max, heartbeat: silence_max / 5, packing, grouped, ..LinkOptions::default() }
}

/// The same for commands, as the holdfast.toml of a data directory says it, where it has one that can be read.
fn options_of(dir: &std::path::Path) -> LinkOptions {
    let there = dir.join(crate::config::FILE_NAME).exists();
    let config = there.then(|| Config::load(dir).ok()).flatten();
    config.map_or_else(LinkOptions::default, |config| link_options(&config))
}

/// This node's name among standbys: as configured, else the machine's.
pub fn node_name(config: &Config) -> String {
    if !config.node_name.is_empty() {
        return config.node_name.clone();
    }
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match holdfast_standby::link::check_name(machine.trim()) {
        Ok(()) => machine.trim().to_owned(),
        Err(_) => "holdfast".to_owned(),
    }
}
