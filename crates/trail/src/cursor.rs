//! Reads boxcars out of one segment file, in large aligned reads past the page cache.

use std::path::{Path, PathBuf};

use holdfast_seams::{AlignedBuf, Disk, DiskFile, OpenHow, round_up_to_block};
use holdfast_types::Lsn;

use crate::boxcar::{Expected, FORMAT_VERSION, Flaw, HEAD_BYTES, Head, VERSION, check_whole, read_head};
use crate::bytes::put;
use crate::error::TrailError;
use crate::layout::{BLOCK, Layout, TrailId};

/// Bytes requested from the device in one read.
const READ_BYTES: u64 = 1 << 20;

pub struct SegmentCursor {
    file: Box<dyn DiskFile>,
    pub path: PathBuf,
    pub segment: u32,
    layout: Layout,
    trail_id: TrailId,
    /// Nothing at or after this offset is read, because it may be being written.
    limit: u64,
    buf: AlignedBuf,
    buf_offset: u64,
    buf_filled: u64,
}

impl SegmentCursor {
    pub fn open(
        disk: &dyn Disk,
        path: &Path,
        segment: u32,
        layout: Layout,
        trail_id: TrailId,
    ) -> Result<SegmentCursor, TrailError> {
        let file = disk.open(path, &OpenHow::READ_DIRECT).map_err(TrailError::io("open", path))?;
        let path = path.to_path_buf();
        let (buf, limit) = (AlignedBuf::default(), layout.segment_bytes);
        Ok(SegmentCursor { file, path, segment, layout, trail_id, limit, buf, buf_offset: 0, buf_filled: 0 })
    }

    /// Lets the cursor read up to `offset`, which must not shrink.
    pub fn set_limit(&mut self, offset: u64) {
        self.limit = offset.min(self.layout.segment_bytes);
    }

    /// Reads `len` bytes from a block boundary on; `None` when the file or the limit ends before that.
    pub fn bytes(&mut self, offset: u64, len: u64) -> Result<Option<&[u8]>, TrailError> {
        if offset + len > self.limit {
            return Ok(None);
        }
        let held = self.buf_offset <= offset && offset + len <= self.buf_offset + self.buf_filled;
        if !held {
            let want = round_up_to_block(len).max(READ_BYTES).min(self.limit - offset);
            self.buf.grow_to(want as usize);
            let into = &mut self.buf.as_mut_slice()[..want as usize];
            let read = self.file.read_at(into, offset).map_err(TrailError::io("read", &self.path))?;
            (self.buf_offset, self.buf_filled) = (offset, read as u64);
            if (read as u64) < len {
                return Ok(None);
            }
        }
        let start = (offset - self.buf_offset) as usize;
        Ok(Some(&self.buf.as_slice()[start..start + len as usize]))
    }

    /// Reads the boxcar that belongs at `offset`, with its body, or reports its flaw.
    pub fn boxcar(&mut self, offset: u64) -> Result<Result<(Head, &[u8]), Flaw>, TrailError> {
        Ok(self.whole(offset)?.map(|(head, whole)| (head, &whole[HEAD_BYTES..])))
    }

    /// Reads the boxcar at `offset` with the bytes of its head before those of its body, or reports its flaw.
    pub fn whole(&mut self, offset: u64) -> Result<Result<(Head, &[u8]), Flaw>, TrailError> {
        let expected = self.expected(offset);
        let Some(block) = self.bytes(offset, BLOCK)? else { return Ok(Err(Flaw::EndOfFile)) };
        let head = match read_head(block, &expected) {
            Ok(head) => head,
            Err(flaw) => return Ok(Err(flaw)),
        };
        let len = HEAD_BYTES as u64 + u64::from(head.body_bytes);
        let Some(bytes) = self.bytes(offset, round_up_to_block(len))? else { return Ok(Err(Flaw::EndOfFile)) };
        let bytes = &bytes[..len as usize];
        Ok(check_whole(bytes).map(|()| (head, bytes)))
    }

    /// Whether a boxcar that claims a newer format is valid apart from that claim. Then a bit of the version was
    /// damaged, and advice to use a newer program would be wrong.
    pub fn version_is_rotten(&mut self, offset: u64) -> Result<bool, TrailError> {
        let expected = self.expected(offset);
        let Some(block) = self.bytes(offset, BLOCK)? else { return Ok(false) };
        let mut known = block.to_vec();
        put(&mut known, VERSION, &FORMAT_VERSION.to_le_bytes());
        let Ok(head) = read_head(&known, &expected) else { return Ok(false) };
        let len = HEAD_BYTES as u64 + u64::from(head.body_bytes);
        let Some(bytes) = self.bytes(offset, round_up_to_block(len))? else { return Ok(false) };
        let mut known = bytes[..len as usize].to_vec();
        put(&mut known, VERSION, &FORMAT_VERSION.to_le_bytes());
        Ok(check_whole(&known).is_ok())
    }

    /// The claimed length on disk of a boxcar that may be torn; `None` when no boxcar claims this position.
    pub fn claimed_bytes(&mut self, offset: u64) -> Result<Option<u64>, TrailError> {
        let expected = self.expected(offset);
        let Some(block) = self.bytes(offset, BLOCK)? else { return Ok(None) };
        Ok(match read_head(block, &expected) {
            Ok(head) => Some(head.disk_bytes()),
            Err(Flaw::Length(_) | Flaw::Checksum) => Some(expected.room_bytes),
            Err(_) => None,
        })
    }

    pub fn lsn(&self, offset: u64) -> Lsn {
        self.layout.lsn(self.segment, offset)
    }

    fn expected(&self, offset: u64) -> Expected {
        let room_bytes = self.layout.segment_bytes - offset;
        Expected { trail_id: self.trail_id, segment: self.segment, lsn: self.lsn(offset), room_bytes }
    }
}
