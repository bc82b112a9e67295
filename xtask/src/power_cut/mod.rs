//! Cuts the power of a loaded database again and again and looks for what was acknowledged.
//!
//! The database has its files on an unsafe disk (crate `unsafe-disk`, mounted by this process); its clients keep their
//! acknowledgements in this process's memory, where no power cut reaches. One cut:
//!
//! 1. Often it is set beforehand at which operation the power of the disk will fail, so that starts and recoveries are cut,
//!    too; else it fails at a random moment of the load. Sometimes syncs of some files are slow, so that files overtake
//!    each other.
//! 2. The server starts; what the last cut left is compared with what was acknowledged.
//! 3. Clients write until the power fails; the server gets kill -9; the power comes back and the cache is gone.
//!
//! A new data directory is made every so many cuts. After damage the backing directory, as the cut left it, is kept and
//! named, and the test goes on with a new one. The seed decides every choice of the disk and the moments; what the server
//! and the clients do in between is up to their threads, so that a seed repeats a run's kind, not its every byte.

mod bed;
mod breaks;
mod peer;
mod peer_holdfast;
mod peer_postgres;
mod peer_sqlite;
mod rounds;
pub mod sqlite_child;
mod table;
mod wire;

use std::path::PathBuf;

use anyhow::bail;
use clap::ValueEnum;
use holdfast_unsafe_disk::{Names, cannot_mount};

use crate::kill_test::fresh_seed;
use crate::{paths, server, tools};

pub use bed::remove_left_behind;
pub use breaks::Break;
pub use sqlite_child::Child as SqliteChild;
pub use table::Totals;

/// The database under test.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PeerName {
    Holdfast,
    /// PostgreSQL, from the programs on this machine.
    Postgres,
    /// SQLite in WAL mode, synchronous = FULL.
    Sqlite,
}

/// `cargo xtask power-cut`
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask power-cut
  cargo xtask power-cut --cuts 1000 --seed 7
  cargo xtask power-cut --peer postgres --cuts 30
  cargo xtask power-cut --peer sqlite --sqlite-synchronous off --cuts 10    (loses)
  cargo xtask power-cut --break skip-sync --cuts 10                         (loses)

The exit code is 1 when anything acknowledged was lost, half there, unsound or refused. Needs /dev/fuse and root.")]
pub struct Arguments {
    /// How often the power is cut
    #[arg(long, value_name = "N", default_value_t = 100)]
    cuts: u32,
    /// Decides what the disk does and when its power fails
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The database under test
    #[arg(long, value_enum, default_value = "holdfast")]
    peer: PeerName,
    /// Test a server that breaks its promise in one way, to see that the test notices
    #[arg(long = "break", value_enum, value_name = "HOW")]
    broken: Option<Break>,
    /// Test this server binary instead of building one
    #[arg(long, value_name = "FILE")]
    server: Option<PathBuf>,
    /// Clients that write
    #[arg(long, value_name = "N", default_value_t = 16)]
    clients: u32,
    /// How long the disk takes for a barrier
    #[arg(long, value_name = "N", default_value_t = 100)]
    sync_us: u64,
    /// Of a hundred sectors that a torn file loses, so many become garbage [default: 20; 0 for the others, which trust
    /// a disk to leave bytes alone that were not written]
    #[arg(long, value_name = "PERCENT")]
    garbage: Option<u32>,
    /// The disk lies: it acknowledges syncs and writes nothing
    #[arg(long)]
    lie: bool,
    /// What --peer sqlite sets synchronous to
    #[arg(long, value_name = "HOW", default_value = "full")]
    sqlite_synchronous: String,
    /// A new data directory after so many cuts
    #[arg(long, value_name = "N", default_value_t = 20)]
    fresh_every: u32,
}

/// What a run does.
pub struct Plan {
    pub cuts: u32,
    pub seed: u64,
    pub clients: u32,
    pub sync_us: u64,
    pub garbage_percent: u32,
    pub names: Names,
    pub lie: bool,
    pub fresh_every: u32,
    /// The tables are made durable by the test itself: what is to be lost are rows, not everything at once.
    pub settled: bool,
}

/// Runs the command; false when something was lost, half there, unsound or refused.
pub fn command(arguments: Arguments) -> anyhow::Result<bool> {
    if let Some(why) = cannot_mount() {
        bail!("no unsafe disk can be mounted: {why}");
    }
    if arguments.broken.is_some() && arguments.peer != PeerName::Holdfast {
        bail!("--break is for --peer holdfast");
    }
    let ours = arguments.peer == PeerName::Holdfast;
    let plan = Plan {
        cuts: arguments.cuts.max(1),
        seed: arguments.seed.unwrap_or_else(fresh_seed),
        clients: arguments.clients.max(1),
        sync_us: arguments.sync_us,
        garbage_percent: arguments.garbage.unwrap_or(if ours { 20 } else { 0 }).min(100),
        names: if ours { Names::Directory } else { Names::File },
        lie: arguments.lie,
        fresh_every: arguments.fresh_every.max(1),
        settled: arguments.broken.is_some() || arguments.lie || arguments.sqlite_synchronous != "full",
    };
    let (name, mut peer): (String, Box<dyn peer::Peer>) = match arguments.peer {
        PeerName::Holdfast => {
            let binary = match (arguments.server, arguments.broken) {
                (Some(file), _) => file,
                (None, None) => server::build()?,
                (None, Some(_)) => server::build_sabotaged()?,
            };
            let name = arguments.broken.map_or("holdfast".to_owned(), |how| format!("holdfast, broken: {how}"));
            (name, Box::new(peer_holdfast::Holdfast::new(binary, arguments.broken)?))
        }
        PeerName::Postgres => {
            tools::require(&["initdb", "postgres", "psql"])?;
            ("postgres".to_owned(), Box::new(peer_postgres::Postgres::new()?))
        }
        PeerName::Sqlite => {
            let name = format!("sqlite, synchronous = {}", arguments.sqlite_synchronous);
            (name, Box::new(peer_sqlite::Sqlite::new(&arguments.sqlite_synchronous)?))
        }
    };
    let totals = rounds::run(&name, peer.as_mut(), &plan)?;
    print!("{}", totals.table(&name));
    Ok(totals.is_clean())
}

/// A few cuts on Holdfast, for `cargo xtask test`.
pub fn smoke(binary: PathBuf, cuts: u32) -> anyhow::Result<Totals> {
    let plan = Plan {
        cuts,
        seed: fresh_seed(),
        clients: 16,
        sync_us: 100,
        garbage_percent: 20,
        names: Names::Directory,
        lie: false,
        fresh_every: cuts.div_ceil(2),
        settled: false,
    };
    rounds::run("holdfast", &mut peer_holdfast::Holdfast::new(binary, None)?, &plan)
}

/// Why the smoke cannot run here.
pub fn unavailable() -> Option<String> {
    cannot_mount()
}

/// Where what a cut left is kept when it shows damage.
fn kept() -> PathBuf {
    paths::target().join("power-cut-damage")
}
