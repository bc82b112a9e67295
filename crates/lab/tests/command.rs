//! The studies as a person starts them: what only the whole program can be asked.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

const LAB: &str = env!("CARGO_BIN_EXE_holdfast-lab");

/// The server program next to the lab's. A test run of the whole workspace has built it; this builds it where only the lab's
/// tests were asked for.
fn server() -> &'static Path {
    static SERVER: OnceLock<PathBuf> = OnceLock::new();
    SERVER.get_or_init(|| {
        let directory = Path::new(LAB).parent().unwrap();
        let server = directory.join("holdfast");
        if !server.exists() {
            let mut build = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
            build.args(["build", "-p", "holdfast"]).current_dir(env!("CARGO_MANIFEST_DIR"));
            build.args(directory.ends_with("release").then_some("--release"));
            assert!(build.status().unwrap().success(), "cannot build the server");
        }
        server
    })
}

fn lab(dir: &Path, arguments: &[&str]) -> Output {
    std::fs::create_dir_all(dir.join("data")).unwrap();
    let mut command = Command::new(LAB);
    command
        .arg("--server")
        .arg(server())
        .args(arguments)
        .arg("--out")
        .arg(dir.join("report"))
        .arg("--data-dir")
        .arg(dir.join("data"));
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
    check_head(&results, &html);
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
        holdfast_seams::testing::skipped(&format!("the paper's disk: no unsafe disk can be mounted here: {why}"));
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
    check_head(&results, &html);
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
    // Only what is missing is sent. How much that is follows the speed of the machine, so the two are compared with
    // each other, not with the size of the copy.
    assert!(missing > 0 && came > 0 && came < missing, "{json}");
    let html = std::fs::read_to_string(dir.path().join("report/report.html")).unwrap();
    assert!(html.contains("</html>") && html.contains("<svg"));
    check_head(&results, &html);
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
    for point in distances.iter().filter(|point| point["round_trip_ms"] == 2.0 && point["level"] != "local") {
        // However slow the machine is: whoever waits for the standby waits for the way there and back.
        assert!(point["p50_us"].as_f64().unwrap() >= 2000.0 && point["link_us"].as_f64().unwrap() >= 2000.0, "{point}");
        assert!(point["added_round_trips"].is_number(), "{point}");
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(list("own_cores").len(), if cores > 1 { 2 } else { 0 });
    let masters: Vec<_> = list("shared_node").iter().map(|shared| shared["masters"].clone()).collect();
    assert_eq!(masters, [1, 1, 3]);
    let governed: Vec<_> = list("governed").iter().map(|g| (g["governor"].clone(), g["load_factor"].clone())).collect();
    let seconds: Vec<_> = list("governed").iter().map(|g| g["seconds"].clone()).collect();
    assert_eq!(seconds[0], seconds[1], "the governor on and off for the same time");
    assert_eq!(governed, [("on".into(), 1.3.into()), ("off".into(), 1.3.into()), ("on".into(), 2.0.into())]);
    // Of all three pairs the nodes agree on three tables, and what was acknowledged is there.
    let checks = list("checks");
    assert!(checks.len() == 12 && checks.iter().all(|check| check["holds"] == true), "{json}");
    let html = std::fs::read_to_string(dir.path().join("report/report.html")).unwrap();
    assert!(html.contains("</html>") && html.contains("A standby at a distance"));
    check_head(&results, &html);
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

#[test]
fn ones_own_transactions_are_run_with_every_setting() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let script = directory.path().join("mine.sql");
    let good = "CREATE TABLE t (id int PRIMARY KEY, v int);\nINSERT INTO t VALUES (1, 0), (2, 0);\n\\transaction\n\\set id \
                random(1, 2)\nBEGIN;\nUPDATE t SET v = v + 1 WHERE id = :id;\nCOMMIT;\n";
    std::fs::write(&script, good).unwrap();
    let workload = || {
        // As `holdfast doctor --workload` starts it.
        let mut command = Command::new(LAB);
        command.args(["workload", "--clients", "2", "--data-dir"]).arg(directory.path());
        command.args(["--seconds", "1", "--json", "--server"]).arg(server()).arg("--").arg(&script);
        command.output().unwrap()
    };
    let output = workload();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let results: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let points = results["points"].as_array().unwrap();
    assert_eq!(points.len(), 5, "{results}");
    assert!(points.iter().all(|point| point["transactions"].as_u64() > Some(0)), "{results}");
    let names: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["mine.sql"], "nothing stays");

    for (script_text, part) in [("SELECT 1;", "no \\transaction"), ("\\transaction\nSELECT nonsense;", "nonsense")] {
        std::fs::write(&script, script_text).unwrap();
        let output = workload();
        assert_eq!(output.status.code(), Some(2));
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_data_directory_that_does_not_exist_is_wrong_usage_and_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let typo = dir.path().join("typo");
    let output = Command::new(LAB).args(["commit", "--data-dir"]).arg(&typo).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("typo is not a directory; make it first"), "{message}");
    assert!(!typo.exists());
}

/// What every study's results have: the paper, the machine's load, and a verdict for each goal.
fn check_head(results: &serde_json::Value, html: &str) {
    let paper = results["paper"].as_str().unwrap();
    assert!(!paper.is_empty() && html.contains(&paper.replace('&', "&amp;")));
    let machine = results["machine"].as_array().unwrap();
    let facts: Vec<_> = machine.iter().map(|fact| fact["name"].as_str().unwrap()).collect();
    for name in ["Load average at the start (1, 5, 15 min)", "Load average at the end (1, 5, 15 min)"] {
        assert!(facts.contains(&name) && html.contains(name), "{name}: {facts:?}");
    }
    for finding in results["findings"].as_array().unwrap().iter().filter(|finding| finding["goal"].is_string()) {
        assert!(["met", "missed", "not_measured"].contains(&finding["verdict"].as_str().unwrap()), "{finding}");
    }
}

#[test]
fn a_missing_server_program_is_reported_with_the_command_that_builds_it() {
    let dir = tempfile::tempdir().unwrap();
    let arguments = ["interactive", "--quick", "--only", "memory", "--server", "/nonexistent/holdfast"];
    let output = Command::new(LAB).args(arguments).arg("--out").arg(dir.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(message.contains("/nonexistent/holdfast does not exist") && message.contains("cargo build"), "{message}");
}

#[test]
fn a_quick_run_of_speed_leaves_a_report_and_its_history() {
    if Command::new("pgbench").arg("--version").output().is_err() {
        return holdfast_seams::testing::skipped("the study of speed: pgbench is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let run = || {
        let output = lab(dir.path(), &["speed", "--quick", "--seconds", "1", "--only", "pause,insert-1,row-by-key"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let json = std::fs::read_to_string(dir.path().join("report/results.json")).unwrap();
        serde_json::from_str::<serde_json::Value>(&json).unwrap()
    };
    let first = run();
    assert_eq!(first["schema"], "holdfast-lab-speed/1");
    assert_eq!(first["history"].as_array().unwrap().len(), 0);
    let lines = first["lines"].as_array().unwrap();
    let rows: Vec<_> = lines.iter().map(|line| line["row"].as_str().unwrap()).collect();
    assert_eq!(rows, ["insert-1", "row-by-key", "pause"], "the table's order");
    for line in lines {
        assert!(line["holdfast"]["value"].as_f64().unwrap() > 0.0, "{line}");
        assert!(line["floor"]["value"].as_f64().unwrap() > 0.0, "{line}");
        assert!(line["ratio"].is_null() && line["missing"].as_array().unwrap().is_empty(), "{line}");
    }
    // Of an insert a sync of its bytes is the floor, of a read the messages are.
    assert!(lines[0]["floor"]["sync"]["bytes"].as_u64().unwrap() >= 4096, "{}", lines[0]);
    assert!(lines[1]["floor"]["sync"].is_null(), "{}", lines[1]);
    let second = run();
    let earlier = second["history"].as_array().unwrap();
    assert!(earlier.len() == 1 && earlier[0]["lines"][0]["value"] == lines[0]["holdfast"]["value"], "{second}");
    assert_eq!(second["lines"][0]["changes"][0]["before"], lines[0]["holdfast"]["value"]);
    let html = std::fs::read_to_string(dir.path().join("report/report.html")).unwrap();
    assert!(html.contains("</html>") && html.contains("<svg") && html.contains("Earlier runs"));
    check_head(&second, &html);
    assert_eq!(std::fs::read_dir(dir.path().join("data")).unwrap().count(), 0);
}
