//! `holdfast standby`: makes standbys, shows them, stops and starts them.

mod check;
mod copy_progress;
pub mod from_dump;

pub use copy_progress::CopyBar;

use crate::dump::Identities;
use anyhow::{Context, bail};
use clap::Subcommand;
use comfy_table::{Table, presets};
use holdfast_dump::restore::NewStandby;
use holdfast_node::config::FILE_NAME;
use holdfast_node::data_dir::private_umask;
use holdfast_node::{Config, HoldfastToml, node_name};
use holdfast_replication::{
    Certificates, CopyTo, NodeClient, StandbyFile, check_copy_target, copy_from, install_certificates,
};
use serde_json::Value;
use std::net::ToSocketAddrs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make a standby of a running server, and show the state of standbys
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast serve --data ./a --listen 127.0.0.1:5433
  holdfast standby create --from 127.0.0.1:5433 --data ./b --name b
  holdfast serve --data ./b --listen 127.0.0.1:5434
  holdfast standby status
  holdfast promote --at 127.0.0.1:5434")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Copy a running server's databases into a new data directory, which `holdfast serve` then runs as its standby
    Create(Create),
    /// Show a server's role, and the position and lag of each of its standbys
    Status(Status),
    /// Set another master for a standby's data directory; takes effect at its next start
    Configure(Configure),
    /// Check, before anything is started, whether a master and a standby can be paired
    Check(check::Arguments),
    /// Stop replication in order: a master stops shipping to its standbys, or a standby stops following
    Stop(Operate),
    /// Start again what `stop` stopped
    Start(Operate),
    /// Stop keeping the trail for a standby that does not come back
    Forget(Forget),
}

/// A running server that a command is about.
#[derive(clap::Args)]
pub struct At {
    /// The server to ask
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:5433")]
    pub at: String,
    /// An operator's or a node's files made by `holdfast cert`, where the server is on another machine
    #[arg(long, value_name = "CERTS")]
    certificates: Option<PathBuf>,
}

impl At {
    pub fn client(&self) -> anyhow::Result<NodeClient> {
        let certificates = self.certificates.as_deref().map(Certificates::read).transpose()?;
        Ok(NodeClient { at: self.at.clone(), certificates })
    }
}

/// Copies a node's certificates into its data directory, where some are given.
pub fn install(certificates: Option<&Path>, data: &Path) -> anyhow::Result<()> {
    let Some(from) = certificates else { return Ok(()) };
    Certificates::read(from)?;
    install_certificates(from, data).context("the certificates cannot be copied")
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  holdfast standby stop --at 127.0.0.1:5433 --name b     the master stops shipping to b
  holdfast standby stop --at 127.0.0.1:5434              the standby stops following
  holdfast standby start --at 127.0.0.1:5433 --name b

Everything written before is sent first. A stop lasts until `start`, or until that server is restarted. Commits above
level local wait meanwhile, as for a standby that is away.")]
struct Operate {
    #[command(flatten)]
    at: At,
    /// At a master: the standby to stop or start [default: all]
    #[arg(long)]
    name: Option<String>,
}

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast standby forget --at 127.0.0.1:5433 --name b

The master keeps its trail for each standby it knows, up to standby_keep_bytes_max. A forgotten standby that comes back
follows again if the trail it needs still exists; otherwise it takes a new base copy.")]
struct Forget {
    #[command(flatten)]
    at: At,
    /// The standby, as `holdfast standby status` names it
    #[arg(long)]
    name: String,
}

#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast standby create --from 127.0.0.1:5433 --data ./b --name b

The server continues to serve meanwhile. Progress, rate and the time left go to standard error. Run the command again after an
interruption: the copy continues where it was.

With --from-dump the databases come from the newest dump, and the trail from the archive: the server sends only what the archive
does not have yet, when the standby starts.
  holdfast standby create --from 127.0.0.1:5433 --data ./b --name b --from-dump s3://bucket/dumps")]
struct Create {
    /// The server to copy and to follow
    #[arg(long, value_name = "HOST:PORT")]
    from: String,
    /// Data directory to make
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The standby's name at its master [default: the last part of DIR]
    #[arg(long)]
    name: Option<String>,
    /// The node's files made by `holdfast cert`, where the master is on another machine; they are copied into DIR
    #[arg(long, value_name = "CERTS")]
    certificates: Option<PathBuf>,
    /// Take the databases from the newest dump in this directory or object store
    #[arg(long, value_name = "URL")]
    from_dump: Option<String>,
    /// The archive [default: the one in the dump's settings]
    #[arg(long, value_name = "URL", requires = "from_dump")]
    archive: Option<String>,
    /// Only dumps of this trail, where the place has dumps of several
    #[arg(long, value_name = "ID", requires = "from_dump")]
    trail: Option<String>,
    #[command(flatten)]
    identity: Identities,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  holdfast standby status --at 127.0.0.1:5433")]
struct Status {
    #[command(flatten)]
    at: At,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:\n  holdfast standby configure --data ./b --from 127.0.0.1:5435")]
struct Configure {
    /// The standby's data directory
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The new master
    #[arg(long, value_name = "HOST:PORT")]
    from: String,
}

pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    private_umask();
    match arguments.command {
        Command::Create(create) => make(create),
        Command::Status(status) => show(&status),
        Command::Configure(configure) => name_master(&configure),
        Command::Check(arguments) => check::run(&arguments),
        Command::Stop(Operate { at, name }) => told(&at, at.client()?.stop(name)?),
        Command::Start(Operate { at, name }) => told(&at, at.client()?.start(name)?),
        Command::Forget(Forget { at, name }) => told(&at, at.client()?.forget(name)?),
    }
}

fn told(at: &At, done: String) -> anyhow::Result<ExitCode> {
    println!("holdfast: {}: {done}", at.at);
    Ok(ExitCode::SUCCESS)
}

fn make(
    Create { from, data, name, certificates, from_dump, archive, trail, identity }: Create,
) -> anyhow::Result<ExitCode> {
    let name = name.map_or_else(|| default_name(&data), Ok)?;
    if let Some(dumps) = from_dump {
        let certificates = certificates.as_deref();
        let standby = NewStandby { from: &from, name: &name, certificates, settings: &HoldfastToml };
        let repository = identity.open(&dumps)?;
        return from_dump::make(&repository, &data, archive.as_deref(), trail.as_deref(), standby);
    }
    let to = CopyTo { dir: &data, name: &name };
    check_copy_target(to)?;
    let progress = CopyBar::new()?;
    let copied = copy_from(&from, to, certificates.as_deref(), &HoldfastToml, &|done| progress.show(done));
    progress.end();
    let copied = copied?;
    println!("holdfast: {} is a copy of {from}, {} bytes came over the link", data.display(), copied.sent_bytes);
    println!("holdfast: start it as the standby {name} with: {}", serve_command(&data)?);
    Ok(ExitCode::SUCCESS)
}

/// The command that serves a directory. The address belongs to it, unless holdfast.toml has one: the default is that of the
/// first server on a machine.
pub fn serve_command(data: &Path) -> anyhow::Result<String> {
    let serve = format!("holdfast serve --data {}", data.display());
    let has_address = data.join(FILE_NAME).exists() && Config::load(data)?.listen != Config::default().listen;
    Ok(if has_address { serve } else { format!("{serve} --listen HOST:PORT") })
}

/// The name that the directory's holdfast.toml gives the node, else the last part of the directory's path.
fn default_name(data: &Path) -> anyhow::Result<String> {
    if data.join(FILE_NAME).exists() {
        let configured = Config::load(data)?.node_name;
        if !configured.is_empty() {
            return Ok(configured);
        }
    }
    Ok(data.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default())
}

/// The name that the server of an existing directory has had: a master that it has replaced watches for this name.
pub fn own_name(data: &Path) -> anyhow::Result<String> {
    if let Some(file) = StandbyFile::read(data)? {
        return Ok(file.name);
    }
    let config = if data.join(FILE_NAME).exists() { Config::load(data)? } else { Config::default() };
    Ok(node_name(&config))
}

fn name_master(Configure { data, from }: &Configure) -> anyhow::Result<ExitCode> {
    let Some(file) = StandbyFile::read(data)? else {
        bail!("not a standby's data directory: {} (it has no standby.toml)", data.display())
    };
    check_is_another(data, from, &file.name)?;
    // Whether that is a master is checked when the standby follows it.
    let file = StandbyFile { from: from.clone(), root: Some(String::new()), ..file };
    file.check().map_err(|why| anyhow::anyhow!("--from: {why}"))?;
    file.write(data)?;
    println!("holdfast: {} follows {from} from its next start on", data.display());
    Ok(ExitCode::SUCCESS)
}

/// Refuses an address at which the standby itself serves, by its settings or, if it runs, by its own answer.
fn check_is_another(data: &Path, from: &str, name: &str) -> anyhow::Result<()> {
    let refuse = || bail!("--from: {from} is the address of {name} itself; name the server that it is to follow");
    let config = if data.join(FILE_NAME).exists() { Config::load(data)? } else { Config::default() };
    let is_set = config.listen != Config::default().listen;
    if (is_set && config.listen.to_string() == from) || (!config.node_listen.is_empty() && config.node_listen == from) {
        return refuse();
    }
    let at = NodeClient { at: from.to_owned(), certificates: Certificates::of(data)? };
    // A master that is away now can be named.
    let Ok(status) = at.status() else { return Ok(()) };
    let status: Value = serde_json::from_str(&status).unwrap_or_default();
    // Two machines may have servers of the same name, but only one of them is a standby here.
    let is_itself = status["name"] == name && status["role"] == "standby" && is_on_this_machine(from);
    if is_itself { refuse() } else { Ok(()) }
}

/// Whether an address leads to this machine: a socket can be bound there.
fn is_on_this_machine(address: &str) -> bool {
    let Ok(mut found) = address.to_socket_addrs() else { return false };
    found.all(|address| std::net::TcpListener::bind((address.ip(), 0)).is_ok())
}

/// Whether it may acknowledge commits, where anything limits that.
fn show_rights(status: &Value, word: impl Fn(&Value) -> String) {
    let (control, is_master) = (&status["control"], status["role"] == "master");
    if control["founded"] == true {
        let names = control["sync_set"].as_array().map(Vec::as_slice).unwrap_or_default();
        let names: Vec<String> = names.iter().map(&word).collect();
        println!(
            "its control plane: master {} of epoch {}{}, may be promoted: {}{}",
            word(&control["master"]),
            word(&control["epoch"]),
            if control["deposed"] == true { ", being deposed" } else { "" },
            names.join(", "),
            match control["quorum"].as_u64() {
                Some(needed) => format!(" (the one that has all that the others have; commits wait for any {needed})"),
                None => String::new(),
            }
        );
    } else if !control.is_null() {
        println!("its control plane: not founded, or not reached yet");
    }
    if is_master && control["lease_held"] == false && status["held"].is_null() {
        println!("it has NO LEASE: a majority of the control plane is away; nothing is acknowledged or read");
    }
    if let Some(why) = status["held"].as_str() {
        println!("NOTHING is acknowledged: {why}");
    }
    if is_master && status["commits_waiting"].as_u64().unwrap_or_default() > 0 {
        println!("{} groups of commits are durable here and wait to be acknowledged", word(&status["commits_waiting"]));
    }
}

fn show(Status { at, json }: &Status) -> anyhow::Result<ExitCode> {
    let text = at.client()?.status()?;
    if *json {
        println!("{text}");
        return Ok(ExitCode::SUCCESS);
    }
    let status: Value = serde_json::from_str(&text).context("the status is not JSON")?;
    let word = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    };
    println!(
        "{} is a {}, epoch {}, durable to LSN {}, applied to {}",
        word(&status["name"]),
        if status["role"] == "deposed" { "deposed master".to_owned() } else { word(&status["role"]) },
        word(&status["epoch"]),
        word(&status["durable_lsn"]),
        word(&status["applied_lsn"])
    );
    show_rights(&status, word);
    if let Value::Object(link) = &status["link"] {
        let (bytes, ms) = (word(&link["behind_bytes"]), word(&link["behind_ms"]));
        println!(
            "it follows {}: {}, {}{}",
            word(&link["master"]),
            word(&link["state"]),
            if link["behind_bytes"].is_null() {
                "how far it is behind is not known".to_owned()
            } else {
                format!("{bytes} bytes and {ms} ms behind")
            },
            link["error"].as_str().map(|e| format!("; {e}")).unwrap_or_default()
        );
    }
    if let Some(warning) = status["old_master"].as_str() {
        println!("WARNING: {warning}");
    }
    for missing in status["missing_files"].as_array().into_iter().flatten() {
        println!(
            "database {} CANNOT BE OPENED: its file {} does not exist; restore it from a backup, or mount the file system \
             that it is on",
            word(&missing["database"]),
            word(&missing["file"])
        );
    }
    if let Value::Object(mirror) = &status["mirror"] {
        println!("its mirror {}: {}; {}", word(&mirror["directory"]), word(&mirror["state"]), word(&mirror["commits"]));
    }
    let standbys = status["standbys"].as_array().cloned().unwrap_or_default();
    if standbys.is_empty() {
        if status["role"] != "standby" {
            println!("it has no standby now");
        }
        return Ok(ExitCode::SUCCESS);
    }
    const COLUMNS: [&str; 8] =
        ["name", "state", "synchronous", "received_lsn", "durable_lsn", "applied_lsn", "lag_bytes", "delay_us"];
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(COLUMNS);
    for standby in &standbys {
        table.add_row(COLUMNS.map(|column| word(&standby[column])));
    }
    println!("{table}");
    for standby in standbys.iter().filter(|standby| standby["connected"] == false) {
        standby["reason"].as_str().filter(|reason| !reason.is_empty()).into_iter().for_each(|why| println!("{why}"));
    }
    Ok(ExitCode::SUCCESS)
}
