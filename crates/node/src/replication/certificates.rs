//! The certificates of a node: the directory `certificates` in its data directory, or any other.
//!
//! | file | what |
//! |---|---|
//! | `authority.crt` | the authority that has signed all nodes |
//! | `node.crt` | this node's certificate |
//! | `node.key` | the key to it, for nobody else to read |
//!
//! `holdfast cert` makes them. With them every link of the node is encrypted, and both sides show who they are; without
//! them links stay on this machine.
//!
//! Failure: a directory in which one of the files is missing or wrong is refused, by name: a node that went on in the
//! clear would be worse than one that does not start.

use holdfast_control::{BoxStream, Incoming, NodeId, Secure};
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

/// See the module. Cheap to clone.
#[derive(Clone)]
pub struct Certificates {
    acceptor: TlsAcceptor,
    connector: TlsConnector,
}

impl Certificates {
    /// Those of a data directory, if it has any.
    pub fn of(data: &Path) -> Result<Option<Certificates>, TlsError> {
        let dir = data.join(DIR_NAME);
        if dir.is_dir() { Certificates::read(&dir).map(Some) } else { Ok(None) }
    }

    /// Those of a directory made by `holdfast cert`.
    pub fn read(dir: &Path) -> Result<Certificates, TlsError> {
        let [authority, certificate, key] = FILES.map(|name| dir.join(name));
        let files = NodeFiles { authority, certificate, key };
        Ok(Certificates { acceptor: server_config(&files)?.into(), connector: client_config(&files)?.into() })
    }

    /// The handshake of the side that was connected to; who the other side is.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<(server::TlsStream<TcpStream>, Holder)> {
        let stream = self.acceptor.accept(stream).await?;
        let holder = holder(stream.get_ref().1.peer_certificates()).map_err(refused)?;
        Ok((stream, holder))
    }

    /// The handshake of the side that connects to `address` (HOST:PORT), whose certificate must be good for that host;
    /// who the other side is.
    pub async fn connect(
        &self,
        address: &str,
        stream: TcpStream,
    ) -> io::Result<(client::TlsStream<TcpStream>, Holder)> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
        let stream = self.connector.connect(server_name(host).map_err(refused)?, stream).await?;
        let holder = holder(stream.get_ref().1.peer_certificates()).map_err(refused)?;
        if holder.role != CertificateRole::Node {
            return Err(refused(format!("the certificate of {address} is not that of a node")));
        }
        Ok((stream, holder))
    }
}

fn refused(error: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, error.to_string())
}

/// Copies a node's files into a data directory; the key for nobody else to read. Each is replaced as a whole: a crash
/// leaves the old one or the new one.
pub fn install(from: &Path, data: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let to = data.join(DIR_NAME);
    if !to.is_dir() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&to)?;
    }
    for name in FILES {
        let named = |path: PathBuf| move |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        let bytes = std::fs::read(from.join(name)).map_err(named(from.join(name)))?;
        if std::fs::read(to.join(name)).is_ok_and(|there| there == bytes) {
            continue;
        }
        replace(&to, name, &bytes).map_err(named(to.join(name)))?;
    }
    std::fs::File::open(&to)?.sync_all()?;
    // The directory itself may be new.
    std::fs::File::open(data)?.sync_all()
}

/// Written beside, synced and renamed; durable when the directory is synced.
fn replace(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let new = dir.join(format!("{name}.new"));
    // One that a crash has left is not written into: others may read it, or have it open.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    io::Write::write_all(&mut file, bytes)?;
    file.sync_all()?;
    std::fs::rename(&new, dir.join(name))
}

/// The control plane's connections over these certificates: each member shows its own.
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
            let name = holder.name.parse().map_err(|_| refused(format!("{} is no member's name", holder.name)))?;
            Ok((Box::new(stream) as BoxStream, Some(name)))
        })
    }
}

/// What a control plane's connections are protected with, where this node has certificates.
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
        // What a crash would leave of one that is written in place is what another name of it shows.
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
