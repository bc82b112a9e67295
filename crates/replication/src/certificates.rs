//! The certificates of a node: the directory `certificates` in its data directory, or another directory.
//!
//! | file | what |
//! |---|---|
//! | `authority.crt` | the authority that has signed the certificates of all nodes |
//! | `node.crt` | this node's certificate |
//! | `node.key` | its key, readable by the owner only |
//!
//! `holdfast cert` creates them. With them every link of the node is encrypted, and both sides authenticate; without them
//! links are limited to this machine.
//!
//! Failure: a directory in which a file is missing or wrong is refused, and the file is named: a node that continued without
//! encryption would be worse than one that does not start.

use holdfast_control::{BoxStream, Incoming, NodeId, Secure};
use holdfast_seams::{Disk, RealDisk, replace};
use holdfast_standby::Holder;
use holdfast_standby::cert::CertificateRole;
use holdfast_standby::tls::{NodeFiles, TlsError, client_config, holder, server_config, server_name};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// The directory's name within a data directory.
pub const DIR_NAME: &str = "certificates";
/// The files in it.
pub const FILES: [&str; 3] = ["authority.crt", "node.crt", "node.key"];

/// A node's certificates. Cheap to clone.
#[derive(Clone)]
pub struct Certificates {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
}

impl Certificates {
    /// Reads the certificates of a data directory, if it has any.
    pub fn of(data: &Path) -> Result<Option<Certificates>, TlsError> {
        let dir = data.join(DIR_NAME);
        if dir.is_dir() { Certificates::read(&dir).map(Some) } else { Ok(None) }
    }

    /// Reads the certificates in a directory made by `holdfast cert`.
    pub fn read(dir: &Path) -> Result<Certificates, TlsError> {
        let [authority, certificate, key] = FILES.map(|name| dir.join(name));
        let files = NodeFiles { authority, certificate, key };
        Ok(Certificates { acceptor: server_config(&files)?.into(), connector: client_config(&files)?.into() })
    }

    /// The handshake of the listening side. Returns the holder of the peer's certificate.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<(server::TlsStream<TcpStream>, Holder)> {
        let stream = self.acceptor.accept(stream).await?;
        let holder = holder(stream.get_ref().1.peer_certificates()).map_err(refused)?;
        Ok((stream, holder))
    }

    /// The handshake of the side that connects to `address` (HOST:PORT); the peer's certificate must be valid for that host.
    /// Returns its holder.
    pub async fn connect(
        &self,
        address: &str,
        stream: TcpStream,
    ) -> io::Result<(client::TlsStream<TcpStream>, Holder)> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
        let stream = self.connector.connect(server_name(host).map_err(refused)?, stream).await?;
        let holder = holder(stream.get_ref().1.peer_certificates()).map_err(refused)?;
        if holder.role != CertificateRole::Node {
            return Err(refused(format!("the certificate of {address} is not a node's certificate")));
        }
        Ok((stream, holder))
    }
}

fn refused(error: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, error.to_string())
}

/// Copies a node's files into a data directory, the key readable by the owner only. Each file is replaced atomically.
pub fn install(from: &Path, data: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let to = data.join(DIR_NAME);
    if !to.is_dir() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&to)?;
    }
    let disk = RealDisk::new();
    for name in FILES {
        let named = |path: PathBuf| move |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let bytes = std::fs::read(from.join(name)).map_err(named(from.join(name)))?;
        if std::fs::read(to.join(name)).is_ok_and(|there| there == bytes) {
            continue;
        }
        replace(&disk, &to.join(name), &bytes).map_err(io::Error::from).map_err(named(to.join(name)))?;
    }
    // The directory itself may be new.
    disk.sync_dir(data)
}

/// Connections of the control plane over these certificates; each member authenticates with its own.
pub struct SecureMembers {
    pub certificates: Certificates,
    /// HOST:PORT of each.
    pub addresses: BTreeMap<NodeId, String>,
}

impl Secure for SecureMembers {
    fn client(&self, to: NodeId, stream: TcpStream) -> Pin<Box<dyn Future<Output = io::Result<BoxStream>> + Send>> {
        let (certificates, address) = (self.certificates.clone(), self.addresses.get(&to).cloned());
        Box::pin(async move {
            let address = address.ok_or(io::ErrorKind::NotFound)?;
            let (stream, holder) = certificates.connect(&address, stream).await?;
            if holder.name != to.to_string() {
                return Err(refused(format!("{address} shows the certificate of {}, not of {to}", holder.name)));
            }
            Ok(Box::new(stream) as BoxStream)
        })
    }

    fn server(&self, stream: TcpStream) -> Incoming {
        let certificates = self.certificates.clone();
        Box::pin(async move {
            let (stream, holder) = certificates.accept(stream).await?;
            if holder.role != CertificateRole::Node {
                return Err(refused(format!("the certificate of {} is not that of a node", holder.name)));
            }
            let name =
                holder.name.parse().map_err(|_| refused(format!("{} is not the name of a member", holder.name)))?;
            Ok((Box::new(stream) as BoxStream, Some(name)))
        })
    }
}

/// The protection of the control plane's connections, where this node has certificates.
pub fn secure_members(
    certificates: Option<&Certificates>,
    addresses: &BTreeMap<NodeId, String>,
) -> Option<Arc<dyn Secure>> {
    let certificates = certificates?.clone();
    Some(Arc::new(SecureMembers { certificates, addresses: addresses.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_are_replaced_and_not_written_into() {
        let scratch = tempfile::tempdir().unwrap();
        let [from, data] = ["from", "data"].map(|name| scratch.path().join(name));
        let there = data.join(DIR_NAME);
        std::fs::create_dir(&from).unwrap();
        let write = |content: &str| FILES.iter().for_each(|name| std::fs::write(from.join(name), content).unwrap());
        write("old");
        install(&from, &data).unwrap();
        // A file written in place would show the change under its other name, too.
        let kept = FILES.map(|name| scratch.path().join(name));
        FILES.iter().zip(&kept).for_each(|(name, kept)| std::fs::hard_link(there.join(name), kept).unwrap());
        // As a crash has left it, and for everybody to read.
        std::fs::write(there.join("node.key.new"), "half a k").unwrap();
        std::fs::set_permissions(there.join("node.key.new"), PermissionsExt::from_mode(0o644)).unwrap();
        write("new");
        install(&from, &data).unwrap();
        for (name, kept) in FILES.iter().zip(&kept) {
            assert_eq!(std::fs::read_to_string(kept).unwrap(), "old", "{name}");
            assert_eq!(std::fs::read_to_string(there.join(name)).unwrap(), "new", "{name}");
            assert_eq!(std::fs::metadata(there.join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
        }
        assert_eq!(std::fs::read_dir(&there).unwrap().count(), FILES.len(), "nothing is left over");
    }
}
