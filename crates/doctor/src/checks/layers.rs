//! The devices between the file system and the medium: what they are, whether one of them is not real, and who else
//! may keep data in a cache.
//!
//! Partitions, LVM, encryption, multipath and md pass flushes on. A loop device passes them to a file of another file
//! system, which has to be examined itself. A degraded RAID is a warning. What lies behind a hypervisor or a RAID
//! controller cannot be seen; only pulling the plug shows it.

use super::Case;
use crate::look::{Device, DeviceKind, Transport};
use crate::report::Finding;
use crate::report::Verdict::{Bad, CannotKnow, Good, Warn};

const LAYERS: &str = "layers";
const VIRTUAL: &str = "virtual disk";
const RAID: &str = "RAID controller";

/// Words in a disk's vendor or model that only virtual disks have.
const VIRTUAL_MAKES: &[&str] = &[
    "QEMU",
    "VMware",
    "VBOX",
    "Virtual",
    "Msft",
    "Google",
    "PersistentDisk",
    "Amazon Elastic Block Store",
    "nvme_card",
    "Xen",
];

/// Words in a disk's vendor or model that RAID controllers give their volumes.
const RAID_MAKES: &[&str] = &[
    "PERC",
    "MegaRAID",
    "MR9",
    "LSI",
    "AVAGO",
    "LOGICAL VOLUME",
    "ServeRAID",
    "Adaptec",
    "ASR",
    "Areca",
    "3ware",
    "AMCC",
];

pub fn check(case: &Case) -> Finding {
    let layers = case.survey.layers();
    let Some(mount) = case.survey.mount.as_ref().filter(|_| !layers.is_empty()) else {
        return Finding::new(
            LAYERS,
            CannotKnow,
            "no block device to be seen",
            "The file system has none, or hides it.",
        );
    };
    let found =
        format!("{} on {}", mount.file_system, layers.iter().map(|d| named(d)).collect::<Vec<_>>().join(" on "));
    let kind_of = |wanted: fn(&DeviceKind) -> bool| layers.iter().find(|device| wanted(&device.kind));
    if kind_of(|kind| *kind == DeviceKind::Memory).is_some() {
        return Finding::new(LAYERS, Bad, found, "The disk is in memory.").with_advice("Use a disk.");
    }
    if let Some(Device { kind: DeviceKind::Loop { file }, .. }) =
        kind_of(|kind| matches!(kind, DeviceKind::Loop { .. }))
    {
        return Finding::new(
            LAYERS,
            Warn,
            found,
            "A loop device is a file: its own file system has to keep the promise, too.",
        )
        .with_advice(format!("Run `holdfast doctor --data` on the directory of {file} as well."));
    }
    if let Some(device) = kind_of(|kind| matches!(kind, DeviceKind::Md { degraded: true, .. })) {
        let why =
            format!("{} runs without one of its disks: the next one that dies takes the data along.", device.name);
        return Finding::new(LAYERS, Warn, found, why).with_advice("Replace the disk (cat /proc/mdstat).");
    }
    if let Some(device) =
        kind_of(|kind| matches!(kind, DeviceKind::Md { level, .. } if level == "raid0" || level == "linear"))
    {
        let why = format!("{} spreads the data over disks without a copy: one that dies takes all along.", device.name);
        return Finding::new(LAYERS, Warn, found, why).with_advice("Use raid1 or raid10, or keep a standby.");
    }
    Finding::new(LAYERS, Good, found, "Each of them passes a flush on.")
}

fn named(device: &Device) -> String {
    match &device.kind {
        DeviceKind::Partition => format!("partition {}", device.name),
        DeviceKind::DeviceMapper { name, what } if what.is_empty() => format!("{name} ({})", device.name),
        DeviceKind::DeviceMapper { name, what } => format!("{what} {name} ({})", device.name),
        DeviceKind::Md { level, degraded, consistency } => {
            let degraded = if *degraded { ", DEGRADED" } else { "" };
            let consistency = consistency.as_ref().map_or(String::new(), |policy| format!(", {policy}"));
            format!("{} ({level}{consistency}{degraded})", device.name)
        }
        DeviceKind::Loop { file } => format!("{} (file {file})", device.name),
        DeviceKind::Memory => format!("{} (memory)", device.name),
        DeviceKind::Disk => {
            let what = match (device.transport, device.rotational) {
                (Transport::Virtio, _) => "virtio",
                (Transport::Nvme, _) => "NVMe",
                (Transport::Xen, _) => "Xen",
                (Transport::Mmc, _) => "SD card or eMMC",
                (_, Some(true)) => "rotating",
                (_, Some(false)) => "SSD",
                (_, None) => "disk",
            };
            let make = device.make();
            let make = if make.is_empty() { String::new() } else { format!(", {make}") };
            format!("{} ({what}{make})", device.name)
        }
    }
}

pub fn is_virtual(disk: &Device) -> bool {
    let make = disk.make();
    matches!(disk.transport, Transport::Virtio | Transport::Xen) || VIRTUAL_MAKES.iter().any(|word| make.contains(word))
}

/// Behind a RAID controller, as far as its name shows.
pub fn is_raid(disk: &Device) -> bool {
    let make = disk.make();
    RAID_MAKES.iter().any(|word| make.contains(word))
}

pub fn virtual_disk(case: &Case) -> Finding {
    let disks = case.survey.disks();
    let names: Vec<&str> = disks.iter().filter(|disk| is_virtual(disk)).map(|disk| disk.name.as_str()).collect();
    let hypervisor = case.survey.machine.hypervisor.as_deref();
    if names.is_empty() && hypervisor.is_none() {
        return if disks.is_empty() {
            Finding::new(VIRTUAL, CannotKnow, "no block device to be seen", "It may be anything.")
        } else {
            Finding::new(VIRTUAL, Good, "no", "The disk is the machine's own.")
        };
    }
    let found = match (names.is_empty(), hypervisor) {
        (true, Some(name)) => format!("the machine is virtual ({name})"),
        (false, Some(name)) => format!("{} of a virtual machine ({name})", names.join(", ")),
        (_, None) => format!("{}, by its name", names.join(", ")),
    };
    Finding::new(
        VIRTUAL,
        CannotKnow,
        found,
        "What the host does with a flush cannot be seen from here. Some set-ups drop it (QEMU's cache=unsafe, VirtualBox's \
         IgnoreFlush), and then a power cut of the host loses acknowledged commits.",
    )
    .with_advice("Look at the host's disk settings, run the doctor there, or pull its plug with --power-test.")
}

pub fn raid(case: &Case) -> Finding {
    let disks = case.survey.disks();
    let volumes: Vec<String> =
        disks.iter().filter(|d| is_raid(d)).map(|d| format!("{} ({})", d.name, d.make())).collect();
    let controllers = &case.survey.machine.raid_controllers;
    if disks.is_empty() {
        return Finding::new(RAID, CannotKnow, "no block device to be seen", "It may be behind anything.");
    }
    if volumes.is_empty() && controllers.is_empty() {
        return Finding::new(RAID, Good, "none to be seen", "No controller with a cache of its own shows.");
    }
    let found = [volumes, controllers.clone()].concat().join(", ");
    Finding::new(
        RAID,
        CannotKnow,
        found,
        "A controller's cache acknowledges a flush from its own memory. That is safe with a charged battery (or flash) and \
         with the disks' own caches off, and neither shows here.",
    )
    .with_advice(
        "Ask the controller's tool (storcli, ssacli, arcconf): battery good, write-back only with it, drive cache off.",
    )
}
