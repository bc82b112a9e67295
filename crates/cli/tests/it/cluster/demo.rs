//! `holdfast cluster demo` loses its master twice and no acknowledged row; the cluster promotes the standby, not the demo.

use crate::node::succeeds;

fn loses_nothing(fault: &str) {
    let said = succeeds(&["cluster", "demo", "--fault", fault, "--seconds", "1", "--clients", "3", "--json"]);
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
    loses_nothing("server");
}

#[test]
fn the_demo_loses_no_acknowledged_row_when_the_node_is_killed_and_brings_the_old_master_back() {
    loses_nothing("node");
}

#[test]
fn the_demo_loses_no_acknowledged_row_when_the_node_is_frozen() {
    loses_nothing("stop");
}
