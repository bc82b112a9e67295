//! What the engine counts, as plain numbers: the engine fills it, metrics and the console show it.

use crate::histogram::HistogramFigures;

/// Counters since the start, and what is kept now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineFigures {
    /// Transactions that wrote, whose batch was handed to the trail.
    pub transactions: u64,
    pub batches: u64,
    pub boxcars: u64,
    /// Bytes of records, and bytes on disk with their padding.
    pub trail_body_bytes: u64,
    pub trail_disk_bytes: u64,
    pub boxcar_commits: HistogramFigures,
    /// In microseconds, as the next.
    pub sync_times: HistogramFigures,
    /// How long batches waited at the gate that did not pass at once.
    pub gate_waits: HistogramFigures,
    pub gate_waiting: u64,
    /// Why nothing passes.
    pub held: Option<String>,
    pub commit_delay_us: u64,
    pub governed_us: u64,
    pub segment_waits: u64,
    pub segments: u64,
    pub segment_bytes: u64,
    /// Bytes of the trail from the oldest position that can be read to the end.
    pub retained_bytes: u64,
    pub checkpoints: u64,
    pub checkpoint_pages: u64,
    /// How long a recovery would replay, and the limit; then the same in bytes.
    pub redo_time_us: u64,
    pub redo_time_max_us: u64,
    pub redo_bytes: u64,
    pub redo_bytes_max: u64,
    /// Page versions in memory and in scratch, and the limit of each open database.
    pub memory_bytes: u64,
    pub memory_bytes_max: u64,
    pub scratch_bytes: u64,
    pub open_databases: u64,
    pub syncs: u64,
    pub disk_read_bytes: u64,
    pub disk_written_bytes: u64,
}
