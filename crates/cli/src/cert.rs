//! `holdfast cert`: a certificate authority of the operator's own, and certificates for nodes and people.

use anyhow::{Context, bail};
use clap::Subcommand;
use holdfast_replication::CERTIFICATE_FILES;
use holdfast_standby::cert::{Authority, CertificateRole};
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make the certificates by which nodes on several machines authenticate each other
#[derive(clap::Args)]
#[command(after_help = "\
Example, for nodes a and b and their operator:
  holdfast cert authority --out ./authority
  holdfast cert node --authority ./authority --name a --host 10.0.0.1 --out ./a-certificates
  holdfast cert node --authority ./authority --name b --host 10.0.0.2 --host b.example --out ./b-certificates
  holdfast cert operator --authority ./authority --name tom --out ./tom

A node's directory becomes `certificates` in its data directory; `standby create --certificates` and `rejoin
--certificates` copy it there. Protect authority/authority.key: a certificate made with it is accepted by every node. A
certificate is valid for ten years.")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make an authority: authority.crt, which every node gets, and authority.key, which only you keep
    #[command(after_help = "Example:\n  holdfast cert authority --out ./authority")]
    Authority {
        /// Directory to make
        #[arg(long, value_name = "DIR", default_value = "./authority")]
        out: PathBuf,
    },
    /// Make a node's certificate: it may follow and be followed under its name, take base copies and vote
    #[command(after_help = "\
Example:
  holdfast cert node --authority ./authority --name a --host 10.0.0.1 --out ./a-certificates")]
    Node {
        #[command(flatten)]
        whose: Whose,
        /// A host name or address under which others reach the node; may be given several times
        #[arg(long, value_name = "HOST", required = true)]
        host: Vec<String>,
    },
    /// Make a person's certificate, for commands such as `holdfast standby status` and `promote`
    #[command(after_help = "\
Example:
  holdfast cert operator --authority ./authority --name tom --out ./tom
  holdfast standby status --at 10.0.0.1:5443 --certificates ./tom")]
    Operator {
        #[command(flatten)]
        whose: Whose,
    },
}

#[derive(clap::Args)]
struct Whose {
    /// The authority's directory
    #[arg(long, value_name = "DIR", default_value = "./authority")]
    authority: PathBuf,
    /// The node's name, as its master knows it, or the person's
    #[arg(long)]
    name: String,
    /// Directory to make
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.command {
        Command::Authority { out } => authority(&out)?,
        Command::Node { whose, host } => issue(&whose, CertificateRole::Node, &host)?,
        Command::Operator { whose } => issue(&whose, CertificateRole::Operator, &[])?,
    }
    Ok(ExitCode::SUCCESS)
}

fn authority(out: &Path) -> anyhow::Result<()> {
    let authority = Authority::new()?;
    make_dir(out)?;
    write(&out.join("authority.key"), authority.key_pem())?;
    write(&out.join("authority.crt"), authority.certificate_pem())?;
    println!("holdfast: {} is an authority; protect authority.key", out.display());
    Ok(())
}

fn issue(whose: &Whose, role: CertificateRole, hosts: &[String]) -> anyhow::Result<()> {
    holdfast_standby::link::check_name(&whose.name)?;
    let read = |name: &str| {
        let path = whose.authority.join(name);
        std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}; make an authority with: holdfast cert authority", path.display()))
    };
    let issued = Authority::from_key_pem(&read("authority.key")?)?.issue(&whose.name, role, hosts)?;
    make_dir(&whose.out)?;
    let [authority, certificate, key] = CERTIFICATE_FILES.map(|name| whose.out.join(name));
    write(&key, &issued.key_pem)?;
    write(&certificate, &issued.certificate_pem)?;
    write(&authority, &read("authority.crt")?)?;
    let what = match role {
        CertificateRole::Node => "the node",
        CertificateRole::Operator => "the operator",
    };
    println!("holdfast: {} holds the certificate of {what} {}", whose.out.display(), whose.name);
    Ok(())
}

fn make_dir(path: &Path) -> anyhow::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .with_context(|| format!("cannot make {}", path.display()))
}

/// Overwrites nothing: a lost key cannot be made again.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => file.write_all(text.as_bytes()).and_then(|()| file.sync_all()),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{} exists and is not overwritten; name another directory", path.display())
        }
        Err(e) => Err(e),
    }
    .with_context(|| format!("cannot write {}", path.display()))
}
