//! `holdfast standby check`: whether a master and a standby can be paired, and what is missing.

use crate::exit::Exit;
use comfy_table::{Table, presets};
use holdfast_node::HoldfastToml;
use holdfast_replication::{Certificates, CopyTo, StandbyFile, check_pair};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  holdfast standby check --from 127.0.0.1:5433 --data ./b --name b     before `standby create`
  holdfast standby check --data ./b                                    of a standby that is stopped

Nothing is started. Exit code 0: they can be paired; 1: something is missing, which is listed.")]
pub struct Arguments {
    /// The master [default: the one that the directory's standby.toml names]
    #[arg(long, value_name = "HOST:PORT")]
    from: Option<String>,
    /// The standby's data directory, which need not exist yet
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The standby's name at its master [default: as in standby.toml, else the last part of DIR]
    #[arg(long)]
    name: Option<String>,
    /// The node's files made by `holdfast cert`, where the master is on another machine [default: those in DIR]
    #[arg(long, value_name = "CERTS")]
    certificates: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let file = StandbyFile::read(&arguments.data)?;
    let from = arguments.from.clone().or_else(|| file.as_ref().map(|file| file.from.clone()));
    let Some(from) = from else {
        anyhow::bail!("{} names no master; name one with --from HOST:PORT", arguments.data.display());
    };
    let last = || arguments.data.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let name = arguments.name.clone().or_else(|| file.map(|file| file.name)).unwrap_or_else(last);
    let certificates = arguments.certificates.as_deref().map(Certificates::read).transpose()?;
    let checks = check_pair(&from, CopyTo { dir: &arguments.data, name: &name }, certificates, &HoldfastToml);
    let fit = checks.iter().all(|check| check.ok);
    if arguments.json {
        println!("{}", serde_json::json!({ "can_be_paired": fit, "checks": checks }));
    } else {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(["", "check", "found"]);
        for check in &checks {
            table.add_row([if check.ok { "ok" } else { "MISSING" }, check.check, &check.found]);
        }
        println!("{table}");
        for check in checks.iter().filter(|check| !check.ok) {
            println!("{}: {}", check.check, check.advice);
        }
        println!("{}", if fit { "they can be paired" } else { "they cannot be paired yet" });
    }
    Ok(Exit::of_check(fit).into())
}
