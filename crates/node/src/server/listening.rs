//! The sockets and the TLS of a server, from its settings.
//!
//! | `listen` | sockets |
//! |---|---|
//! | an address | that one |
//! | a host name | the first of its addresses that can be listened on, this machine's own before others, IPv4 before IPv6 |
//! | `*:PORT` | every IPv4 address, and every IPv6 address where the machine has IPv6 |
//!
//! The Unix socket has the port of the first TCP address in its name, as in PostgreSQL.
//!
//! How it fails: what the operator has set and cannot be used ends the start. The Unix socket in the data directory is a
//! default: where the file system has none, or the path is too long, the log says so and the server starts.

use super::NodeError;
use crate::config::{Config, FILE_NAME, ListenAddress};
use crate::reload::Reload;
use holdfast_wire::{Server, SocketUsers, Sockets, TlsConfig, TlsError, TlsSlot};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A certificate that expires sooner is reported at each start and reload.
const EXPIRY_WARNING: Duration = Duration::from_secs(30 * 86_400);

const SECONDS_OF_A_DAY: u64 = 86_400;

/// A server that listens, with the TLS in force.
pub(super) struct Listening {
    pub server: Server,
    pub tls: TlsSlot,
    /// What SHOW has of it.
    pub parameters: Vec<(&'static str, String)>,
}

/// Listens on everything that the settings name.
pub(super) fn listen(dir: &Path, config: &Config) -> Result<Listening, NodeError> {
    let tls = match load_tls(dir, config)? {
        Some(config) => TlsSlot::new(config),
        None => TlsSlot::none(),
    };
    let mut sockets = Sockets::default();
    for address in config.listen.addresses() {
        listen_on(&mut sockets, address)?;
    }
    let addresses = sockets.addresses();
    let port = addresses.first().map_or(0, SocketAddr::port);
    let directory = listen_unix(&mut sockets, dir, config, port)?;
    let server = Server::new(sockets, config.limits(), tls.clone(), holdfast_sql::types::output)?;
    let (unix, encrypted) = (directory.as_ref().map(|path| path.display().to_string()), tls.get().is_some());
    tracing::info!(?addresses, unix_socket_directory = unix, tls = encrypted, "listening for clients");
    let hosts: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
    let mut parameters = vec![
        ("listen_addresses", hosts.join(",")),
        ("port", port.to_string()),
        ("unix_socket_directories", directory.map(|path| path.display().to_string()).unwrap_or_default()),
    ];
    parameters.extend(config.tls_parameters());
    Ok(Listening { server, tls, parameters })
}

fn listen_on(sockets: &mut Sockets, address: &ListenAddress) -> Result<(), NodeError> {
    if let Some(port) = address.every_address() {
        let four = sockets.tcp(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)))?;
        let six = SocketAddr::from((Ipv6Addr::UNSPECIFIED, four.port()));
        // A machine may be without IPv6.
        if let Err(error) = sockets.tcp(six) {
            tracing::info!("IPv4 only: {error}");
        }
        return Ok(());
    }
    let unknown = |source| NodeError::Host { listen: address.to_string(), source };
    let mut refused = unknown(io::ErrorKind::NotFound.into());
    for address in address.resolve().map_err(unknown)? {
        match sockets.tcp(address) {
            Ok(_) => return Ok(()),
            Err(error) => refused = error.into(),
        }
    }
    Err(refused)
}

/// Returns the directory of the Unix socket.
fn listen_unix(sockets: &mut Sockets, dir: &Path, config: &Config, port: u16) -> Result<Option<PathBuf>, NodeError> {
    let Some(directory) = config.unix_socket_directory(dir) else { return Ok(None) };
    // Clients are given this path; they may have another working directory.
    let directory = std::path::absolute(directory)?;
    // Nothing in the data directory is for other users; another directory is chosen for them.
    let users = if config.has_default_unix_socket() { SocketUsers::Own } else { SocketUsers::All };
    match sockets.unix(&directory, port, users) {
        Ok(_) => Ok(Some(directory)),
        Err(error) if config.has_default_unix_socket() => {
            tracing::warn!("there is no Unix socket: {error}");
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The TLS that the settings name; `None` where there is none.
fn load_tls(dir: &Path, config: &Config) -> Result<Option<TlsConfig>, TlsError> {
    let Some(files) = config.tls_files(dir) else { return Ok(None) };
    let tls = TlsConfig::load(&files)?;
    let (certificate, left) = (files.certificate.display(), tls.expires_in());
    if left.is_zero() {
        tracing::warn!(
            "the certificate {certificate} has expired: clients that verify it refuse the connection; renew it with: holdfast cert renew"
        );
    } else if left < EXPIRY_WARNING {
        let days = left.as_secs() / SECONDS_OF_A_DAY;
        tracing::warn!("the certificate {certificate} expires in {days} days; renew it with: holdfast cert renew");
    }
    Ok(Some(tls))
}

/// From now on a reload reads the files of TLS again, under the names that holdfast.toml then has. Sessions stay. Files that
/// cannot be used leave the configuration in force.
pub(super) fn reload_tls(reload: &Reload, dir: &Path, tls: &TlsSlot, addresses: &[SocketAddr]) {
    let (dir, slot) = (dir.to_owned(), tls.clone());
    let is_exposed = addresses.iter().any(|address| !address.ip().to_canonical().is_loopback());
    reload.add("TLS", move || {
        // Not by Config::load, which makes a directory that is not there.
        let text = match std::fs::read_to_string(dir.join(FILE_NAME)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            read => read.map_err(|error| format!("cannot read {FILE_NAME}: {error}"))?,
        };
        let config = Config::parse(&text).map_err(|error| format!("{FILE_NAME}: {error}"))?;
        let tls = load_tls(&dir, &config).map_err(|error| error.to_string())?;
        if tls.is_none() && is_exposed {
            return Err("the server listens for other machines, which needs a certificate (tls_certificate)".to_owned());
        }
        slot.set(tls);
        Ok(())
    });
}
