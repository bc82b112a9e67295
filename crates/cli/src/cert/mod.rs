//! `holdfast cert`: authorities of the operator's own; certificates for nodes and people, and for clients' connections.

mod clients;
mod files;
mod show;

use anyhow::Context;
use clap::Subcommand;
use files::{make_dir, write};
use holdfast_replication::CERTIFICATE_FILES;
use holdfast_standby::cert::{Authority, CertificateRole};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make certificates: TLS for clients, and by which nodes on several machines authenticate each other
#[derive(clap::Args)]
#[command(after_help = "\
Example, for clients' connections:
  holdfast cert server --data ./holdfast-data --host db.example.com --host 10.0.0.5
  holdfast cert client app --data ./holdfast-data --out ./app-certificate
  holdfast cert show ./holdfast-data/tls

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
    /// Make a server's certificate for clients' connections, and at the first call the authority that signs it
    Server(clients::Server),
    /// Make a client's certificate for a role
    Client(clients::Client),
    /// Replace a server's or client's certificate by a new one
    Renew(clients::Renew),
    /// Show certificates and when they expire
    Show(show::Show),
    /// Make an authority of nodes: authority.crt, which every node gets, and authority.key, which only you keep
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
        Command::Server(arguments) => clients::server(&arguments)?,
        Command::Client(arguments) => clients::client(&arguments)?,
        Command::Renew(arguments) => clients::renew(&arguments)?,
        Command::Show(arguments) => return show::run(&arguments),
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
