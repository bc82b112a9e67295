//! The connection to the running server.
//!
//! | where | how |
//! |---|---|
//! | a directory with a Unix socket, a loopback address or `localhost`, no CA named | without TLS |
//! | anywhere, a CA named | TLS 1.2 or 1.3; the server's certificate has to be of that CA and for that host |
//! | another machine, no CA named | refused: passwords and rows do not leave the machine in plain text |
//!
//! Failure: a server that refuses the connection is quoted.

use crate::error::{PartError, shown};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

/// A running server, and the role to connect as.
#[derive(Clone, Debug)]
pub struct Server {
    /// HOST:PORT, or the directory of a Unix socket and the port.
    pub at: String,
    pub user: String,
    pub password: Option<String>,
    /// The authority of the server's certificate.
    pub ca: Option<PathBuf>,
}

impl Server {
    /// The host without brackets, and the port.
    fn address(&self) -> Result<(&str, u16), PartError> {
        let refuse = |what: &str| PartError::Address { at: self.at.clone(), what: what.to_owned() };
        let (host, port) = self.at.rsplit_once(':').ok_or_else(|| refuse("write it as HOST:PORT"))?;
        let port = port.parse().map_err(|_| refuse("the port is not a number up to 65535"))?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if host.is_empty() {
            return Err(refuse("write it as HOST:PORT"));
        }
        Ok((host, port))
    }

    /// A session in a database.
    pub async fn connect(&self, database: &str) -> Result<Client, PartError> {
        let (host, port) = self.address()?;
        let mut config = Config::new();
        config.host(host).port(port).user(&self.user).dbname(database).application_name("holdfast restore");
        if let Some(password) = &self.password {
            config.password(password);
        }
        let failed = |error: tokio_postgres::Error| PartError::Connect {
            at: self.at.clone(),
            database: database.to_owned(),
            what: shown(&error),
        };
        let is_here = host.starts_with('/')
            || host == "localhost"
            || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        match &self.ca {
            Some(ca) => {
                config.ssl_mode(SslMode::Require);
                let (client, connection) = config.connect(tls(ca)?).await.map_err(failed)?;
                tokio::spawn(connection);
                Ok(client)
            }
            None if is_here => {
                config.ssl_mode(SslMode::Disable);
                let (client, connection) = config.connect(NoTls).await.map_err(failed)?;
                tokio::spawn(connection);
                Ok(client)
            }
            None => Err(PartError::Address {
                at: self.at.clone(),
                what: "the server is on another machine: name the authority of its certificate with --ca, as in \
                       --ca holdfast-data/tls/ca.crt"
                    .to_owned(),
            }),
        }
    }
}

fn tls(ca: &Path) -> Result<MakeRustlsConnect, PartError> {
    let failed = |what: String| PartError::File { path: ca.display().to_string(), what };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).map_err(|e| failed(e.to_string()))? {
        let certificate = certificate.map_err(|e| failed(e.to_string()))?;
        roots.add(certificate).map_err(|e| failed(e.to_string()))?;
    }
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(e.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(at: &str) -> Server {
        Server { at: at.to_owned(), user: "u".to_owned(), password: None, ca: None }
    }

    #[test]
    fn addresses() {
        assert_eq!(server("db:5433").address().unwrap(), ("db", 5433));
        assert_eq!(server("[::1]:5433").address().unwrap(), ("::1", 5433));
        assert_eq!(server("/run/holdfast:5433").address().unwrap(), ("/run/holdfast", 5433));
        for bad in ["db", "db:", ":5433", "db:70000", ""] {
            assert!(server(bad).address().is_err(), "{bad}");
        }
    }

    #[tokio::test]
    async fn another_machine_is_not_sent_plain_text() {
        let error = server("192.0.2.1:5433").connect("d").await.err().unwrap().to_string();
        assert!(error.contains("--ca"), "{error}");
    }
}
