//! PostgreSQL and Holdfast with the same certificates and the same `pg_hba.conf`: the role `holdfast` connects with no
//! password, every other role needs TLS and one.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use holdfast_testbed::Account;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::{Address, Holdfast, Postgres, oracle};

const RULES: &str = "\
host    all holdfast 127.0.0.1/32 trust
hostssl all all      127.0.0.1/32 scram-sha-256
";

/// The files that clients and servers need.
pub struct Certificates {
    directory: tempfile::TempDir,
}

impl Certificates {
    /// One of `ca.crt`, `foreign.crt`, `server.crt`, `server.key`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A CA with a server's certificate for `localhost`, and a CA that has issued neither.
    pub fn make() -> anyhow::Result<Certificates> {
        let made = Certificates { directory: tempfile::Builder::new().prefix("holdfast-access-").tempdir()? };
        std::fs::set_permissions(made.directory.path(), std::fs::Permissions::from_mode(0o755))?;
        let (issuer, ca) = authority("access test CA")?;
        let (_, foreign) = authority("foreign CA")?;
        let key = KeyPair::generate()?;
        let server = CertificateParams::new(vec!["localhost".to_owned()])?.signed_by(&key, &issuer)?;
        for (name, text) in [
            ("ca.crt", ca),
            ("foreign.crt", foreign),
            ("server.crt", server.pem()),
            ("server.key", key.serialize_pem()),
        ] {
            std::fs::write(made.file(name), text)?;
        }
        Ok(made)
    }

    /// Copies the server's two files; the key is readable by its owner only.
    fn install(&self, directory: &Path, account: Option<Account>) -> anyhow::Result<()> {
        std::fs::create_dir_all(directory)?;
        for name in ["server.crt", "server.key"] {
            let to = directory.join(name);
            std::fs::copy(self.file(name), &to)?;
            std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o600))?;
            if let Some(account) = account {
                account.own(&to)?;
            }
        }
        Ok(())
    }
}

fn authority(name: &str) -> anyhow::Result<(Issuer<'static, KeyPair>, String)> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    Ok((Issuer::new(params, key), certificate.pem()))
}

/// A private PostgreSQL that has run `set_up`.
pub fn postgres_with_tls(certificates: &Certificates, options: &[&str], set_up: &str) -> anyhow::Result<Postgres> {
    let options: Vec<&str> = ["ssl=on"].iter().chain(options).copied().collect();
    let server = oracle(&options, |data, programs| {
        certificates.install(data, Some(programs.account))?;
        Ok(std::fs::write(data.join("pg_hba.conf"), RULES)?)
    })?;
    server.address.sql("holdfast", set_up)?;
    Ok(server)
}

/// A directory that a first start makes and `set_up` fills, then served with TLS, the rules, and `settings` added to
/// `holdfast.toml`.
pub fn holdfast_with_tls(
    binary: &Path,
    data: &Path,
    certificates: &Certificates,
    settings: &str,
    set_up: &str,
) -> anyhow::Result<Holdfast> {
    let mut first = Holdfast::start(binary, data, Address::free())?;
    first.address.sql("holdfast", set_up)?;
    first.stop()?;
    certificates.install(&data.join("tls"), None)?;
    std::fs::write(data.join("pg_hba.conf"), RULES)?;
    let file = data.join("holdfast.toml");
    std::fs::write(&file, std::fs::read_to_string(&file)? + settings)?;
    Holdfast::start(binary, data, Address::free())
}
