//! Small files that are whole or absent: written beside, synced, renamed, the directory synced.

use std::io::IoSlice;
use std::path::Path;

use holdfast_seams::{AlignedBuf, Create, Disk, OpenHow};

use crate::error::ControlError;

/// The largest file that is read: nothing here grows beyond a few MiB, so a larger one is not ours.
const BYTES_MAX: u64 = 64 << 20;

/// Puts `bytes` at `name`, by way of `new`.
pub fn replace(disk: &dyn Disk, dir: &Path, new: &str, name: &str, bytes: &[u8]) -> Result<(), ControlError> {
    let (new, path) = (dir.join(new), dir.join(name));
    let how = OpenHow { create: Create::IfMissing, write: true, ..OpenHow::default() };
    let file = disk.open(&new, &how).map_err(ControlError::io("create", &new))?;
    file.set_len(0).map_err(ControlError::io("empty", &new))?;
    file.write_at(&[IoSlice::new(bytes)], 0).map_err(ControlError::io("write", &new))?;
    file.sync_all().map_err(ControlError::io("sync", &new))?;
    disk.rename(&new, &path).map_err(ControlError::io("rename", &new))?;
    disk.sync_dir(dir).map_err(ControlError::io("sync the directory", dir))
}

/// The whole file, past the page cache: after a failed sync the cache shows what the device does not have.
pub fn read(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>, ControlError> {
    let file = disk.open(path, &OpenHow::READ_DIRECT).map_err(ControlError::io("open", path))?;
    file.sync_all().map_err(ControlError::io("sync", path))?;
    let len = file.len_bytes().map_err(ControlError::io("look at", path))?;
    if len > BYTES_MAX {
        let what = format!("it has {len} bytes, more than the {BYTES_MAX} it can have");
        return Err(ControlError::Damage { file: path.to_path_buf(), offset: 0, what });
    }
    let mut bytes = AlignedBuf::zeroed(len as usize);
    let read = file.read_at(bytes.as_mut_slice(), 0).map_err(ControlError::io("read", path))?;
    Ok(bytes.as_slice()[..read.min(len as usize)].to_vec())
}
