//! The control file: commands are written to it, the status is read from it, with and without power.

use rustix::io::Errno;

use crate::fuse::FileSystem;
use crate::node::Ino;
use crate::state::Handle;

/// Name of the control file in the root of the mount. Listings leave it out.
pub const CONTROL: &str = ".unsafe-disk";
pub const CONTROL_INO: Ino = 2;

impl FileSystem {
    pub fn open_control(&self) -> u64 {
        let text = serde_json::to_vec_pretty(&self.disk.status()).unwrap_or_default();
        let text = [text, b"\n".to_vec()].concat();
        self.disk.state.lock().new_handle(Handle { ino: CONTROL_INO, flags: 0, entries: Vec::new(), text })
    }

    pub fn read_control(&self, handle: u64, offset: u64, size: u32) -> Vec<u8> {
        let state = self.disk.state.lock();
        let text = state.handles.get(&handle).map_or(&[][..], |handle| &handle.text);
        text.iter().skip(offset as usize).take(size as usize).copied().collect()
    }

    pub fn write_control(&self, data: &[u8]) -> Result<(), Errno> {
        let text = std::str::from_utf8(data).map_err(|_| Errno::INVAL)?;
        self.disk.command_text(text).map_err(|_| Errno::INVAL)
    }
}
