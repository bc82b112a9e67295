//! `holdfast lab` and `holdfast doctor --workload` start `holdfast-lab` from the directory of `holdfast`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory with the program in it and no `holdfast-lab` yet.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    std::fs::hard_link(env!("CARGO_BIN_EXE_holdfast"), directory.path().join("holdfast")).unwrap();
    directory
}

fn holdfast(directory: &Path, arguments: &[&str]) -> Output {
    Command::new(directory.join("holdfast")).args(arguments).output().unwrap()
}

/// Puts a `holdfast-lab` there that prints its arguments, one a line, and ends with code 7.
fn put_a_lab(directory: &Path) -> PathBuf {
    let path = directory.join("holdfast-lab");
    std::fs::write(&path, "#!/bin/sh\nprintf '%s\\n' \"$@\"\nexit 7\n").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn the_lab_gets_the_arguments_and_decides_the_exit_code() {
    let directory = directory();
    put_a_lab(directory.path());
    for arguments in [&["commit", "--quick", "--out", "a b"][..], &["--help"], &["--seconds", "1", "standby"]] {
        let output = holdfast(directory.path(), &[&["lab"], arguments].concat());
        assert_eq!(output.status.code(), Some(7));
        assert_eq!(String::from_utf8(output.stdout).unwrap().lines().collect::<Vec<_>>(), arguments);
    }
}

#[test]
fn ones_own_transactions_are_run_by_the_lab() {
    let directory = directory();
    put_a_lab(directory.path());
    let at = directory.path().canonicalize().unwrap();
    let at = at.to_str().unwrap();
    let output =
        holdfast(directory.path(), &["doctor", "--workload", "mine.sql", "--clients", "2,3", "--data", at, "--json"]);
    assert_eq!(output.status.code(), Some(7));
    let wanted = ["workload", "--clients", "2,3", "--data", at, "--json", "--", "mine.sql"];
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().collect::<Vec<_>>(), wanted);
}

#[test]
fn a_missing_lab_is_reported_with_the_command_that_builds_it() {
    let directory = directory();
    let at = directory.path().to_str().unwrap();
    for (arguments, code) in [(&["lab", "commit"][..], 1), (&["doctor", "--workload", "mine.sql", "--data", at], 2)] {
        let output = holdfast(directory.path(), arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let message = String::from_utf8(output.stderr).unwrap();
        assert!(message.contains("holdfast-lab does not exist"), "{message}");
        assert!(message.contains("cargo build --release -p holdfast-lab"), "{message}");
    }
}
