//! `holdfast cluster demo` loses its master and no acknowledged row; the cluster promotes the standby, not the demo.

use crate::node::succeeds;

fn loses_nothing(fault: &str) {
    let said = succeeds(&["cluster", "demo", "--fault", fault, "--seconds", "1", "--clients", "3", "--json"]);
    let result: serde_json::Value = serde_json::from_str(&said).unwrap();
    let number = |name: &str| result[name].as_u64().unwrap_or_else(|| panic!("no {name} in {said}"));
    assert_eq!((number("lost"), number("foreign")), (0, 0), "{said}");
    assert!(number("acknowledged") > 0 && number("found") >= number("acknowledged"), "{said}");
    assert!(
        number("first_commit_ms") >= number("promoted_ms") && number("promoted_ms") >= number("named_ms"),
        "{said}"
    );
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
