//! The studies as a person starts them: what only the whole program can be asked.

use std::path::Path;
use std::process::{Command, Output};

fn lab(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.arg("lab").args(arguments).arg("--out").arg(dir.join("report")).arg("--data-dir").arg(dir.join("data"));
    command.output().unwrap()
}

#[test]
fn a_quick_run_of_interactive_transactions_leaves_a_report_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let output = lab(dir.path(), &["interactive", "--quick", "--seconds", "1", "--only", "memory"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = std::fs::read_to_string(dir.path().join("report/results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(results["schema"], "holdfast-lab-interactive/1");
    assert_eq!(results["memory"][0]["server"], "holdfast");
    assert!(results["checks"].as_array().unwrap().iter().all(|check| check["holds"] == true), "{json}");
    let html = std::fs::read_to_string(dir.path().join("report/report.html")).unwrap();
    assert!(html.contains("</html>") && html.contains("<svg"));
    assert_eq!(std::fs::read_dir(dir.path().join("data")).unwrap().count(), 0);
}

#[test]
fn names_of_the_other_study_are_refused_with_those_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let output = lab(dir.path(), &["interactive", "--only", "unaudited"]);
    assert!(!output.status.success());
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("unaudited") && message.contains("long-transaction"), "{message}");
}
