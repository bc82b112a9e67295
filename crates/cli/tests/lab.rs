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

#[test]
fn a_quick_run_of_commits_leaves_a_report_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let without = holdfast_unsafe_disk::cannot_mount();
    if let Some(why) = &without {
        eprintln!("SKIPPED: the paper's disk, since no unsafe disk can be mounted here: {why}");
    }
    let output = lab(dir.path(), &["commit", "--quick", "--seconds", "1"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let json = std::fs::read_to_string(dir.path().join("report/results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(results["schema"], "holdfast-lab-commit/1");
    let rates = results["rates"].as_array().unwrap();
    assert!(rates.iter().all(|rate| rate["tps"].as_f64().unwrap() > 0.0), "{json}");
    let measured = |disk: &str| rates.iter().filter(|rate| rate["disk"] == disk).count();
    // Two delays with one and four clients; on the paper's disk the three other forms of cache and barrier as well.
    assert_eq!((measured("paper"), measured("real")), (if without.is_some() { 0 } else { 10 }, 4), "{json}");
    assert!(without.is_none() || told.contains("/dev/fuse"), "{told}");
    let html = std::fs::read_to_string(dir.path().join("report/report.html")).unwrap();
    assert!(html.contains("</html>") && html.contains("<svg"));
    assert_eq!(std::fs::read_dir(dir.path().join("data")).unwrap().count(), 0);
}

#[test]
fn a_quick_run_of_a_standby_leaves_a_report_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let output = lab(dir.path(), &["standby", "--quick", "--seconds", "1", "--only", "levels,catch-up"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = std::fs::read_to_string(dir.path().join("report/results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(results["schema"], "holdfast-lab-standby/1");
    let levels = results["levels"].as_array().unwrap();
    assert!(levels.iter().all(|rate| rate["tps"].as_f64().unwrap() > 0.0), "{json}");
    // Five levels, and two of them again at an equal rate.
    assert_eq!(levels.len(), 7);
    // The nodes agree on three tables, and what was acknowledged is there.
    let checks = results["checks"].as_array().unwrap();
    assert!(checks.len() == 4 && checks.iter().all(|check| check["holds"] == true), "{json}");
    let quiet = &results["catch_ups"][0];
    let (missing, came) = (quiet["missing_bytes"].as_u64().unwrap(), quiet["link_bytes"].as_u64().unwrap());
    assert!(missing > 0 && came > 0 && came < quiet["copy_bytes"].as_u64().unwrap() / 10, "{json}");
    let html = std::fs::read_to_string(dir.path().join("report/report.html")).unwrap();
    assert!(html.contains("</html>") && html.contains("<svg"));
    assert_eq!(std::fs::read_dir(dir.path().join("data")).unwrap().count(), 0);
}

#[test]
fn a_quick_run_of_distances_cores_and_several_masters_leaves_a_report_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let parts = "distance,own-cores,three-masters,governor";
    let output = lab(dir.path(), &["standby", "--quick", "--seconds", "1", "--only", parts]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let json = std::fs::read_to_string(dir.path().join("report/results.json")).unwrap();
    let results: serde_json::Value = serde_json::from_str(&json).unwrap();
    let list = |name: &str| results[name].as_array().unwrap_or_else(|| panic!("no {name}")).clone();
    // Two distances, four levels, one client and several.
    let distances = list("distances");
    assert_eq!(distances.len(), 16);
    for point in distances.iter().filter(|point| point["round_trip_ms"] == 2.0 && point["level"] != "cold") {
        // However slow the machine is: whoever waits for the standby waits for the way there and back.
        assert!(point["p50_us"].as_f64().unwrap() >= 2000.0 && point["link_us"].as_f64().unwrap() >= 2000.0, "{point}");
        assert!(point["added_round_trips"].is_number(), "{point}");
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(list("own_cores").len(), if cores > 1 { 2 } else { 0 });
    let masters: Vec<_> = list("shared_node").iter().map(|shared| shared["masters"].clone()).collect();
    assert_eq!(masters, [1, 1, 3]);
    let governed: Vec<_> = list("governed").iter().map(|g| (g["governor"].clone(), g["load_factor"].clone())).collect();
    assert_eq!(governed, [("on".into(), 1.3.into()), ("off".into(), 1.3.into()), ("on".into(), 2.0.into())]);
    // Of all three pairs the nodes agree on three tables, and what was acknowledged is there.
    let checks = list("checks");
    assert!(checks.len() == 12 && checks.iter().all(|check| check["holds"] == true), "{json}");
    let html = std::fs::read_to_string(dir.path().join("report/report.html")).unwrap();
    assert!(html.contains("</html>") && html.contains("A standby at a distance"));
    assert_eq!(std::fs::read_dir(dir.path().join("data")).unwrap().count(), 0);
}

#[test]
fn options_out_of_bounds_are_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    for (arguments, told) in [
        (&["commit", "--seconds", "0"][..], "--seconds"),
        (&["commit", "--clients", "1,0"], "--clients"),
        (&["commit", "--only", "memory"], "--disk"),
        (&["standby", "--only", "distance,mars"], "three-masters"),
    ] {
        let output = lab(dir.path(), arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains(told), "{message}");
    }
}
