//! The lab's only `unsafe` code: a VFS of its own under stock SQLite. It is here and not in `holdfast_store::sqlite`, where
//! all other `unsafe` code is, because only the lab uses it and the server must not carry it.

#![allow(unsafe_code)]

mod slow_vfs;

pub use slow_vfs::SlowVfs;
