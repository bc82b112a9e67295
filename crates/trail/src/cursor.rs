//! Reading boxcars out of one segment file, in large aligned reads past the page cache.

use std::path::{Path, PathBuf};

use holdfast_seams::{AlignedBuf, Disk, DiskFile, OpenHow, round_up_to_block};
use holdfast_types::Lsn;

use crate::boxcar::{FORMAT_VERSION, Flaw, HEAD_BYTES, Head, Place, VERSION, check_whole, read_head};
use crate::bytes::put;
use crate::error::TrailError;
use crate::layout::{BLOCK, Layout, TrailId};

/// Bytes asked of the device at once.
const READ_BYTES: u64 = 1 << 20;

pub struct SegmentCursor {
    file: Box<dyn DiskFile>,
    pub path: PathBuf,
    pub segment: u32,
    layout: Layout,
    trail_id: TrailId,
    /// Nothing at or behind this offset is looked at: it may be being written.
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

    /// `len` bytes from a block boundary on; `None` when the file or the limit ends before.
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

    /// The boxcar that belongs at `offset`, with its body, or what is wrong there.
    pub fn boxcar(&mut self, offset: u64) -> Result<Result<(Head, &[u8]), Flaw>, TrailError> {
        Ok(self.whole(offset)?.map(|(head, whole)| (head, &whole[HEAD_BYTES..])))
    }

    /// The same with the bytes of the head in front of those of the body.
    pub fn whole(&mut self, offset: u64) -> Result<Result<(Head, &[u8]), Flaw>, TrailError> {
        let place = self.place(offset);
        let Some(block) = self.bytes(offset, BLOCK)? else { return Ok(Err(Flaw::EndOfFile)) };
        let head = match read_head(block, &place) {
            Ok(head) => head,
            Err(flaw) => return Ok(Err(flaw)),
        };
        let len = HEAD_BYTES as u64 + u64::from(head.body_bytes);
        let Some(bytes) = self.bytes(offset, round_up_to_block(len))? else { return Ok(Err(Flaw::EndOfFile)) };
        let bytes = &bytes[..len as usize];
        Ok(check_whole(bytes).map(|()| (head, bytes)))
    }

    /// Whether a boxcar that claims a newer format is sound but for that claim: a bit of it rotted, and who is told to
    /// use the newer program would look for it in vain.
    pub fn version_is_rotten(&mut self, offset: u64) -> Result<bool, TrailError> {
        let place = self.place(offset);
        let Some(block) = self.bytes(offset, BLOCK)? else { return Ok(false) };
        let mut known = block.to_vec();
        put(&mut known, VERSION, &FORMAT_VERSION.to_le_bytes());
        let Ok(head) = read_head(&known, &place) else { return Ok(false) };
        let len = HEAD_BYTES as u64 + u64::from(head.body_bytes);
        let Some(bytes) = self.bytes(offset, round_up_to_block(len))? else { return Ok(false) };
        let mut known = bytes[..len as usize].to_vec();
        put(&mut known, VERSION, &FORMAT_VERSION.to_le_bytes());
        Ok(check_whole(&known).is_ok())
    }

    /// The claimed length on disk of a boxcar that may be torn; `None` when no boxcar claims the place.
    pub fn claimed_bytes(&mut self, offset: u64) -> Result<Option<u64>, TrailError> {
        let place = self.place(offset);
        let Some(block) = self.bytes(offset, BLOCK)? else { return Ok(None) };
        Ok(match read_head(block, &place) {
            Ok(head) => Some(head.disk_bytes()),
            Err(Flaw::Length(_) | Flaw::Checksum) => Some(place.room_bytes),
            Err(_) => None,
        })
    }

    pub fn lsn(&self, offset: u64) -> Lsn {
        self.layout.lsn(self.segment, offset)
    }

    fn place(&self, offset: u64) -> Place {
        let room_bytes = self.layout.segment_bytes - offset;
        Place { trail_id: self.trail_id, segment: self.segment, lsn: self.lsn(offset), room_bytes }
    }
}
