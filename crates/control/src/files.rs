//! Small files that are either complete or absent.

use std::path::Path;

use holdfast_seams::{AlignedBuf, Disk, OpenHow};

use crate::error::ControlError;

/// The largest file that is read: no file here grows beyond a few MiB, so a larger one is not one of these.
const BYTES_MAX: u64 = 64 << 20;

/// Puts `bytes` at `name`.
pub fn replace(disk: &dyn Disk, dir: &Path, name: &str, bytes: &[u8]) -> Result<(), ControlError> {
    Ok(holdfast_seams::replace(disk, &dir.join(name), bytes)?)
}

/// The whole file, past the page cache: after a failed sync the cache shows what the device does not have.
pub fn read(disk: &dyn Disk, path: &Path) -> Result<Vec<u8>, ControlError> {
    let file = disk.open(path, &OpenHow::READ_DIRECT).map_err(ControlError::io("open", path))?;
    file.sync_all().map_err(ControlError::io("sync", path))?;
    let len = file.len_bytes().map_err(ControlError::io("look at", path))?;
    if len > BYTES_MAX {
        let what = format!("it has {len} bytes; the limit is {BYTES_MAX}");
        return Err(ControlError::Damage { file: path.to_path_buf(), offset: 0, what });
    }
    let mut bytes = AlignedBuf::zeroed(len as usize);
    let read = file.read_at(bytes.as_mut_slice(), 0).map_err(ControlError::io("read", path))?;
    Ok(bytes.as_slice()[..read.min(len as usize)].to_vec())
}
