//! The bytes of one simulated file: what the page cache shows, what the device has, and what is between them.

use super::Seeded;

/// The number of bytes that a disk writes as a unit.
const SECTOR_BYTES: usize = 512;

enum Pending {
    Write { offset: usize, bytes: Vec<u8> },
    Len(usize),
}

#[derive(Default)]
pub struct FileBytes {
    /// The bytes that buffered reads see.
    pub cached: Vec<u8>,
    /// The bytes that certainly survive a power cut.
    durable: Vec<u8>,
    /// Writes since the last sync, in order; each sector of each may or may not survive.
    pending: Vec<Pending>,
}

/// What a power cut did to a file.
#[derive(Default)]
pub struct Torn {
    pub kept_sectors: u64,
    pub dropped_sectors: u64,
    pub garbage_sectors: u64,
}

fn store(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[offset..end].copy_from_slice(bytes);
}

impl FileBytes {
    pub fn write(&mut self, offset: usize, bytes: &[u8]) {
        store(&mut self.cached, offset, bytes);
        self.pending.push(Pending::Write { offset, bytes: bytes.to_vec() });
    }

    pub fn set_len(&mut self, len_bytes: usize) {
        self.cached.resize(len_bytes, 0);
        self.pending.push(Pending::Len(len_bytes));
    }

    pub fn sync(&mut self) {
        for pending in self.pending.drain(..) {
            match pending {
                Pending::Write { offset, bytes } => store(&mut self.durable, offset, &bytes),
                Pending::Len(len_bytes) => self.durable.resize(len_bytes, 0),
            }
        }
    }

    /// Fails a sync as Linux does: the pages stay in the cache, marked clean, and never reach the device.
    pub fn fail_sync(&mut self) {
        self.pending.retain(|pending| matches!(pending, Pending::Len(_)));
    }

    /// Copies the bytes that a reader sees at `offset` to `buf`. Returns their number.
    pub fn read(&self, offset: usize, buf: &mut [u8], direct: bool) -> usize {
        let with_pending;
        let content = match (direct, self.pending.is_empty()) {
            (false, _) => &self.cached,
            (true, true) => &self.durable,
            (true, false) => {
                with_pending = self.device();
                &with_pending
            }
        };
        let from = content.get(offset..).unwrap_or(&[]);
        let len = from.len().min(buf.len());
        buf[..len].copy_from_slice(&from[..len]);
        len
    }

    /// The bytes that the device returns: the durable ones and those in its own cache.
    pub fn device(&self) -> Vec<u8> {
        let mut content = self.durable.clone();
        for pending in &self.pending {
            match pending {
                Pending::Write { offset, bytes } => store(&mut content, *offset, bytes),
                Pending::Len(len_bytes) => content.resize(*len_bytes, 0),
            }
        }
        content
    }

    /// Changes the bytes everywhere without notice, as damage would.
    pub fn overwrite(&mut self, offset: usize, bytes: &[u8]) {
        self.sync();
        store(&mut self.durable, offset, bytes);
        self.cached = self.durable.clone();
    }

    /// Decides for every unsynced sector whether it reached the device, did not, or became garbage.
    pub fn lose_power(&mut self, random: &mut Seeded) -> Torn {
        let mut torn = Torn::default();
        for pending in std::mem::take(&mut self.pending) {
            match pending {
                Pending::Len(len_bytes) if random.one_in(2) => self.durable.resize(len_bytes, 0),
                Pending::Len(_) => {}
                Pending::Write { offset, bytes } => self.tear(offset, &bytes, random, &mut torn),
            }
        }
        self.cached = self.durable.clone();
        torn
    }

    fn tear(&mut self, offset: usize, bytes: &[u8], random: &mut Seeded, torn: &mut Torn) {
        // Some writes arrive whole, some not at all, the others sector by sector.
        let whole = random.below(4);
        for (index, sector) in bytes.chunks(SECTOR_BYTES).enumerate() {
            let at = offset + index * SECTOR_BYTES;
            let keep = if whole < 2 { whole == 0 } else { random.one_in(2) };
            if keep {
                torn.kept_sectors += 1;
                store(&mut self.durable, at, sector);
            } else if whole >= 2 && random.one_in(16) {
                torn.garbage_sectors += 1;
                let garbage: Vec<u8> = sector.iter().map(|_| random.draw() as u8).collect();
                store(&mut self.durable, at, &garbage);
            } else {
                torn.dropped_sectors += 1;
            }
        }
    }
}
