//! Small files that are replaced as a whole: written beside, synced, renamed, directory synced. A crash leaves the old
//! one or the new one.

use holdfast_seams::{Create, Disk, OpenHow};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};

/// Replaces the file `path` durably.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = new_path(path);
    let file = disk.open(&new, &OpenHow { create: Create::IfMissing, write: true, ..OpenHow::default() })?;
    file.set_len(0)?;
    file.write_at(&[IoSlice::new(bytes)], 0)?;
    file.sync_all()?;
    disk.rename(&new, path)?;
    path.parent().map_or(Ok(()), |dir| disk.sync_dir(dir))
}

/// The whole of a file of at most `bytes_max`; `None` when there is none.
pub fn read_whole(disk: &dyn Disk, path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let Some(metadata) = disk.metadata(path)? else { return Ok(None) };
    if metadata.len_bytes > bytes_max {
        let message = format!("it has {} bytes, more than {bytes_max}", metadata.len_bytes);
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let mut bytes = vec![0; metadata.len_bytes as usize];
    let read = disk.open(path, &OpenHow::default())?.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(Some(bytes))
}

fn new_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}
