//! `holdfast rejoin`: a deposed master comes back as a standby.

use crate::standby::{CopyBar, install, own_name, serve_command};
use holdfast_node::HoldfastToml;
use holdfast_node::data_dir::private_umask;
use holdfast_replication::{CopyTo, RejoinError, rejoin};
use std::path::PathBuf;
use std::process::ExitCode;

/// Bring a stopped server back as a standby of the one that took its place
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast rejoin --from 127.0.0.1:5434 --data ./a --name a
  holdfast serve --data ./a

Transactions that only the stopped server has are not on the new master. They are written to DIR/lost-LSN.sql before they
are cut off.")]
pub struct Arguments {
    /// The new master
    #[arg(long, value_name = "HOST:PORT")]
    from: String,
    /// Data directory of the stopped server
    #[arg(long, value_name = "DIR", default_value = "./holdfast-data")]
    data: PathBuf,
    /// The standby's name at its master [default: the name that it has had: node_name of its holdfast.toml, else the machine's]
    #[arg(long)]
    name: Option<String>,
    /// The node's files made by `holdfast cert`, where the master is on another machine; they are copied into DIR
    #[arg(long, value_name = "CERTS")]
    certificates: Option<PathBuf>,
}

pub fn run(Arguments { from, data, name, certificates }: Arguments) -> anyhow::Result<ExitCode> {
    private_umask();
    let name = name.map_or_else(|| own_name(&data), Ok)?;
    if !data.is_dir() {
        return Err(RejoinError::NoDirectory(data).into());
    }
    install(certificates.as_deref(), &data)?;
    let progress = CopyBar::new()?;
    let to = CopyTo { dir: &data, name: &name };
    let rejoined = rejoin(&from, to, &HoldfastToml, &|done| progress.show(done));
    progress.end();
    let rejoined = rejoined?;
    match (rejoined.lost, rejoined.unsure) {
        (_, Some((lsn, path, transactions))) => println!(
            "holdfast: {from} no longer keeps the trail that this server's would be compared with; all {transactions} \
             transactions that it still had, from LSN {lsn} on, are in {}: those of the time before the promotion are on \
             {from}, later ones are not. What it had recycled itself, before that LSN, is not in the file: if it was \
             written after the promotion, only this server's archive has it, where there is one",
            path.display()
        ),
        (Some((lsn, path, transactions)), None) => println!(
            "holdfast: from LSN {lsn} on {from} has another history; {transactions} transactions that only this server \
             had are in {}",
            path.display()
        ),
        (None, None) if rejoined.earlier.is_empty() => {
            println!("holdfast: {from} has everything that this server had");
        }
        (None, None) => println!("holdfast: {from} has everything that this server still has"),
    }
    for path in &rejoined.earlier {
        println!("holdfast: transactions that an earlier rejoin found only on this server are in {}", path.display());
    }
    if let Some(bytes) = rejoined.copied_bytes {
        println!("holdfast: the databases were copied again, {bytes} bytes came over the link");
    }
    println!("holdfast: start it as the standby {name} with: {}", serve_command(&data)?);
    Ok(ExitCode::SUCCESS)
}
