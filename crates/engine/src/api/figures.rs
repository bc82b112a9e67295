//! What the engine counts, as plain numbers for metrics and the console: see [`EngineFigures`].
//!
//! Reading takes short locks that no thread holds during I/O. Databases that are not open count nothing.

use crate::api::engine::Engine;
use holdfast_store::pages::PAGE_BYTES;
use holdfast_types::figures::EngineFigures;
use std::sync::atomic::Ordering;

impl Engine {
    /// See [`EngineFigures`].
    pub fn figures(&self) -> EngineFigures {
        let engine = self.engine();
        let (trail, disk, stats, gate) =
            (engine.trail.stats(), engine.options.disk.stats(), &engine.stats, engine.gate.info());
        let open = self.open_databases();
        let pages: Vec<_> = open.iter().map(|database| database.volume().store().stats()).collect();
        let segment_bytes = engine.trail.segment_bytes();
        EngineFigures {
            transactions: stats.transactions.load(Ordering::Relaxed),
            batches: stats.batches.load(Ordering::Relaxed),
            boxcars: trail.boxcars,
            trail_body_bytes: trail.body_bytes,
            trail_disk_bytes: trail.disk_bytes,
            boxcar_commits: engine.trail.boxcar_commits(),
            sync_times: engine.trail.sync_times(),
            gate_waits: engine.gate.waits(),
            gate_waiting: gate.batches as u64,
            held: gate.held,
            commit_delay_us: trail.delayed_us,
            governed_us: stats.governed_us.load(Ordering::Relaxed),
            segment_waits: trail.segment_waits,
            segments: engine.trail.segments().all as u64,
            segment_bytes,
            retained_bytes: engine.trail.durable().0.saturating_sub(engine.trail.first().0),
            checkpoints: stats.checkpoints.load(Ordering::Relaxed),
            checkpoint_pages: stats.checkpoint_pages.load(Ordering::Relaxed),
            redo_time_us: engine.redo.time_us.load(Ordering::Relaxed),
            redo_time_max_us: engine.options.redo_time_max.as_micros() as u64,
            redo_bytes: engine.redo.bytes.load(Ordering::Relaxed),
            redo_bytes_max: engine.options.redo_bytes_max,
            memory_bytes: pages.iter().map(|of| of.memory_pages * PAGE_BYTES as u64).sum(),
            memory_bytes_max: engine.options.memory_bytes_max,
            scratch_bytes: pages.iter().map(|of| of.scratch_bytes).sum(),
            open_databases: open.len() as u64,
            syncs: disk.syncs,
            disk_read_bytes: disk.read_bytes,
            disk_written_bytes: disk.written_bytes,
        }
    }
}
