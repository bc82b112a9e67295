//! tokio-postgres over TLS and with a password. It runs in this process, unlike the other drivers.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio_postgres::config::{ChannelBinding, SslMode};
use tokio_postgres::{Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::findings::Findings;

const WHO: &str = "SELECT current_user::text || ' ' || (SELECT version FROM pg_stat_ssl WHERE pid = pg_backend_pid())";

/// Prints what it finds, as the other drivers' programs do.
pub fn run(port: u16, ca: &Path, foreign_ca: &Path) -> anyhow::Result<Findings> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (verified, foreign) = (tls(ca)?, tls(foreign_ca)?);
        let config = |binding| {
            let mut config = Config::new();
            config.host("localhost").port(port).user("app").password("open sesame").dbname("holdfast");
            config.ssl_mode(SslMode::Require).channel_binding(binding);
            config
        };
        let plain = config(ChannelBinding::Prefer);
        let mut without_tls = plain.clone();
        without_tls.ssl_mode(SslMode::Disable);
        let mut wrong = plain.clone();
        wrong.password("open barley");
        let bound = config(ChannelBinding::Require);
        let cases = [
            ("verify_full", &plain, &verified, WHO),
            ("channel_binding", &bound, &verified, WHO),
            ("wrong_password", &wrong, &verified, WHO),
            ("no_tls", &without_tls, &verified, WHO),
            ("foreign_ca", &plain, &foreign, WHO),
            ("granted", &plain, &verified, "SELECT count(*)::text FROM notes"),
            ("denied", &plain, &verified, "SELECT 'x' FROM secrets"),
        ];
        let mut findings = Findings::new();
        for (case, config, tls, sql) in cases {
            let found = attempt(config, tls, sql).await.unwrap_or_else(|error| format!("error: {}", shown(&error)));
            findings.push((case.to_owned(), found.replace('\n', "\\n")));
        }
        Ok(findings)
    })
}

fn tls(ca: &Path) -> anyhow::Result<MakeRustlsConnect> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

async fn attempt(config: &Config, tls: &MakeRustlsConnect, sql: &str) -> Result<String, tokio_postgres::Error> {
    let client = if config.get_ssl_mode() == SslMode::Disable {
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        client
    } else {
        let (client, connection) = config.connect(tls.clone()).await?;
        tokio::spawn(connection);
        client
    };
    client.query_one(sql, &[]).await?.try_get(0)
}

/// The server's message with its SQLSTATE, or the driver's.
fn shown(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(from_server) => format!("{} {}", from_server.code().code(), from_server.message()),
        None => {
            let cause = std::error::Error::source(error).map(ToString::to_string).unwrap_or_default();
            format!("{error}: {cause}")
        }
    }
}
