//! What a start looks at first: whether a standby's master is another server, the archive's directory.
//!
//! Failure: a server that would follow itself does not start; an archive that is not there is a warning, because it may
//! be mounted later.

use super::NodeError;
use crate::config::{Config, KeepBeyond};
use holdfast_replication::StandbyFile;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::Path;

/// Refuses to follow this server's own address, at which it would wait for itself. With a control plane the master is found by
/// its record.
pub(super) fn refuse_to_follow_itself(dir: &Path, config: &Config, own: &[SocketAddr]) -> Result<(), NodeError> {
    let Some(file) = StandbyFile::read(dir)?.filter(|_| config.control_members.trim().is_empty()) else {
        return Ok(());
    };
    // A host name that cannot be resolved now may be the master's.
    let named: Vec<SocketAddr> = file.from.to_socket_addrs().map_or_else(|_| Vec::new(), Iterator::collect);
    let is_own = |own: &SocketAddr| {
        let is_same = |ip: IpAddr| ip == own.ip() || (own.ip().is_unspecified() && ip.is_loopback());
        !named.is_empty() && named.iter().all(|address| address.port() == own.port() && is_same(address.ip()))
    };
    if own.iter().any(is_own) || config.node_listen()?.is_some_and(|own| is_own(&own)) {
        return Err(NodeError::FollowsItself { from: file.from, dir: dir.to_owned() });
    }
    Ok(())
}

/// A directory that is not mounted yet, or is misspelt: the server starts, and the trail grows.
pub(super) fn warn_of_archive(config: &Config, path: &Path) {
    let why = match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => "does not exist".to_owned(),
        Err(error) => format!("cannot be read: {error}"),
        Ok(found) if !found.is_dir() => "is not a directory".to_owned(),
        Ok(_) => return,
    };
    let beyond = match config.archive_keep_beyond {
        KeepBeyond::Warn => "beyond that it grows until the disk is full",
        KeepBeyond::Refuse => "beyond that writes are refused",
    };
    tracing::warn!(
        target: "holdfast::archive",
        "the archive directory {} {why}: make it, or mount the file system that it is on. Until then nothing is archived and \
         the trail keeps up to {} bytes (archive_keep_bytes_max); {beyond} (archive_keep_beyond)",
        path.display(),
        config.archive_keep_bytes_max
    );
}
