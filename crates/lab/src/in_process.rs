//! Runs the configurations that need no socket, each on a fresh copy of the same pre-filled database.

use crate::audited::Audited;
use crate::bench::{InProcess, Plan};
use crate::configuration::Configuration;
use crate::drive::Target;
use crate::ffi::SlowVfs;
use crate::machine;
use crate::prefill;
use crate::progress::Progress;
use crate::results::{ConfigurationResult, Fact};
use crate::stock::{Stock, StockMode};
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The pre-filled database and what the configurations share.
pub struct InProcessRuns<'a> {
    /// Private to this run; removed at its end.
    dir: &'a Path,
    template: PathBuf,
    log_rows: u64,
    sync_delay: Duration,
    vfs: SlowVfs,
    plan: &'a Plan,
    progress: &'a Progress,
}

impl<'a> InProcessRuns<'a> {
    /// Builds the pre-filled database in `dir`.
    pub fn prepare(
        dir: &'a Path,
        log_rows: u64,
        sync_delay: Duration,
        plan: &'a Plan,
        progress: &'a Progress,
    ) -> anyhow::Result<InProcessRuns<'a>> {
        let file_bytes = prefill::TERMINAL_FILE_BYTES + log_rows * prefill::LOG_ROW_FILE_BYTES;
        // The built file, its copy, and a journal or WAL of the copy.
        machine::require_free(dir, 3 * file_bytes)?;
        let template = dir.join("template.db");
        progress.part("building the pre-filled database");
        prefill::build(&template, log_rows, &mut |rows| {
            progress.now(format!("building the pre-filled database: {rows} of {log_rows} log rows"));
        })?;
        let vfs = SlowVfs::register("holdfast-lab", sync_delay)?;
        Ok(InProcessRuns { dir, template, log_rows, sync_delay, vfs, plan, progress })
    }

    /// Measures one configuration.
    pub fn run(&self, configuration: Configuration) -> anyhow::Result<ConfigurationResult> {
        self.progress.part(configuration.label());
        let result = match stock_mode(configuration) {
            Some(mode) => self.run_stock(configuration, mode),
            None => self.run_audited(configuration),
        };
        result.with_context(|| format!("cannot measure {}", configuration.name()))
    }

    fn run_stock(&self, configuration: Configuration, mode: StockMode) -> anyhow::Result<ConfigurationResult> {
        let dir = tempfile::Builder::new().prefix(configuration.name()).tempdir_in(self.dir)?;
        let stock = Stock::open(&self.template, &dir.path().join("lab.db"), mode, self.vfs)?;
        self.measure(configuration, &stock, dir.path(), mode.settings())
    }

    fn run_audited(&self, configuration: Configuration) -> anyhow::Result<ConfigurationResult> {
        let dir = tempfile::Builder::new().prefix(configuration.name()).tempdir_in(self.dir)?;
        let audited = Audited::open(&dir.path().join("data"), self.log_rows, self.sync_delay, &|rows| {
            self.progress.now(format!("filling the audited database: {rows} of {} log rows", self.log_rows));
        })?;
        self.measure(configuration, &audited, dir.path(), Audited::settings())
    }

    fn measure(
        &self,
        configuration: Configuration,
        target: &dyn Target,
        dir: &Path,
        settings: Vec<Fact>,
    ) -> anyhow::Result<ConfigurationResult> {
        let (peaks, points) = self.plan.run(&mut InProcess(target), configuration.label(), dir, self.progress)?;
        target.settle()?;
        let log_rows_after = target.log_rows()?;
        Ok(ConfigurationResult {
            configuration,
            skipped: None,
            settings,
            log_rows: (self.log_rows, log_rows_after),
            peaks,
            points,
        })
    }
}

fn stock_mode(configuration: Configuration) -> Option<StockMode> {
    Some(match configuration {
        Configuration::Unaudited => StockMode::Unaudited,
        Configuration::Buffered => StockMode::Buffered,
        Configuration::Nainsert => StockMode::Nainsert,
        Configuration::SqliteFull => StockMode::WalFull,
        Configuration::SqliteNormal => StockMode::WalNormal,
        Configuration::SqliteOff => StockMode::WalOff,
        Configuration::CaptureTriggers => StockMode::CaptureTriggers,
        _ => return None,
    })
}
