//! Looking: which file system and mount, which devices below it, what machine, which power supply. No verdicts here.

mod devices;
mod machine;
mod mounts;
mod power;

pub use devices::{Cache, Device, DeviceKind, Transport};
pub use machine::Machine;
pub use mounts::Mount;
pub use power::{Daemon, Power};

use crate::root::Root;

/// Everything found without writing a byte.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The directory, with all links followed.
    pub path: String,
    /// What it is mounted from; nothing when `/proc/self/mountinfo` does not tell.
    pub mount: Option<Mount>,
    /// The device of the file system, the devices below it in `below`; none where there is none to be seen.
    pub device: Option<Device>,
    pub machine: Machine,
    pub power: Power,
}

impl Survey {
    /// The devices that nothing else lies below.
    pub fn disks(&self) -> Vec<&Device> {
        self.device.iter().flat_map(Device::bottoms).collect()
    }

    /// All devices, from the file system's down.
    pub fn layers(&self) -> Vec<&Device> {
        self.device.iter().flat_map(Device::layers).collect()
    }
}

/// Looks at everything under a directory. `path` must have no links in it.
pub fn survey(root: &Root, path: &str) -> Survey {
    let mount = mounts::mount_of(root, path);
    let device = mount.as_ref().and_then(|mount| devices::device_of(root, mount));
    Survey { path: path.to_owned(), mount, device, machine: machine::look(root), power: power::look(root) }
}
