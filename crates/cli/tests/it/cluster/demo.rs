//! `holdfast cluster demo` loses its master twice and no acknowledged row; the cluster promotes the standby, not the demo.

use crate::node::{refuses, succeeds};

fn loses_nothing(fault: &[&str]) {
    let said = succeeds(
        &[&["cluster", "demo", "--seconds", "1", "--clients", "3", "--json", "--lease-ms", "3000"], fault].concat(),
    );
    let result: serde_json::Value = serde_json::from_str(&said).unwrap();
    let acknowledged = result["acknowledged"].as_u64().unwrap();
    let rounds = result["rounds"].as_array().unwrap();
    assert_eq!(rounds.iter().map(|round| round["master"].as_str().unwrap()).collect::<Vec<_>>(), ["a", "b"], "{said}");
    for round in rounds {
        let number = |name: &str| round[name].as_u64().unwrap_or_else(|| panic!("no {name} in {said}"));
        assert_eq!((number("lost"), number("foreign")), (0, 0), "{said}");
        assert!(
            number("first_commit_ms") >= number("promoted_ms") && number("promoted_ms") >= number("named_ms"),
            "{said}"
        );
    }
    assert!(acknowledged > 0 && rounds[1]["found"].as_u64().unwrap() >= acknowledged, "{said}");
}

#[test]
fn the_demo_loses_no_acknowledged_row_when_the_server_is_killed() {
    loses_nothing(&["--fault", "server"]);
}

#[test]
fn the_demo_loses_no_acknowledged_row_when_the_node_is_killed_and_brings_the_old_master_back() {
    loses_nothing(&["--fault", "node"]);
}

#[test]
fn the_demo_loses_no_acknowledged_row_when_the_node_is_frozen() {
    loses_nothing(&["--fault", "stop"]);
}

/// Each node has its own network, and the master's cable is pulled: clients on its machine still reach it, and it acknowledges nothing.
/// Without the right to make namespaces the demo says what it needs.
#[test]
fn the_demo_loses_no_acknowledged_row_when_a_cable_is_pulled() {
    let name = format!("hfprobe{}", std::process::id());
    let ip = |arguments: &[&str]| {
        std::process::Command::new("ip").args(arguments).output().is_ok_and(|output| output.status.success())
    };
    let can = ip(&["netns", "add", &name])
        && ip(&["-n", &name, "link", "add", "sw", "type", "bridge"])
        && ip(&["-n", &name, "link", "add", "name", "a", "type", "veth", "peer", "name", "b"]);
    ip(&["netns", "del", &name]);
    if can {
        return loses_nothing(&["--netns", "--fault", "cable"]);
    }
    let said = refuses(&["cluster", "demo", "--netns", "--fault", "cable"]);
    assert!(said.contains("--netns needs"), "{said}");
}

#[test]
fn a_cable_needs_namespaces() {
    let said = refuses(&["cluster", "demo", "--fault", "cable"]);
    assert!(said.contains("--fault cable needs --netns"), "{said}");
}
