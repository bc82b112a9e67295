//! `holdfast doctor` as a person runs it: on this machine, and with its power test over loopback.

use holdfast_seams::testing::skipped;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

const BINARY: &str = env!("CARGO_BIN_EXE_holdfast");

fn doctor(words: &[&str]) -> Output {
    Command::new(BINARY).arg("doctor").args(words).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it ends by itself")
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn it_examines_this_machine_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let to_be = directory.path().join("holdfast-data");
    let output = doctor(&["--data", to_be.to_str().unwrap(), "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["findings"].as_array().unwrap().len(), 12);
    assert_eq!(code(&output), i32::from(report["worst"] == "bad"), "{report}");
    assert!(report["measured"]["writing"]["synced"].as_array().is_some_and(|methods| !methods.is_empty()), "{report}");
    assert!(names(directory.path()).is_empty(), "nothing is made, nothing stays");

    let output = doctor(&["--data", directory.path().to_str().unwrap()]);
    let said = text(&output.stdout);
    for check in ["file system:", "barriers:", "write cache:", "UPS:", "open flag:", "sync latency:", "commit delay:"] {
        assert!(said.contains(check), "{said}");
    }
}

#[test]
fn a_configuration_that_cannot_be_read_is_a_bad_verdict() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::write(directory.path().join("holdfast.toml"), "sync_metod = \"fsync\"\n").unwrap();
    let output = doctor(&["--data", directory.path().to_str().unwrap()]);
    assert_eq!(code(&output), 1);
    assert!(text(&output.stdout).contains("sync_metod"), "{}", text(&output.stdout));
}

#[test]
fn wrong_usage_and_what_is_not_there_are_told_with_code_2() {
    for words in [
        &["--data", "/nonexistent/a/b"][..],
        &["--data", "/proc/self/status"],
        &["--power-test", "writer"],
        &["--power-test", "recorder"],
        &["--power-test", "nobody"],
        &["--listen", "127.0.0.1:0"],
        &["--power-test", "recorder", "--listen", "nonsense"],
        &["--power-test", "writer", "--recorder", "127.0.0.1:1", "--data", "/tmp"],
    ] {
        let output = doctor(words);
        assert_eq!(code(&output), 2, "{words:?}: {}", text(&output.stdout));
        assert!(!output.stderr.is_empty(), "{words:?}");
    }
}

/// A process of the power test; it goes when the test ends.
struct Side(Child, BufReader<ChildStdout>);

impl Side {
    fn start(words: &[&str]) -> Side {
        Side::run(&[&["doctor", "--power-test"], words].concat())
    }

    fn run(words: &[&str]) -> Side {
        let mut child = Command::new(BINARY).args(words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Side(child, lines)
    }

    /// Waits for a line with these words.
    fn line(&mut self, words: &str) -> String {
        let mut line = String::new();
        while !line.contains(words) {
            line.clear();
            assert!(self.1.read_line(&mut line).unwrap() > 0, "it ended before it said {words:?}");
        }
        line
    }

    /// kill -9
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        // One that has ended is what we want.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_power_test_tells_a_kept_record_from_a_lost_one() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let data = directory.path().to_str().unwrap();
    let mut recorder = Side::start(&["recorder", "--listen", "127.0.0.1:0"]);
    let address = recorder.line("recording on").trim().rsplit(' ').next().unwrap().to_owned();
    let verify =
        |more: &[&str]| doctor(&[&["--power-test", "verify", "--recorder", &address, "--data", data], more].concat());
    assert_eq!(code(&verify(&[])), 2, "before anything was written there is nothing to verify");

    let mut writer = Side::start(&["writer", "--recorder", &address, "--data", data]);
    writer.line("records acknowledged");
    writer.kill();
    recorder.line("is silent after number");
    let output = verify(&[]);
    assert_eq!(code(&output), 0, "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("lost 0"), "{}", text(&output.stdout));

    let outcome: serde_json::Value = serde_json::from_slice(&verify(&["--json"]).stdout).unwrap();
    let acknowledged = outcome["acknowledged"].as_u64().unwrap();
    assert!(acknowledged > 0 && outcome["lost"] == 0, "{outcome}");

    // A disk that lost the last record, one that tore it, and one that lost everything.
    let file = directory.path().join("power-test.records");
    let good = std::fs::read(&file).unwrap();
    let at = ((acknowledged - 1) as usize * 4096) % good.len();
    for (from, to) in [(0, 4096), (2048, 4096)] {
        let mut bad = good.clone();
        bad[at + from..at + to].fill(0);
        std::fs::write(&file, bad).unwrap();
        let output = verify(&[]);
        assert_eq!(code(&output), 1);
        assert!(text(&output.stdout).contains(&format!("LOST 1 acknowledged records, the first is {acknowledged}:")));
    }
    std::fs::remove_file(&file).unwrap();
    let output = verify(&[]);
    assert_eq!(code(&output), 1, "{}", text(&output.stdout));
}

/// A disk that loses its cache when the power is cut, and one that besides acknowledges syncs without doing them.
#[test]
fn the_power_test_sees_through_a_disk_that_lies() {
    if let Some(why) = holdfast_unsafe_disk::cannot_mount() {
        return skipped(&why);
    }
    for lies in [false, true] {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let place = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        let (mount, backing) = (place("mount"), place("backing"));
        std::fs::create_dir(&mount).unwrap();
        let words = ["unsafe-disk", &mount, "--backing", &backing];
        let mut disk = Side::run(&[&words[..], if lies { &["--lie"] } else { &[] }].concat());
        disk.line("ready");
        let mut recorder = Side::start(&["recorder", "--listen", "127.0.0.1:0"]);
        let address = recorder.line("recording on").trim().rsplit(' ').next().unwrap().to_owned();
        let mut writer = Side::start(&["writer", "--recorder", &address, "--data", &mount]);
        writer.line("records acknowledged");

        let control = |word: &str| Command::new(BINARY).args(["unsafe-disk", "ctl", &mount, word]).output().unwrap();
        assert!(control("cut").status.success());
        writer.kill();
        recorder.line("is silent after number");
        assert!(control("restore").status.success());

        let output = doctor(&["--power-test", "verify", "--recorder", &address, "--data", &mount]);
        let said = text(&output.stdout);
        assert_eq!(code(&output), i32::from(lies), "lies: {lies}: {said}{}", text(&output.stderr));
        assert!(said.contains(if lies { "LOST" } else { "lost 0" }), "{said}");

        // It unmounts when it is asked to end.
        let pid = rustix::process::Pid::from_child(&disk.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        disk.0.wait().unwrap();
    }
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_without_a_word() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut command = Command::new(BINARY);
    command.args(["doctor", "--json", "--data"]).arg(directory.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), text(&output.stderr)), (141, String::new()));
}
