//! The options of `holdfast-lab`, and what they mean to a study. People start it as `holdfast lab`, so its help says that.

use crate::own::Workload;
use anyhow::Context;
use clap::ValueEnum;
use holdfast_lab::{Case, Configuration, DiskChoice, Peer, SpeedRow, StandbyPart, Study, StudyName};
use std::path::PathBuf;

/// Measure this machine: run one of the studies and write a report
#[derive(clap::Parser)]
#[command(name = "holdfast-lab", bin_name = "holdfast lab", version)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, disable_help_subcommand = true)]
#[command(after_help = "\
Examples:
  holdfast lab authorization
  holdfast lab authorization --peer postgres --seconds 10
  holdfast lab authorization --disk-sync-ms 6 --only unaudited,buffered,audited
  holdfast lab authorization --only autotmf,audited-wire-pipeline --clients 1,8,40
  holdfast lab interactive --peer postgres
  holdfast lab interactive --peer postgres --only tpcb,memory --scale 10 --seconds 10
  holdfast lab commit --peer postgres
  holdfast lab commit --disk real --clients 1,40
  holdfast lab standby --peer postgres
  holdfast lab standby --only levels,distance --clients 40 --seconds 5
  holdfast lab standby --only governor --seconds 300
  holdfast lab speed --peer postgres
  holdfast lab speed --peer postgres --only one-message,insert-80 --seconds 10 --out speed-report

DIR/report.html shows the charts, DIR/results.json holds every figure. Databases and servers are private to the run
and are removed at its end, also after Ctrl-C.")]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Option<Subcommand>,
    /// The study to run
    #[arg(value_enum, required = true)]
    study: Option<StudyArg>,
    /// Seconds each point is measured; loads past a standby's capacity run for 20 times as long, up to five minutes
    /// [default: 5; commit: 2; standby: 3]
    #[arg(long, value_name = "N")]
    seconds: Option<f64>,
    /// Client counts for the peak rates; the rising load uses the largest [default: 40; 40,400 in process where syncs
    /// are slowed; commit: 1,10,20,40,80; standby: 40,80]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    clients: Vec<usize>,
    /// Rows in the transaction log at the start [default: 30000 in process and for standby, 300000 over the
    /// wire]
    #[arg(long, value_name = "N")]
    log_rows: Option<u64>,
    /// Compare with a server started from the programs on this machine
    #[arg(long, value_enum)]
    peer: Option<PeerArg>,
    /// Make each sync of the in-process configurations take this much longer, in milliseconds
    #[arg(long, value_name = "N", default_value_t = 0)]
    disk_sync_ms: u64,
    /// Measure these only: configurations of authorization, cases of interactive (authorization, tpcb, think-time,
    /// sleeper, memory, long-transaction), parts of standby (levels, distance, own-cores, catch-up, large, report,
    /// three-masters, governor), rows of speed (one-message, pipeline, five-messages, five-messages-loaded, tpcb-1,
    /// tpcb-40, insert-1, insert-80, row-by-key, group-by, pause)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<String>,
    /// speed: seconds of load on both servers before five-messages-loaded [default: 180]
    #[arg(long, value_name = "N")]
    load_seconds: Option<f64>,
    /// interactive: the larger scale of TPC-B [default: 40]
    #[arg(long, value_name = "N")]
    scale: Option<u32>,
    /// commit: the disks to measure. The paper's is a file system of this program with 13 ms a sync; it needs root and
    /// /dev/fuse and is left out of both where it cannot be mounted
    #[arg(long, value_enum, default_value_t = DiskArg::Both)]
    disk: DiskArg,
    /// commit: every delay with every combination of write cache and barrier; an hour with a peer
    #[arg(long)]
    full: bool,
    /// interactive, commit, standby, speed: small sizes, to see that it runs; its figures mean little
    #[arg(long)]
    quick: bool,
    /// Directory for report.html and results.json
    #[arg(long, value_name = "DIR", default_value = "lab-report")]
    out: PathBuf,
    /// An existing directory on the disk to be measured; the databases are made in it and removed again
    #[arg(long = "data", alias = "data-dir", value_name = "DIR", default_value = "/var/tmp")]
    data_dir: PathBuf,
    /// The server program to measure [default: holdfast in the directory of holdfast-lab]
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Print the results as JSON instead of a summary
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
pub enum Subcommand {
    #[command(hide = true)]
    Workload(Workload),
}

#[derive(Clone, Copy, ValueEnum)]
enum StudyArg {
    /// Audited transactions: a card authorization under rising load.
    Authorization,
    /// Transactions of several messages: rates, think time, a sleeper, memory, a long one.
    Interactive,
    /// Durable commits by commit delay, write cache, barrier and sync method; about ten minutes.
    Commit,
    /// A hot standby: what each level costs, here and at a distance, catch-up, a large transaction, a load past its
    /// capacity, reports on it, three masters to one node.
    Standby,
    /// Rates and processor time against PostgreSQL, row by row, with the goals and how earlier runs differ.
    Speed,
}

#[derive(Clone, Copy, ValueEnum)]
enum DiskArg {
    Paper,
    Real,
    Both,
}

#[derive(Clone, Copy, ValueEnum)]
enum PeerArg {
    /// PostgreSQL, found in /usr/lib/postgresql or on the PATH.
    Postgres,
}

/// What the names of --only mean, in the study's words.
fn named<T: Copy>(names: &[String], all: &[T], name_of: fn(T) -> &'static str) -> anyhow::Result<Vec<T>> {
    let find = |name: &String| {
        let found = all.iter().copied().find(|of| name_of(*of) == *name);
        let known = || all.iter().map(|of| name_of(*of)).collect::<Vec<_>>().join(", ");
        found.with_context(|| format!("--only: this study has no {name}; there are {}", known()))
    };
    names.iter().map(find).collect()
}

/// The study that the options describe; an error is wrong usage.
pub fn study(args: Arguments) -> anyhow::Result<Study> {
    let (mut only, mut only_cases, mut only_parts, mut only_rows) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let name = match args.study.context("no study is named")? {
        StudyArg::Authorization => {
            only = named(&args.only, &Configuration::ALL, Configuration::name)?;
            StudyName::Authorization
        }
        StudyArg::Interactive => {
            only_cases = named(&args.only, &Case::ALL, Case::name)?;
            StudyName::Interactive
        }
        StudyArg::Standby => {
            only_parts = named(&args.only, &StandbyPart::ALL, StandbyPart::name)?;
            StudyName::Standby
        }
        StudyArg::Speed => {
            only_rows = named(&args.only, &SpeedRow::ALL, SpeedRow::name)?;
            StudyName::Speed
        }
        StudyArg::Commit => {
            anyhow::ensure!(args.only.is_empty(), "--only: the study commit has no parts to choose from; see --disk");
            StudyName::Commit
        }
    };
    Ok(Study {
        name,
        seconds: args.seconds.unwrap_or(match name {
            StudyName::Authorization | StudyName::Interactive | StudyName::Speed => 5.0,
            StudyName::Commit => 2.0,
            StudyName::Standby => 3.0,
        }),
        clients: args.clients,
        log_rows: args.log_rows,
        peer: args.peer.map(|PeerArg::Postgres| Peer::Postgres),
        disk_sync_ms: args.disk_sync_ms,
        only,
        only_cases,
        only_parts,
        only_rows,
        load_seconds: args.load_seconds,
        scale: args.scale,
        disks: match args.disk {
            DiskArg::Paper => DiskChoice::Paper,
            DiskArg::Real => DiskChoice::Real,
            DiskArg::Both => DiskChoice::Both,
        },
        full: args.full,
        quick: args.quick,
        out: args.out,
        data_dir: args.data_dir,
        json: args.json,
        program: server(args.server)?,
        command: command_line(),
    })
}

/// The server program: the one that was named, or the one in the directory of this program.
pub fn server(named: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    match named {
        Some(named) => Ok(named),
        None => {
            Ok(std::env::current_exe().context("cannot find the directory of this program")?.with_file_name("holdfast"))
        }
    }
}

/// The command that repeats the run.
fn command_line() -> String {
    std::iter::once("holdfast lab".to_string()).chain(std::env::args().skip(1)).collect::<Vec<_>>().join(" ")
}
