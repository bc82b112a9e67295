//! `holdfast serve`: runs a server on a data directory.

use crate::logs;
use anyhow::{Context, bail};
use holdfast_cluster::{Client, RuntimeDir, Start};
use holdfast_control::{ControlPlane, Role};
use holdfast_node::Config;
use holdfast_node::config::{FILE_NAME, Listen};
use holdfast_node::data_dir::{FirstStart, private_umask};
use holdfast_replication::settings::Away;
use std::cell::Cell;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Serve the databases of a data directory to PostgreSQL clients
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast serve --data ./holdfast-data --listen localhost:5433
  psql -h localhost -p 5433 -U holdfast
  holdfast serve --data /srv/holdfast --unit > /etc/systemd/system/holdfast.service

The directory is made when it does not exist, with the databases holdfast and postgres and a commented holdfast.toml; only
its owner can read it. When clients can connect, `holdfast: ready on HOST:PORT` is printed. Logs go to stderr, or into
log_directory; `log` in holdfast.toml sets what is logged. SIGHUP reads it and the files of TLS again. SIGTERM stops cleanly.
Addresses that other machines reach need TLS: see `holdfast cert server --help`.")]
pub struct Arguments {
    /// Data directory
    #[arg(long, value_name = "DIR", default_value = "./holdfast-data")]
    data: PathBuf,
    /// Hosts and ports for clients, separated by commas; *:PORT is every address, port 0 any free one [default: from
    /// holdfast.toml, else 127.0.0.1:5433]
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<Listen>,
    /// A second data directory on another disk, kept equal: no commit is acknowledged before both have it [default: from
    /// holdfast.toml, else none]
    #[arg(long, value_name = "DIR")]
    mirror: Option<PathBuf>,
    /// Serve as the master although the control plane knows that this directory lacks acknowledged commits: they are lost
    #[arg(long)]
    accept_divergence: bool,
    /// Write logs as JSON, one object per line
    #[arg(long)]
    log_json: bool,
    /// Print a systemd unit that runs this server, with these options, and exit
    #[arg(long, conflicts_with_all = ["supervisor", "accept_divergence"])]
    unit: bool,
    /// The runtime directory of the supervisor that starts this server; `holdfast cluster run` gives it
    #[arg(long, value_name = "DIR", hide = true)]
    supervisor: Option<PathBuf>,
}

pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    if arguments.unit {
        return print_unit(&arguments);
    }
    private_umask();
    let made: Vec<FirstStart> = [Some(&arguments.data), arguments.mirror.as_ref()]
        .into_iter()
        .flatten()
        .filter_map(|dir| FirstStart::of(dir))
        .collect();
    let is_ready = Cell::new(false);
    let served = serve(arguments, &is_ready);
    if served.is_err() && !is_ready.get() {
        // No client was served: what a first start has made holds nothing.
        made.into_iter().for_each(FirstStart::undo);
    }
    served
}

/// The unit belongs to the owner of the directory, or to this user where there is none yet.
fn print_unit(arguments: &Arguments) -> anyhow::Result<()> {
    let data = std::path::absolute(&arguments.data).with_context(|| arguments.data.display().to_string())?;
    let program = std::env::current_exe().context("the path of this program")?;
    let owner = std::fs::metadata(&data).map_or_else(|_| rustix::process::getuid().as_raw(), |found| found.uid());
    let mut more = Vec::new();
    if let Some(listen) = &arguments.listen {
        more.extend(["--listen".to_owned(), listen.to_string()]);
    }
    if let Some(mirror) = &arguments.mirror {
        let mirror = std::path::absolute(mirror).with_context(|| mirror.display().to_string())?;
        more.extend(["--mirror".to_owned(), mirror.display().to_string()]);
    }
    if arguments.log_json {
        more.push("--log-json".to_owned());
    }
    print!("{}", holdfast_cluster::server_unit(&data, owner, &more, &program));
    Ok(())
}

fn serve(arguments: Arguments, is_ready: &Cell<bool>) -> anyhow::Result<()> {
    let data: &Path = &arguments.data;
    let is_new = !data.join(FILE_NAME).exists() && !data.join("trail").exists();
    let mut config = Config::load(data)?;
    logs::start(arguments.log_json, Some((data, &config)))?;
    if is_new {
        let dir = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
        tracing::info!("made a new, empty data directory: {} (--data names another)", dir.display());
    }
    if let Some(listen) = arguments.listen {
        config.listen = listen;
    }
    if let Some(mirror) = arguments.mirror {
        config.set_mirror(mirror)?;
    }
    config.accept_divergence = arguments.accept_divergence;
    let supervised = match arguments.supervisor {
        Some(dir) => Some(join_cluster(dir, &mut config).with_context(|| format!("cannot serve {}", data.display()))?),
        None => {
            refuse_supervised(data, &config)?;
            None
        }
    };
    let ready = |address| {
        is_ready.set(true);
        supervised.iter().for_each(Client::is_ready);
        println!("holdfast: ready on {address}");
    };
    let plane = supervised.clone().map(|client| Arc::new(client) as Arc<dyn ControlPlane>);
    let served = holdfast_node::serve(data, config, plane, &ready);
    supervised.iter().for_each(Client::stops);
    served.with_context(|| format!("cannot serve {}", data.display()))
}

/// Connects to the supervisor, and takes the settings that the cluster decides.
fn join_cluster(dir: PathBuf, config: &mut Config) -> anyhow::Result<Client> {
    let Start { client, welcome } = Client::start(RuntimeDir::at(dir))?;
    let members: Vec<String> = welcome.nodes.iter().map(|(node, found)| format!("{node}={}", found.address)).collect();
    let witness = welcome.nodes.iter().find(|(_, found)| found.role == Role::Witness);
    let witness = witness.map(|(node, _)| node.to_string()).unwrap_or_default();
    if config.has_mirror() {
        bail!("a server of a cluster has no mirror: remove mirror from {FILE_NAME}");
    }
    config.control_members = members.join(", ");
    config.control_witness = witness;
    config.node_name = welcome.node.to_string();
    config.level = serde_json::from_value(welcome.level.into()).context("the level of cluster.toml")?;
    config.synchronous_standby_away = if welcome.waits_alone { Away::Wait } else { Away::GoOn };
    tracing::info!("this server is {} of cluster {}", config.node_name, welcome.cluster);
    Ok(client)
}

/// A server of a cluster that is started by hand would know of no group, and serve as a master of its own.
fn refuse_supervised(data: &Path, config: &Config) -> anyhow::Result<()> {
    match holdfast_cluster::is_supervised(data).filter(|_| config.control_members.trim().is_empty()) {
        None => Ok(()),
        Some(mark) => bail!(
            "cannot serve {}: {mark}. Start it that way; to take the server out of its cluster for good, remove {} when no other \
             node of the cluster runs",
            data.display(),
            data.join("control").display()
        ),
    }
}
