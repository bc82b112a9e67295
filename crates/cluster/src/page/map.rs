//! One page of memory that two processes share through a file on tmpfs.
//!
//! Both see words of 64 bits, each read and written as a whole. The file is made with its full size before another process
//! can see it, and no process shortens it: the directory belongs to one user.
//!
//! Failure: a file of another size is refused when it is mapped.

#![allow(unsafe_code)]

use rustix::mm::{MapFlags, ProtFlags, mlock, mmap, munmap};
use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The size of a page.
pub const PAGE_BYTES: usize = 4096;
const WORDS: usize = PAGE_BYTES / 8;

/// A page for reading.
pub struct Map {
    start: NonNull<AtomicU64>,
}

// SAFETY: `start` points to `WORDS` atomics, which any thread may use, and that stay mapped as long as the value lives.
unsafe impl Send for Map {}
// SAFETY: as for `Send`: shared references only load and store atomics.
unsafe impl Sync for Map {}

/// A page for reading and writing.
pub struct WriteMap(Map);

impl Map {
    /// Maps a file for reading only: what this process does by mistake does not change it.
    pub fn open(file: &File) -> io::Result<Map> {
        Map::with(file, ProtFlags::READ)
    }

    fn with(file: &File, protection: ProtFlags) -> io::Result<Map> {
        if file.metadata()?.len() != PAGE_BYTES as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its size is not 4096 bytes"));
        }
        // SAFETY: the kernel chooses the address, so that no memory of this process is replaced, and the file has the length
        // that is mapped.
        let start = unsafe { mmap(std::ptr::null_mut(), PAGE_BYTES, protection, MapFlags::SHARED, file, 0) }?;
        let map = Map { start: NonNull::new(start.cast()).ok_or(io::ErrorKind::InvalidData)? };
        // A page on tmpfs may be swapped out, which costs time and nothing else.
        // SAFETY: these are the bytes that were just mapped.
        if let Err(error) = unsafe { mlock(start, PAGE_BYTES) } {
            tracing::debug!("a page cannot be locked into memory: {error}");
        }
        Ok(map)
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < WORDS, "a page has no such word");
        // SAFETY: the index is inside the mapped page, which is aligned to its size and lives as long as `self`.
        unsafe { self.start.add(index).as_ref() }
    }

    /// The word, and everything that was written before it.
    pub fn load(&self, index: usize) -> u64 {
        // A relaxed load with a fence is the form that is allowed in memory mapped for reading only.
        let value = self.word(index).load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        value
    }
}

impl WriteMap {
    pub fn open(file: &File) -> io::Result<WriteMap> {
        Map::with(file, ProtFlags::READ | ProtFlags::WRITE).map(WriteMap)
    }

    pub fn load(&self, index: usize) -> u64 {
        self.0.load(index)
    }

    pub fn store(&self, index: usize, value: u64) {
        self.0.word(index).store(value, Ordering::Release);
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the page was mapped in `with`, and no reference to it outlives the value.
        if let Err(error) = unsafe { munmap(self.start.as_ptr().cast(), PAGE_BYTES) } {
            tracing::debug!("a page cannot be unmapped: {error}");
        }
    }
}
