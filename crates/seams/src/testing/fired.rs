//! Which faults really happened on a simulated disk: a test that injects a fault asserts that it happened.

/// How often each fault happened.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Fired {
    pub power_cuts: u64,
    pub kept_sectors: u64,
    pub dropped_sectors: u64,
    pub garbage_sectors: u64,
    pub lost_names: u64,
    pub failed_writes: u64,
    pub failed_syncs: u64,
    pub failed_reads: u64,
    pub disk_full: u64,
    pub misdirected_writes: u64,
    pub flipped_reads: u64,
    pub rotten_bits: u64,
    pub lied_syncs: u64,
}

impl Fired {
    /// Adds the counts of another disk.
    pub fn add(&mut self, other: &Fired) {
        self.power_cuts += other.power_cuts;
        self.kept_sectors += other.kept_sectors;
        self.dropped_sectors += other.dropped_sectors;
        self.garbage_sectors += other.garbage_sectors;
        self.lost_names += other.lost_names;
        self.failed_writes += other.failed_writes;
        self.failed_syncs += other.failed_syncs;
        self.failed_reads += other.failed_reads;
        self.disk_full += other.disk_full;
        self.misdirected_writes += other.misdirected_writes;
        self.flipped_reads += other.flipped_reads;
        self.rotten_bits += other.rotten_bits;
        self.lied_syncs += other.lied_syncs;
    }
}
