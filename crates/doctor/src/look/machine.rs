//! Real hardware, a virtual machine, a container; and controllers that may have a cache with a battery.

use crate::root::Root;

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Machine {
    /// The hypervisor's name, or that there is one; nothing on what looks like hardware.
    pub hypervisor: Option<String>,
    pub container: bool,
    /// PCI addresses of RAID controllers, with the driver's name where one is loaded.
    pub raid_controllers: Vec<String>,
}

/// What DMI's vendor or product says, and the hypervisor's name.
const HYPERVISORS: &[(&str, &str)] = &[
    ("Amazon EC2", "Amazon EC2"),
    ("Google", "Google Compute Engine"),
    ("Microsoft Corporation Virtual Machine", "Hyper-V"),
    ("VMware", "VMware"),
    ("VirtualBox", "VirtualBox"),
    ("innotek", "VirtualBox"),
    ("Xen", "Xen"),
    ("QEMU", "QEMU/KVM"),
    ("KVM", "KVM"),
    ("Bochs", "QEMU/KVM"),
    ("Parallels", "Parallels"),
    ("OpenStack", "OpenStack"),
    ("DigitalOcean", "DigitalOcean"),
    ("Hetzner vServer", "Hetzner"),
];

/// PCI class of RAID controllers (PCI code and ID assignment: base class 01, sub-class 04).
const PCI_RAID: &str = "0x0104";

pub fn look(root: &Root) -> Machine {
    Machine {
        hypervisor: hypervisor(root),
        container: root.exists("/.dockerenv") || root.exists("/run/.containerenv"),
        raid_controllers: raid_controllers(root),
    }
}

fn hypervisor(root: &Root) -> Option<String> {
    let dmi = |file: &str| root.read(&format!("/sys/class/dmi/id/{file}")).unwrap_or_default();
    let name = format!("{} {}", dmi("sys_vendor"), dmi("product_name"));
    if let Some((_, known)) = HYPERVISORS.iter().find(|(word, _)| name.contains(word)) {
        // EC2 and others also rent whole machines, whose processors say so.
        return (has_hypervisor_flag(root) != Some(false)).then(|| (*known).to_owned());
    }
    if let Some(kind) = root.read("/sys/hypervisor/type") {
        return Some(kind);
    }
    (has_hypervisor_flag(root) == Some(true)).then(|| "unnamed hypervisor".to_owned())
}

/// The processor's own word for it, on x86; elsewhere it says nothing.
fn has_hypervisor_flag(root: &Root) -> Option<bool> {
    let text = root.read("/proc/cpuinfo")?;
    let flags = text.lines().find(|line| line.starts_with("flags"))?;
    Some(flags.split_whitespace().any(|flag| flag == "hypervisor"))
}

fn raid_controllers(root: &Root) -> Vec<String> {
    let devices = root.list("/sys/bus/pci/devices").into_iter();
    devices
        .filter_map(|address| {
            let directory = format!("/sys/bus/pci/devices/{address}");
            root.read(&format!("{directory}/class")).filter(|class| class.starts_with(PCI_RAID))?;
            let driver = root.read(&format!("{directory}/uevent")).unwrap_or_default();
            let driver = driver.lines().find_map(|line| line.strip_prefix("DRIVER="));
            Some(driver.map_or(address.clone(), |driver| format!("{driver} at {address}")))
        })
        .collect()
}
