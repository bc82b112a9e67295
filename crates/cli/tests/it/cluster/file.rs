//! `holdfast cluster check` and `unit`, as an operator meets them.

use crate::node::{holdfast, refuses, succeeds};
use tempfile::TempDir;

const GOOD: &str = "name = \"shop\"\n[node.a]\nlinks = [\"127.0.0.1:7501\"]\ndata = \"/srv/holdfast\"\n\
                    [node.b]\nlinks = [\"127.0.0.1:7502\"]\ndata = \"/srv/holdfast-b\"\n\
                    [node.w]\nlinks = [\"127.0.0.1:7503\"]\ndata = \"/srv/witness\"\nwitness = true\n\
                    [database]\nnodes = [\"a\", \"b\"]\n";

fn written(text: &str) -> (TempDir, String) {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("cluster.toml");
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap().to_owned();
    (dir, file)
}

#[test]
fn every_flaw_is_reported_with_its_line_and_the_next_step() {
    let (_dir, file) = written(&GOOD.replace("\"a\", \"b\"", "\"a\", \"c\"").replace("/srv/witness", "witness"));
    let output = holdfast(&["cluster", "check", &file]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for expected in [
        ":10: data = \"witness\" is a relative path\n    write the whole path",
        ":13: there is no node c\n    name a node of this file",
        ":13: b holds data and is not named\n    add it",
    ] {
        assert!(said.contains(&format!("{file}{expected}")), "{said}");
    }
    let output = holdfast(&["cluster", "check", &file, "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["good"], json["flaws"].as_array().unwrap().len()), (&false.into(), 3), "{json}");
    assert_eq!(json["flaws"][0]["line"], 10);
    // Nothing is started from it.
    let said = refuses(&["cluster", "run", "--config", &file, "--node", "a"]);
    assert!(said.contains("3 flaws; see: holdfast cluster check"), "{said}");
}

#[test]
fn a_good_file_is_checked_with_this_machine() {
    let (_dir, file) = written(GOOD);
    let output = holdfast(&["cluster", "check", &file, "--node", "a", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["flaws"], serde_json::json!([]), "{json}");
    let findings = json["findings"].as_array().unwrap();
    assert!(findings.iter().any(|found| found["what"] == "node.a has one link, 127.0.0.1:7501"), "{json}");
    let is_bad = findings.iter().any(|found| found["severity"] == "bad");
    assert_eq!(output.status.code(), Some(i32::from(is_bad)));
    let said = refuses(&["cluster", "check", &file, "--node", "x"]);
    assert!(said.contains("has no node x; it has a, b, w"), "{said}");
}

#[test]
fn the_unit_lets_the_server_outlive_its_supervisor() {
    let (_dir, file) = written(GOOD);
    let unit = succeeds(&["cluster", "unit", "--config", &file, "--node", "a"]);
    for line in [
        &*format!("cluster run --config {file} --node a"),
        "\nKillMode=process\n",
        "\nRestart=always\n",
        "\nWatchdogSec=2\n",
        "\nOOMPolicy=continue\n",
        "\nRuntimeDirectory=holdfast/shop\n",
        "\nRuntimeDirectoryPreserve=yes\n",
    ] {
        assert!(unit.contains(line), "{line}: {unit}");
    }
}

#[test]
fn the_unit_of_a_server_without_a_cluster() {
    let dir = tempfile::TempDir::new().unwrap();
    let data = dir.path().join("data");
    let unit = succeeds(&["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:5433", "--unit"]);
    for line in [
        &*format!(" serve --data {} --listen 127.0.0.1:5433\n", data.display()),
        "\nKillMode=mixed\n",
        "\nTimeoutStopSec=infinity\n",
        "\nLimitNOFILE=1048576\n",
        "\nOOMScoreAdjust=-900\n",
    ] {
        assert!(unit.contains(line), "{line}: {unit}");
    }
    assert!(!data.exists(), "it makes nothing");
}

#[test]
fn without_a_supervisor_the_status_says_how_to_start_one() {
    let (_dir, file) = written(GOOD);
    let said = refuses(&["cluster", "status", "--config", &file, "--node", "a"]);
    assert!(said.contains("no supervisor answers at") && said.contains("holdfast cluster run"), "{said}");
}
