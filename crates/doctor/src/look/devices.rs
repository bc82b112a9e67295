//! Block devices in sysfs, from the file system's device down to the disks.
//!
//! | found | layer | continues with |
//! |---|---|---|
//! | `partition` | partition | the directory above |
//! | `dm/` | device mapper; `dm/uuid` says LVM, CRYPT, mpath | `slaves/` |
//! | `md/` | software RAID | `slaves/` |
//! | `loop/backing_file` | a file as a disk | ends here; the file's own disk is named |
//! | else | disk | ends here |
//!
//! Attributes: Documentation/ABI/stable/sysfs-block and Documentation/ABI/testing/sysfs-block-device of Linux.

use serde::Serialize;

use crate::look::Mount;
use crate::root::{Root, base_name};

/// More layers than anybody stacks; a loop of links ends here.
const LAYERS_MAX: usize = 16;

/// Who answers a write: the medium, or a cache that a power cut may empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cache {
    WriteBack,
    WriteThrough,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    Partition,
    Disk,
    /// The name, and what it is (LVM, CRYPT, ...).
    DeviceMapper {
        name: String,
        what: String,
    },
    Md {
        level: String,
        degraded: bool,
        consistency: Option<String>,
    },
    Loop {
        file: String,
    },
    /// A disk in memory.
    Memory,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    Nvme,
    Scsi,
    Virtio,
    Xen,
    Mmc,
    Other,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Device {
    pub name: String,
    pub kind: DeviceKind,
    pub transport: Transport,
    pub vendor: Option<String>,
    pub model: Option<String>,
    pub rotational: Option<bool>,
    /// What the kernel takes it for; it flushes a write-back cache only.
    pub write_cache: Option<Cache>,
    /// Writes that pass the cache, one at a time, instead of a flush of all.
    pub fua: Option<bool>,
    /// What the drive itself says, where the kernel keeps that apart.
    pub drive_cache: Option<Cache>,
    pub below: Vec<Device>,
}

impl Device {
    pub fn layers(&self) -> Vec<&Device> {
        std::iter::once(self).chain(self.below.iter().flat_map(Device::layers)).collect()
    }

    pub fn bottoms(&self) -> Vec<&Device> {
        if self.below.is_empty() { vec![self] } else { self.below.iter().flat_map(Device::bottoms).collect() }
    }

    /// Vendor and model, for a person; empty when neither is known.
    pub fn make(&self) -> String {
        // PCI's number of virtio devices says nothing that "virtio" does not.
        let vendor = self.vendor.as_deref().filter(|vendor| !vendor.starts_with("0x") && *vendor != "ATA");
        [vendor, self.model.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ")
    }
}

/// The device of a mount: by number, or by the name of its source where the number is no device's.
pub fn device_of(root: &Root, mount: &Mount) -> Option<Device> {
    let by_number = || root.resolve(&format!("/sys/dev/block/{}", mount.device));
    let by_name = || {
        let node = root.resolve(&mount.source).unwrap_or_else(|| mount.source.clone());
        root.resolve(&format!("/sys/class/block/{}", base_name(&node)))
    };
    let directory = if mount.device.starts_with("0:") && !mount.source.starts_with("/dev/") {
        None
    } else {
        by_number().or_else(by_name)
    };
    directory.map(|directory| look(root, &directory, LAYERS_MAX))
}

fn look(root: &Root, directory: &str, layers_left: usize) -> Device {
    let name = base_name(directory).to_owned();
    let is_partition = root.exists(&format!("{directory}/partition"));
    let slaves = root.list(&format!("{directory}/slaves"));
    let next = if is_partition {
        directory.rsplit_once('/').map(|(parent, _)| parent.to_owned()).into_iter().collect()
    } else {
        slaves.iter().filter_map(|slave| root.resolve(&format!("{directory}/slaves/{slave}"))).collect::<Vec<_>>()
    };
    let below =
        if layers_left == 0 { Vec::new() } else { next.iter().map(|d| look(root, d, layers_left - 1)).collect() };
    let attribute = |path: &str| root.read(&format!("{directory}/{path}"));
    // A partition has the queue of its disk.
    let queue = if is_partition { "../queue" } else { "queue" };
    Device {
        kind: kind(root, directory, &name, is_partition),
        transport: transport(root, directory, &name),
        vendor: attribute("device/vendor"),
        model: attribute("device/model"),
        rotational: root.flag(&format!("{directory}/{queue}/rotational")),
        write_cache: attribute(&format!("{queue}/write_cache")).as_deref().and_then(cache),
        fua: root.flag(&format!("{directory}/{queue}/fua")),
        drive_cache: drive_cache(root, directory),
        name,
        below,
    }
}

fn kind(root: &Root, directory: &str, name: &str, is_partition: bool) -> DeviceKind {
    let attribute = |path: &str| root.read(&format!("{directory}/{path}"));
    if is_partition {
        DeviceKind::Partition
    } else if root.exists(&format!("{directory}/dm")) {
        let uuid = attribute("dm/uuid").unwrap_or_default();
        let what = uuid.split_once('-').map_or("", |(what, _)| what).to_owned();
        DeviceKind::DeviceMapper { name: attribute("dm/name").unwrap_or_else(|| name.to_owned()), what }
    } else if root.exists(&format!("{directory}/md")) {
        DeviceKind::Md {
            level: attribute("md/level").unwrap_or_default(),
            degraded: attribute("md/degraded").is_some_and(|count| count != "0"),
            consistency: attribute("md/consistency_policy"),
        }
    } else if let Some(file) = attribute("loop/backing_file") {
        DeviceKind::Loop { file }
    } else if name.starts_with("zram") || name.starts_with("ram") {
        DeviceKind::Memory
    } else {
        DeviceKind::Disk
    }
}

fn transport(root: &Root, directory: &str, name: &str) -> Transport {
    let starts = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
    if starts(&["nvme"]) {
        Transport::Nvme
    } else if starts(&["vd"]) || directory.contains("/virtio") {
        Transport::Virtio
    } else if starts(&["xvd"]) {
        Transport::Xen
    } else if starts(&["mmcblk"]) {
        Transport::Mmc
    } else if starts(&["sd"]) || root.exists(&format!("{directory}/device/scsi_disk")) {
        Transport::Scsi
    } else {
        Transport::Other
    }
}

/// SCSI and SATA disks tell their cache's mode apart from what the kernel makes of it; virtio disks do, too.
fn drive_cache(root: &Root, directory: &str) -> Option<Cache> {
    let scsi = root.list(&format!("{directory}/device/scsi_disk"));
    let scsi = scsi.first().map(|address| format!("{directory}/device/scsi_disk/{address}/cache_type"));
    let file = scsi.unwrap_or_else(|| format!("{directory}/cache_type"));
    root.read(&file).as_deref().and_then(cache)
}

fn cache(text: &str) -> Option<Cache> {
    match text {
        "write through" | "none" => Some(Cache::WriteThrough),
        _ if text.starts_with("write back") => Some(Cache::WriteBack),
        _ => None,
    }
}
