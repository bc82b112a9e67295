//! Shows a volume's file together with its pending `-wal`, without copying it: for `holdfast check`, which must not
//! change a byte. Pages that the next start would copy into the file are read from the `-wal` instead.

use crate::pages::{PAGE_BYTES, offset_of};
use crate::wal_file::frame_offset;
use holdfast_seams::DiskFile;
use std::collections::HashMap;
use std::io::{self, IoSlice};

/// A read-only file. Each read must stay within one page, as the page store's reads do.
pub struct PendingWal {
    file: Box<dyn DiskFile>,
    wal: Box<dyn DiskFile>,
    /// Offset in the `-wal` of each page's bytes.
    frames: HashMap<u32, u64>,
    pages: u32,
}

impl PendingWal {
    /// `frames` are the page numbers of the `-wal`'s frames in order; the database including them has `pages` pages.
    pub fn new(file: Box<dyn DiskFile>, wal: Box<dyn DiskFile>, frames: &[u32], pages: u32) -> PendingWal {
        let frames = frames.iter().enumerate().map(|(i, page)| (*page, frame_offset(i as u64))).collect();
        PendingWal { file, wal, frames, pages }
    }
}

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the volume is opened read-only")
}

impl DiskFile for PendingWal {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let page = (offset / PAGE_BYTES as u64) as u32 + 1;
        let within = offset - offset_of(page);
        match self.frames.get(&page) {
            Some(at) => {
                let n = buf.len().min(PAGE_BYTES - within as usize);
                self.wal.read_at(&mut buf[..n], at + within)
            }
            None => self.file.read_at(buf, offset),
        }
    }

    fn write_at(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<()> {
        Err(refused())
    }

    fn sync_data(&self) -> io::Result<()> {
        Err(refused())
    }

    fn sync_all(&self) -> io::Result<()> {
        Err(refused())
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Err(refused())
    }

    fn len_bytes(&self) -> io::Result<u64> {
        Ok(u64::from(self.pages) * PAGE_BYTES as u64)
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Err(refused())
    }

    fn is_direct(&self) -> bool {
        false
    }
}
