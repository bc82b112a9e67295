//! `holdfast cluster demo` loses its master and no acknowledged row.

use crate::node::succeeds;

#[test]
fn the_demo_loses_no_acknowledged_row_and_brings_the_old_master_back() {
    let said = succeeds(&["cluster", "demo", "--seconds", "1", "--clients", "3", "--json"]);
    let result: serde_json::Value = serde_json::from_str(&said).unwrap();
    let number = |name: &str| result[name].as_u64().unwrap_or_else(|| panic!("no {name} in {said}"));
    assert_eq!((number("lost"), number("foreign")), (0, 0), "{said}");
    assert!(number("acknowledged") > 0 && number("found") >= number("acknowledged"), "{said}");
    assert!(number("first_commit_ms") >= number("promoted_ms"), "{said}");
}
