//! A test that cannot run here, because a program or a right is missing: a skip that is counted by name, and a failure in CI.
//!
//! `cargo test` knows no end of a test other than passed and failed once it runs. So `cargo xtask test` names a file in the
//! environment, takes the lines of that file from what has passed, and prints them in its summary.

use std::io::Write as _;

/// The variable that names the file: one line for each test, its name, a tab, and why it did not run.
pub const SKIPPED_FILE: &str = "HOLDFAST_TEST_SKIPPED";

/// Reports that the running test does not run. Panics with CI=true: there the set-up is the project's own, and a part that is
/// missing would not be noticed. The caller returns.
pub fn skipped(why: &str) {
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "cannot run: {why}");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    eprintln!("SKIPPED {test}: {why}");
    if let Some(file) = std::env::var_os(SKIPPED_FILE) {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).expect("the list of skips");
        // One write: the tests of other binaries write there, too.
        file.write_all(format!("{test}\t{}\n", why.replace('\n', " ")).as_bytes()).expect("the list of skips");
    }
}
