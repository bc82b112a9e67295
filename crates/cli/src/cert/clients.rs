//! `holdfast cert server`, `client` and `renew`: TLS for clients' connections.
//!
//! | file | who has it |
//! |---|---|
//! | `ca.crt` | the server, and every client that verifies the server |
//! | `ca.key` | the operator only: with it certificates are made that the server accepts |
//! | `server.crt`, `server.key` | the server, in its data directory's `tls` |
//! | `client.crt`, `client.key` | a client that connects as one role |
//!
//! Failure: nothing is overwritten except by `renew`, which replaces each file as a whole.

use super::files::{make_dir, read, replace, write};
use super::show::show_dir;
use anyhow::{Context, bail};
use holdfast_wire::tls::authority::{ClientAuthority, DAYS, Issued, Purpose};
use holdfast_wire::tls::{CertificateText, certificates_in};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast cert server --data ./holdfast-data --host db.example.com --host 10.0.0.5
  holdfast serve --data ./holdfast-data --listen '127.0.0.1:5433,10.0.0.5:5433'
  psql \"host=db.example.com port=5433 user=app sslmode=verify-full sslrootcert=ca.crt\"

Writes server.crt, server.key, ca.crt and ca.key to the data directory's tls; clients need a copy of ca.crt. The first call makes
the authority (ca.crt, ca.key); --authority names another directory that has it. A running server uses new files after
SIGHUP.")]
pub struct Server {
    /// The server's data directory
    #[arg(long, value_name = "DIR", default_value = "./holdfast-data")]
    data: PathBuf,
    /// A host name or address under which clients reach the server; may be given several times
    #[arg(long, value_name = "HOST", required = true)]
    host: Vec<String>,
    #[command(flatten)]
    by: SignedBy,
}

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast cert client app --data ./holdfast-data --out ./app-certificate
  psql \"host=db.example.com port=5433 user=app sslmode=verify-full sslrootcert=ca.crt sslcert=client.crt sslkey=client.key\"

Rules in pg_hba.conf decide what a certificate is good for: `cert` logs its holder in, clientcert=verify-full asks for it in
addition to a password.")]
pub struct Client {
    /// The role that the client connects as
    name: String,
    /// Directory to make, with client.crt, client.key and ca.crt
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The server's data directory, whose tls has the authority
    #[arg(long, value_name = "DIR", default_value = "./holdfast-data")]
    data: PathBuf,
    #[command(flatten)]
    by: SignedBy,
}

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast cert renew ./holdfast-data/tls
  psql -h 127.0.0.1 -p 5433 -U holdfast -d holdfast -c 'SELECT pg_reload_conf()'

Replaces server.crt and server.key, or client.crt and client.key, by new ones for the same names; --host gives a server other
names. A running server reads them with the second command, or on SIGHUP. Sessions stay.")]
pub struct Renew {
    /// A directory that `cert server` or `cert client` has made
    #[arg(value_name = "DIR", default_value = "./holdfast-data/tls")]
    dir: PathBuf,
    /// A host name or address of the server, in place of those in its certificate; may be given several times
    #[arg(long, value_name = "HOST")]
    host: Vec<String>,
    #[command(flatten)]
    by: SignedBy,
}

#[derive(clap::Args)]
struct SignedBy {
    /// The directory with the authority's ca.crt and ca.key [default: the data directory's tls]
    #[arg(long, value_name = "DIR")]
    authority: Option<PathBuf>,
    /// Days for which the certificate is valid
    #[arg(long, value_name = "DAYS", default_value_t = DAYS, value_parser = clap::value_parser!(u32).range(1..=36_525))]
    days: u32,
}

/// The directory in a data directory.
const TLS: &str = "tls";

/// The file that makes a data directory a standby's.
const STANDBY_FILE: &str = "standby.toml";

pub fn server(arguments: &Server) -> anyhow::Result<()> {
    let Server { data, host, by } = arguments;
    let tls = data.join(TLS);
    refuse_existing(&tls, "server")?;
    make_dir(&tls)?;
    let at = by.authority.as_ref().unwrap_or(&tls);
    if by.authority.is_none() && !at.join("ca.key").exists() && data.join(STANDBY_FILE).exists() {
        bail!(
            "{} is a standby: clients must accept its certificate as they accept the master's; name the directory that has \
             the master's ca.crt and ca.key with --authority",
            data.display()
        );
    }
    let authority =
        if at.join("ca.key").exists() || at.join("ca.crt").exists() { open(at)? } else { make(at, by.days)? };
    let issued = authority.issue(Purpose::Server(host), by.days)?;
    write_pair(&tls, "server", &issued)?;
    give_ca(at, &tls)?;
    show_dir(&tls)?;
    println!("holdfast: clients need a copy of {}", tls.join("ca.crt").display());
    if at == &tls {
        println!(
            "holdfast: {} makes certificates that the server accepts; move it to a safe place",
            tls.join("ca.key").display()
        );
    }
    Ok(())
}

pub fn client(arguments: &Client) -> anyhow::Result<()> {
    let Client { name, out, data, by } = arguments;
    if name.is_empty() || name.len() > 63 || name.contains('\0') {
        bail!("the name of a role has 1 to 63 bytes");
    }
    refuse_existing(out, "client")?;
    let tls = data.join(TLS);
    let at = by.authority.as_ref().unwrap_or(&tls);
    let issued = open(at)?.issue(Purpose::Client(name), by.days)?;
    make_dir(out)?;
    write_pair(out, "client", &issued)?;
    give_ca(at, out)?;
    show_dir(out)
}

pub fn renew(arguments: &Renew) -> anyhow::Result<()> {
    let Renew { dir, host, by } = arguments;
    let Some(kind) = ["server", "client"].into_iter().find(|kind| dir.join(format!("{kind}.crt")).exists()) else {
        bail!("{} has neither server.crt nor client.crt; make one with: holdfast cert server", dir.display());
    };
    let path = dir.join(format!("{kind}.crt"));
    let old = certificates_in(&path)?;
    let old = CertificateText::parse(old.first().context("no certificate")?)?;
    let authority = open(by.authority.as_ref().unwrap_or(dir))?;
    let issued = match (kind, &old.common_name) {
        ("server", _) if host.is_empty() => authority.issue(Purpose::Server(&old.hosts), by.days)?,
        ("server", _) => authority.issue(Purpose::Server(host), by.days)?,
        _ if !host.is_empty() => {
            bail!("{} is a client's certificate, which names a role: leave out --host", path.display())
        }
        (_, Some(role)) => authority.issue(Purpose::Client(role), by.days)?,
        (_, None) => bail!("{} names no role", path.display()),
    };
    // A reload between the two is refused, because they do not fit, and is repeated by the next one.
    replace(&dir.join(format!("{kind}.key")), &issued.key_pem)?;
    replace(&path, &issued.certificate_pem)?;
    show_dir(dir)?;
    if kind == "server" {
        println!("holdfast: send the server SIGHUP, or start it again; open sessions stay");
    }
    Ok(())
}

fn make(at: &Path, days: u32) -> anyhow::Result<ClientAuthority> {
    let authority = ClientAuthority::new(days.max(DAYS))?;
    make_dir(at)?;
    write(&at.join("ca.key"), &authority.own().key_pem)?;
    write(&at.join("ca.crt"), &authority.own().certificate_pem)?;
    Ok(authority)
}

fn open(at: &Path) -> anyhow::Result<ClientAuthority> {
    let key = at.join("ca.key");
    let text = read(&key).context("name the directory that has ca.crt and ca.key with --authority")?;
    Ok(ClientAuthority::from_key_pem(&text)?)
}

/// Copies the authority's certificate, which may be there already.
fn give_ca(from: &Path, to: &Path) -> anyhow::Result<()> {
    let (source, target) = (from.join("ca.crt"), to.join("ca.crt"));
    let text = read(&source)?;
    if std::fs::read_to_string(&target).is_ok_and(|there| there == text) { Ok(()) } else { write(&target, &text) }
}

fn refuse_existing(dir: &Path, kind: &str) -> anyhow::Result<()> {
    for end in ["crt", "key"] {
        let path = dir.join(format!("{kind}.{end}"));
        if path.exists() {
            bail!(
                "{} exists and is not overwritten; renew it with: holdfast cert renew {}",
                path.display(),
                dir.display()
            );
        }
    }
    Ok(())
}

fn write_pair(dir: &Path, kind: &str, issued: &Issued) -> anyhow::Result<()> {
    write(&dir.join(format!("{kind}.key")), &issued.key_pem)?;
    write(&dir.join(format!("{kind}.crt")), &issued.certificate_pem)
}
