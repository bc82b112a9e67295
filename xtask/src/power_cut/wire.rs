//! The clients of a server that speaks PostgreSQL's protocol, for the power-cut test: the recorder of the kill test.

use std::time::Duration;

use anyhow::bail;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::recorder::{Databases, Load, Recorder, Verdict};
use crate::server::Address;

/// Longer than any client takes to notice that its server is gone.
const END_MAX: Duration = Duration::from_secs(60);

pub struct Clients {
    load: Load,
    recorder: Recorder,
    runtime: Runtime,
    running: JoinSet<tokio_postgres::Error>,
}

impl Clients {
    pub fn new(databases: Databases) -> anyhow::Result<Clients> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let load = Load { databases, schema: true };
        Ok(Clients { load, recorder: Recorder::of(load), runtime, running: JoinSet::new() })
    }

    /// Forgets what was acknowledged.
    pub fn forget(&mut self) {
        self.recorder = Recorder::of(self.load);
    }

    pub fn create_tables(&self, address: Address) -> anyhow::Result<()> {
        self.runtime.block_on(self.recorder.create_tables(address))
    }

    pub fn verify(&self, address: Address) -> anyhow::Result<Verdict> {
        self.runtime.block_on(self.recorder.check(address))
    }

    pub fn begin(&mut self, address: Address, clients: u32) -> anyhow::Result<()> {
        self.running = self.runtime.block_on(self.recorder.start(address, clients))?;
        Ok(())
    }

    pub fn acknowledged(&self) -> u64 {
        self.recorder.acknowledged()
    }

    pub fn ended(&mut self) -> Option<String> {
        let running = &mut self.running;
        let ended = self.runtime.block_on(async { running.try_join_next() })?;
        Some(ended.map_or_else(|error| error.to_string(), |error| crate::recorder::error_text(&error)))
    }

    /// Waits until all have noticed that the server is gone.
    pub fn join(&mut self) -> anyhow::Result<()> {
        let running = &mut self.running;
        let all = async { while running.join_next().await.is_some() {} };
        let in_time = self.runtime.block_on(async { tokio::time::timeout(END_MAX, all).await.is_ok() });
        if !in_time {
            bail!("clients still wait for an answer {END_MAX:?} after their server was killed");
        }
        Ok(())
    }
}
