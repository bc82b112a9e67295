//! From a data directory to a server, and back down again.

use crate::activity::{Activities, Watcher};
use crate::automatic_stats::AutomaticStats;
use crate::config::Config;
use crate::connect;
use crate::database::Databases;
use crate::descriptors;
use crate::session::{Factory, Scratch};
use holdfast_engine::{CloseError, Engine, OpenError, scratch_dir};
use holdfast_wire::{Server, ServerError};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Why a server does not start, or did not stop cleanly.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error("the clean stop did not complete: {0}; nothing acknowledged is lost, the next start recovers")]
    Close(#[from] CloseError),
    #[error("cannot start: {0}")]
    Start(#[from] io::Error),
}

/// Called with the address once clients can connect.
pub type Ready<'a> = &'a dyn Fn(SocketAddr);

/// Serves the directory until SIGTERM or SIGINT, then stops cleanly. Blocks.
pub fn serve(dir: &Path, mut config: Config, ready: Ready<'_>) -> Result<(), NodeError> {
    // The socket first: an address in use is found out before a recovery that may take a while.
    config.connections_max = descriptors::raise(config.connections_max);
    let server = Server::bind(config.listen, config.limits(), holdfast_sql::types::output)?;
    let address = server.address()?;
    let slot = connect::EngineSlot::default();
    let mut options = config.options();
    let stats = Arc::new(AutomaticStats::default());
    let activities = Arc::new(Activities::default());
    let watcher = Watcher { activities: activities.clone(), engine: slot.clone(), automatic: stats.clone() };
    options.connect = Some(connect::hook(watcher));
    let engine = Engine::open(dir, options)?;
    *slot.write() = Some(engine.clone());
    let recovered = engine.recovered();
    tracing::info!(dir = %dir.display(), end = %recovered.end, cut = recovered.cut.is_some(), "data directory opened");
    let scratch = Scratch { dir: scratch_dir(dir), bytes_max: config.scratch_bytes_max };
    let factory = Factory {
        databases: Arc::new(Databases::new(engine.clone())),
        configured: config.parameters(),
        scratch: Arc::new(scratch),
        stats,
        activities,
    };
    let served = run(server, factory, workers(&config), || ready(address));
    *slot.write() = None;
    let closed = engine.close();
    served?;
    closed?;
    tracing::info!("stopped");
    Ok(())
}

fn workers(config: &Config) -> usize {
    match config.workers {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    }
}

fn run(server: Server, factory: Factory, workers: usize, ready: impl Fn()) -> Result<(), NodeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (stop, stopped) = watch::channel(false);
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let wait_for_signal = async {
            tokio::select! {
                _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
                _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
            }
            stop.send_replace(true);
        };
        ready();
        let (served, ()) = tokio::join!(server.run(factory, workers, stopped), wait_for_signal);
        served.map_err(NodeError::from)
    })
}
