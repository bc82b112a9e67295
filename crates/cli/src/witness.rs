//! `holdfast witness`: the third vote of a pair; it holds no data.

use crate::logs;
use anyhow::{Context as _, bail};
use holdfast_control::{Config, ControlNode, LeaseTerms, Machinery, NodeId, Role, TcpTransport};
use holdfast_node::data_dir::private_umask;
use holdfast_replication::{Certificates, secure_members};
use holdfast_seams::RealDisk;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;

/// Run the witness of a pair: it votes on who is master and holds no data
#[derive(clap::Args)]
#[command(after_help = "\
Example, with the two servers' control addresses and its own:
  holdfast witness --data ./witness --listen 127.0.0.1:7003 --members a=127.0.0.1:7001,b=127.0.0.1:7002,w=127.0.0.1:7003

All three members must be reachable once for the group to be founded; after that any two are enough. A witness whose
directory was lost is started with an empty one: the other two admit it again. Never restore an old copy of the directory.
When it listens, `holdfast: witness NAME on HOST:PORT` is printed; logs go to stderr. SIGTERM stops it. When its disk fails
it ends with exit code 1.")]
pub struct Arguments {
    /// Directory for its vote and log; made when it does not exist
    #[arg(long, value_name = "DIR", default_value = "./holdfast-witness")]
    data: PathBuf,
    /// Address and port for the other members
    #[arg(long, value_name = "HOST:PORT")]
    listen: String,
    /// All three members, this one too, with the addresses of their control planes
    #[arg(long, value_name = "NAME=HOST:PORT,...", value_delimiter = ',', required = true)]
    members: Vec<String>,
    /// Which of the members this one is [default: the one with the address of --listen]
    #[arg(long, value_name = "NAME")]
    name: Option<NodeId>,
    /// Its files made by `holdfast cert`, where the members are on several machines [default: DIR/certificates, if there]
    #[arg(long, value_name = "CERTS")]
    certificates: Option<PathBuf>,
    /// Write logs as JSON, one object per line
    #[arg(long)]
    log_json: bool,
}

pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    private_umask();
    logs::start(arguments.log_json, None)?;
    let addresses = addresses(&arguments.members)?;
    let node = own_name(&arguments, &addresses)?;
    let role = |name: &NodeId| if *name == node { Role::Witness } else { Role::Data };
    let members = addresses.keys().map(|name| (*name, role(name))).collect();
    let certificates = match &arguments.certificates {
        Some(dir) => Some(Certificates::read(dir)?),
        None => Certificates::of(&arguments.data)?,
    };
    let config =
        Config { node, dir: arguments.data, members, lease: LeaseTerms::default(), by_pulses: false, link: None };
    let secure = secure_members(certificates.as_ref(), &addresses);
    let transport = TcpTransport::bind(&arguments.listen, addresses, secure)?;
    let address = transport.address();
    let mut machinery = Machinery::real(Arc::new(RealDisk::new()), Arc::new(transport));
    let (stop, stopped) = mpsc::channel();
    let failed = stop.clone();
    // The receiver is gone when the witness is stopping.
    machinery.on_failure = Arc::new(move |error| failed.send(Err(error.to_string())).unwrap_or_default());
    let control = ControlNode::start(config, machinery).context("cannot start the witness")?;
    // Gone, too, when a second signal comes.
    ctrlc::set_handler(move || stop.send(Ok(())).unwrap_or_default()).context("catching signals")?;
    println!("holdfast: witness {node} on {address}");
    let ended = stopped.recv().context("waiting for a signal")?;
    drop(control);
    ended.map_err(anyhow::Error::msg)
}

fn addresses(members: &[String]) -> anyhow::Result<BTreeMap<NodeId, String>> {
    let mut addresses = BTreeMap::new();
    for member in members {
        let Some((name, address)) = member.split_once('=') else {
            bail!("--members: \"{member}\" is not NAME=HOST:PORT");
        };
        let name: NodeId = name.trim().parse().context("--members")?;
        if addresses.insert(name, address.trim().to_owned()).is_some() {
            bail!("--members: {name} is there twice; each member has its own name");
        }
    }
    Ok(addresses)
}

fn own_name(arguments: &Arguments, addresses: &BTreeMap<NodeId, String>) -> anyhow::Result<NodeId> {
    if let Some(name) = arguments.name {
        return Ok(name);
    }
    let mine = addresses.iter().find(|(_, address)| **address == arguments.listen);
    let Some((name, _)) = mine else {
        bail!("no member has the address {}; name this one with --name", arguments.listen);
    };
    Ok(*name)
}
