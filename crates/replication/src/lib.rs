//! Replication: the role of a server among others.
//!
//! `holdfast_standby` knows the protocol of a link and nothing of databases. This crate connects it to the engine, the
//! archive and the control plane; the node above starts it and hands settings in ([`settings`]).
//!
//! | file | what |
//! |---|---|
//! | [`standby_file`] | `standby.toml`: whether this server is a standby, and of which master |
//! | [`identity_file`] | `DIR.identity`, next to the data directory: that a missing directory is not a new server's |
//! | [`certificates`] | this node's certificates, for links to other machines |
//! | [`dialer`], [`listener`] | outgoing and incoming links |
//! | [`following`], [`follow_record`] | a standby follows its master; with a control plane the one that the group agrees on |
//! | [`link_address`] | addresses that one node reports and another uses |
//! | [`base_copy`], [`kept_copies`] | a base copy, sent and received; kept while its link is broken |
//! | [`control`], [`trail_comparison`] | the lease, which node may be master, and which member of a quorum has all commits |
//! | [`old_master`], [`replaced`] | without a control plane: the master that a promotion replaced is watched |
//! | [`sync_watch`] | what commits do while their standbys are away |
//! | [`level_raising`] | levels that rise while a standby lags |
//! | [`archiver`], [`archive_source`] | finished segments go to the archive; standbys get from there what the trail has recycled |
//! | [`mirror_view`] | what is shown of the mirror on another disk, which `holdfast_mirror` keeps |
//! | [`status`], [`report`] | the state of replication, for views and commands |
//! | [`node_service`] | the requests of other nodes and of commands, answered |
//! | [`node_client`], [`rejoin`], [`pair_check`] | the commands: requests to a running server, a deposed master's return, a check before pairing |
//! | [`by_itself`], [`acknowledged`] | a deposed master's return without an operator |
//! | [`rejoin_command`] | the command of a deposed master's return, for messages |
//! | [`role`] | the events that end a role |
//!
//! A server has one role at a time. To change it the node takes the server down to its listening socket and opens it again:
//! recovery is the only way to become a master.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod accepted_loss;
mod acknowledged;
mod archive_source;
mod archiver;
mod base_copy;
mod by_itself;
mod certificates;
mod clear;
mod control;
mod dialer;
mod follow_record;
mod following;
mod identity;
mod identity_file;
mod kept_copies;
mod level_raising;
mod link_address;
mod listener;
mod masterships;
mod mirror_view;
mod node_client;
mod node_service;
mod notify;
mod old_master;
mod pair_check;
mod promoting;
mod rejoin;
mod rejoin_command;
mod replaced;
mod report;
mod role;
mod self_promotion;
pub mod settings;
mod standby_file;
mod status;
mod sync_watch;
mod trail_comparison;

pub use accepted_loss::AcceptedLoss;
pub use acknowledged::{Acknowledged, keep_acknowledged};
pub use archive_source::ArchiveSource;
pub use archiver::Archiver;
pub use base_copy::{
    CopyError, CopyTo, begin_copy, check_target as check_copy_target, copy_from, copy_over, mark_for_dump, send_copy,
};
pub use by_itself::{NotByItself, is_under_way as is_return_under_way, rejoin_by_itself};
pub use certificates::{Certificates, FILES as CERTIFICATE_FILES, install as install_certificates, secure_members};
pub use clear::clear_for_copy;
pub use control::{Control, ControlSetupError, ServingMaster, Terms as ReturnTerms};
pub use dialer::Dialer;
pub use follow_record::follow_record;
pub use following::{AgreedEpoch, Followed, Following, follow_master};
pub use holdfast_control::{ControlPlane, Position};
pub use holdfast_standby::base_copy::CopyProgress;
pub use identity::identity;
pub use identity_file::IdentityFile;
pub use kept_copies::KeptCopies;
pub use level_raising::raise_levels;
pub use listener::Listener;
pub use masterships::Masterships;
pub use mirror_view::{MIRROR_SLOT, MirrorView};
pub use node_client::{NodeClient, NodeClientError};
pub use node_service::{BeginDump, NodeService};
pub use notify::Notify;
pub use old_master::{OldMaster, OldMasterWatch};
pub use pair_check::{PairCheck, check_pair};
pub use promoting::Promoting;
pub use rejoin::{RejoinError, Rejoined, rejoin};
pub use replaced::Replaced;
pub use report::ReplicationReport;
pub use role::{Promotion, Reply, RoleEvent};
pub use self_promotion::promote_when_named;
pub use standby_file::{StandbyFile, StandbyFileError};
pub use status::ReplicationStatus;
pub use sync_watch::{InSync, SyncWatch, notify_standby_dropped};
pub use trail_comparison::TrailComparison;
