//! The command `holdfast unsafe-disk`: mounted, told what to do, asked, and taken down.

use holdfast_seams::testing::skipped;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_holdfast");

struct Mounted {
    child: Child,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // SIGTERM unmounts; after a clean end it is gone already.
        let _ =
            rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

fn mount(mountpoint: &Path, backing: &Path, options: &[&str]) -> Mounted {
    let mut child = Command::new(BINARY)
        .arg("unsafe-disk")
        .arg(mountpoint)
        .arg("--backing")
        .arg(backing)
        .args(options)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    assert!(line.contains("unsafe disk ready"), "{line}");
    child.stdout = Some(output.into_inner());
    Mounted { child }
}

fn ctl(mountpoint: &Path, words: &[&str]) -> Output {
    Command::new(BINARY).args(["unsafe-disk", "ctl"]).arg(mountpoint).args(words).output().unwrap()
}

#[test]
fn a_disk_is_mounted_cut_restored_and_taken_down() {
    if let Some(why) = holdfast_unsafe_disk::cannot_mount() {
        return skipped(&why);
    }
    let directory = tempfile::tempdir().unwrap();
    let (mountpoint, backing) = (directory.path().join("mount"), directory.path().join("backing"));
    fs::create_dir(&mountpoint).unwrap();
    let mut mounted = mount(&mountpoint, &backing, &["--fault", "fail sync never*", "--json"]);
    fs::write(mountpoint.join("a"), "kept").unwrap();
    assert!(ctl(&mountpoint, &["sync"]).status.success());
    assert!(ctl(&mountpoint, &["cut"]).status.success());
    assert!(fs::read(mountpoint.join("a")).is_err());
    let status = String::from_utf8(ctl(&mountpoint, &[]).stdout).unwrap();
    assert!(status.contains("power off") && status.contains("fault `fail sync never* times=1`: fired 0"), "{status}");
    let json: serde_json::Value = serde_json::from_slice(&ctl(&mountpoint, &["status", "--json"]).stdout).unwrap();
    assert_eq!(json["power"], "off", "{json}");
    assert!(ctl(&mountpoint, &["restore"]).status.success());
    assert_eq!(fs::read(mountpoint.join("a")).unwrap(), b"kept");
    let refused = ctl(&mountpoint, &["fail", "everything"]);
    let told = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && told.contains("no operation everything"), "{told}");
    fs::write(mountpoint.join("b"), "also").unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_child(&mounted.child), rustix::process::Signal::TERM)
        .unwrap();
    let mut report = String::new();
    mounted.child.stdout.take().unwrap().read_to_string(&mut report).unwrap();
    assert!(mounted.child.wait().unwrap().success());
    assert!(report.contains("\"power_cuts\": 1"), "{report}");
    assert_eq!(fs::read(backing.join("b")).unwrap(), b"also", "a clean end makes everything durable");
}

#[test]
fn mistakes_are_told() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    for (arguments, told) in [
        (vec!["--cut-random", "9..3"], "100..5000"),
        (vec!["--fault", "restore"], "not a fault"),
        (vec!["--fault", "fail nothing"], "no operation nothing"),
        (vec!["--garbage", "101"], "101"),
    ] {
        let output =
            Command::new(BINARY).arg("unsafe-disk").arg(path).arg("--backing").arg(path).args(&arguments).output();
        let output = output.unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(told), "{arguments:?}: {error}");
    }
    let same = Command::new(BINARY).arg("unsafe-disk").arg(path).arg("--backing").arg(path).output().unwrap();
    let error = String::from_utf8(same.stderr).unwrap();
    assert_eq!(same.status.code(), Some(1), "{error}");
    assert!(error.contains("backing directory"), "{error}");
}
