//! `holdfast console`: prints the address of a running server's console, with a login that is good once.

use std::path::PathBuf;

/// Print the address of a running server's console, with a login for this machine's operator
#[derive(clap::Args)]
#[command(after_help = "\
Example:
  holdfast console --data ./holdfast-data

The address logs in as the role holdfast, once, within one minute. Only the user that runs the server can make one. The console is
served where `http_listen` in holdfast.toml says, for example \"127.0.0.1:8008\"; roles with a password and pg_monitor can log
in there as well.")]
pub struct Arguments {
    /// Data directory of the running server
    #[arg(long, value_name = "DIR", default_value = "./holdfast-data")]
    data: PathBuf,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    println!("{}", holdfast_node::console_url(&arguments.data)?);
    Ok(())
}
