//! Machines that are not there: each file `machines/NAME.tree` describes what the doctor would find, and
//! `machines/NAME.txt` is what it says. `HOLDFAST_UPDATE_GOLDEN=1` writes the latter anew; look at the difference then.
//!
//! Lines of a tree: `PATH = TEXT` a file of one line, `PATH:` a file of the indented lines below, `PATH -> TARGET` a link,
//! `data = DIR`, `mirror = DIR` (`nowhere`: not mounted), `commit_delay_us = N`, `free = MIB of MIB`, `sync_method = NAME`, `times = SYNCED DIRECT CACHED` in microseconds,
//! `refused = WHY` for O_DIRECT, `dropped = dsync`, `problem = WHY` for a configuration that cannot be read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use holdfast_doctor::{Delay, Measured, Mirror, Root, Settings, Survey, examine, survey};
use holdfast_seams::SyncMethod;
use serde_json::json;

struct Machine {
    tree: tempfile::TempDir,
    facts: BTreeMap<String, String>,
}

fn machines() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines")
}

fn build(name: &str) -> Machine {
    let text = std::fs::read_to_string(machines().join(format!("{name}.tree"))).unwrap();
    let tree = tempfile::tempdir().unwrap();
    let mut facts = BTreeMap::new();
    let mut lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).peekable();
    while let Some(line) = lines.next() {
        if let Some((path, target)) = line.split_once(" -> ") {
            let path = made(&tree, path);
            std::os::unix::fs::symlink(target, path).unwrap();
        } else if let Some((path, value)) = line.split_once(" = ") {
            if path.starts_with('/') {
                std::fs::write(made(&tree, path), format!("{value}\n")).unwrap();
            } else {
                facts.insert(path.to_owned(), value.to_owned());
            }
        } else {
            let mut content = String::new();
            while let Some(more) = lines.next_if(|line| line.starts_with("  ")) {
                content += &format!("{}\n", more.trim_start());
            }
            std::fs::write(made(&tree, line.trim_end_matches(':')), content).unwrap();
        }
    }
    Machine { tree, facts }
}

/// The place of a file in the tree, with the directories around it.
fn made(tree: &tempfile::TempDir, path: &str) -> PathBuf {
    let path = tree.path().join(path.trim_start_matches('/'));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    path
}

impl Machine {
    fn fact(&self, name: &str, default: &str) -> String {
        self.facts.get(name).cloned().unwrap_or_else(|| default.to_owned())
    }

    fn survey(&self) -> Survey {
        survey(&Root::new(self.tree.path()), &self.fact("data", "/srv/holdfast"))
    }

    fn settings(&self) -> Settings {
        Settings {
            source: "holdfast.toml".to_owned(),
            problem: self.facts.get("problem").cloned(),
            sync_method: SyncMethod::from_name(&self.fact("sync_method", "open_direct_dsync")).unwrap(),
            segment_bytes: 64 << 20,
            segments_ready: 2,
            redo_bytes_max: 1 << 30,
            commit_delay: match self.facts.get("commit_delay_us") {
                Some(us) => Delay::Fixed { us: us.parse().unwrap() },
                None => Delay::Auto,
            },
            mirror: self.facts.get("mirror").map(|path| Mirror {
                path: path.clone(),
                survey: (path != "nowhere").then(|| survey(&Root::new(self.tree.path()), path)),
            }),
        }
    }

    fn measured(&self) -> Measured {
        let numbers = |name: &str, default: &str| -> Vec<f64> {
            self.fact(name, default).split_whitespace().filter_map(|word| word.parse().ok()).collect()
        };
        let (free, times) = (numbers("free", "50000 of 100000"), numbers("times", "600 20 1.5"));
        let distribution = |p50: f64| json!({"count": 300, "min_us": p50 * 0.9, "p50_us": p50, "p90_us": p50 * 1.2, "p99_us": p50 * 2.0, "max_us": p50 * 3.0});
        let methods = ["open_direct_dsync", "open_sync", "fdatasync", "fsync"];
        let refused = self.facts.get("refused");
        let measured = json!({
            "directory": "/srv/holdfast",
            "free_bytes": (free[0] as u64) << 20,
            "total_bytes": (free[1] as u64) << 20,
            "not_written": null,
            "writing": {
                "open": {
                    "direct": refused.is_none(), "dsync": refused.is_none() && self.fact("dropped", "") != "dsync",
                    "refused": refused, "align": [4, 512],
                },
                "synced": methods.map(|name| json!([name, distribution(times[0])])),
                "direct": if refused.is_none() { distribution(times[1]) } else { json!(null) },
                "cached": distribution(times[2]),
            },
        });
        serde_json::from_value(measured).unwrap()
    }
}

fn check(name: &str) {
    let machine = build(name);
    let report = examine(&machine.survey(), &machine.settings(), Some(machine.measured()));
    let text = format!("{}exit code {}\n", report.text(), u8::from(report.has_bad()));
    assert!(serde_json::to_string(&report).unwrap().contains("\"verdict\""));
    let golden = machines().join(format!("{name}.txt"));
    if std::env::var_os("HOLDFAST_UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    let wanted = std::fs::read_to_string(&golden).unwrap_or_default();
    assert_eq!(text, wanted, "{name}: HOLDFAST_UPDATE_GOLDEN=1 writes {} anew", golden.display());
}

macro_rules! machines {
    ($($name:ident),* $(,)?) => { $(#[test] fn $name() { check(stringify!($name)); })* };
}

machines!(
    nvme_with_fua,
    sata_hdd_with_cache,
    hdd_that_lies,
    hdd_without_barriers,
    drive_cache_hidden_from_kernel,
    virtio,
    cloud_nvme_on_btrfs,
    lvm_on_degraded_md_raid,
    loop_device,
    tmpfs,
    nfs_soft,
    nfs_hard,
    nut_without_log,
    overlay,
    raid_controller,
    nothing_is_synced,
    odirect_refused,
    dsync_dropped,
    disk_full_and_bad_configuration,
    mirror_on_the_same_file_system,
    mirror_on_the_same_disk,
    mirror_on_another_disk,
    mirror_on_a_network,
    mirror_not_mounted,
);

/// Whatever is missing, there is a report.
#[test]
fn an_empty_machine() {
    let machine = Machine { tree: tempfile::tempdir().unwrap(), facts: BTreeMap::new() };
    let report = examine(&machine.survey(), &machine.settings(), None);
    assert!(!report.has_bad(), "{}", report.text());
}

/// Links that lead round in a circle, and files that hold nonsense.
#[test]
fn a_machine_of_nonsense() {
    let machine = build("nvme_with_fua");
    let disk = machine.tree.path().join("sys/devices/pci0/nvme0/nvme0n1");
    std::fs::create_dir_all(disk.join("slaves")).unwrap();
    std::os::unix::fs::symlink("../../nvme0n1", disk.join("slaves/nvme0n1")).unwrap();
    std::fs::write(disk.join("queue/write_cache"), [0xff, 0xfe]).unwrap();
    std::fs::write(disk.join("queue/rotational"), "").unwrap();
    let report = examine(&machine.survey(), &machine.settings(), Some(machine.measured()));
    assert!(report.text().contains("write cache"));
}
