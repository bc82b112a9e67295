//! Small workspaces, each with one thing that is wrong or allowed.

use std::path::Path;

use super::check::{self, CrateReport};
use super::graph;
use super::table::Table;

/// A workspace of one crate `house` with these files below `src`, checked against the rules of a table.
fn house(files: &[(&str, &str)], rules: &str) -> CrateReport {
    let root = tempfile::tempdir().expect("a temporary directory");
    crate_at(root.path(), "house", "", files);
    checked(root.path(), rules)
}

fn crate_at(root: &Path, name: &str, dependencies: &str, files: &[(&str, &str)]) {
    let directory = root.join("crates").join(name);
    std::fs::create_dir_all(directory.join("src")).expect("created");
    let manifest = format!("[package]\nname = \"holdfast-{name}\"\n[dependencies]\n{dependencies}");
    std::fs::write(directory.join("Cargo.toml"), manifest).expect("written");
    for (path, text) in files {
        let path = directory.join("src").join(path);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        std::fs::write(path, text).expect("written");
    }
}

fn checked(root: &Path, rules: &str) -> CrateReport {
    let table: Table = toml::from_str(&format!("circle_files_max = 2\n[crates.house]\n{rules}")).expect("a table");
    let mut report = check::workspace(root, &table, Some("house")).expect("readable sources");
    report.crates.remove(0)
}

/// The edges as `from -> to`.
fn edges(report: &CrateReport) -> Vec<String> {
    report.edges.iter().map(|edge| format!("{} -> {}", edge.from, edge.to)).collect()
}

#[test]
fn a_circle_of_three_files_fails_and_one_of_two_does_not() {
    let two = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "use crate::a::A; pub struct B;"),
    ];
    let report = house(&two, "");
    assert_eq!(report.circles.len(), 1);
    assert!(report.is_clean());

    let files = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::B; pub struct A;"),
        ("b.rs", "pub struct B; fn f() { super::c::g() }"),
        ("c.rs", "pub fn g() {} fn h(_: &crate::a::A) {}"),
    ];
    let report = house(&files, "");
    assert_eq!(edges(&report), ["a.rs -> b.rs", "b.rs -> c.rs", "c.rs -> a.rs"]);
    assert!(report.circles[0].too_large && !report.is_clean());

    let report = house(&files, "circle_files_today = 3");
    assert!(report.is_clean(), "an exception of today's size");
    let report = house(&files, "circle_files_today = 4");
    assert_eq!(report.notes, ["circle_files_today can be 3 (it is 4)"]);
}

#[test]
fn a_module_with_its_own_children_is_no_circle() {
    let files = [
        ("lib.rs", "mod a; mod other; pub struct Root;"),
        ("a/mod.rs", "mod one; mod two; mod three; pub struct A; fn f() { one::f(); two::f(); three::f() }"),
        ("a/one.rs", "use super::A; use crate::Root; pub fn f() {}"),
        ("a/two.rs", "use super::A; pub fn f() {}"),
        ("a/three.rs", "use super::A; pub fn f() {}"),
        ("other.rs", ""),
    ];
    let report = house(&files, "");
    assert!(report.circles.is_empty(), "{:?}", report.circles);
    assert_eq!(report.edges.len(), 7);

    // Through a module that is not below it, it is one.
    let mut files = files;
    files[5].1 = "use crate::a::one::f; pub struct O;";
    files[2].1 = "use super::A; pub fn f() {}";
    files[1].1 = "pub mod one; mod two; mod three; use crate::other::O; pub struct A;";
    let report = house(&files, "");
    assert_eq!(report.circles[0].files, ["a/mod.rs", "a/one.rs", "other.rs"]);
}

#[test]
fn an_import_that_goes_up_a_floor_fails() {
    let files = [
        ("lib.rs", "mod roof; mod cellar; pub use roof::Roof;"),
        ("roof.rs", "use crate::cellar::Wine; pub struct Roof(Wine);"),
        ("cellar/mod.rs", "mod shelf; pub struct Wine;"),
        ("cellar/shelf.rs", "use crate::Roof;"),
    ];
    let report = house(&files, "floors = [[\"roof\"], [\"cellar\"]]");
    let upward: Vec<_> = report.upward.iter().map(|edge| (edge.from.as_str(), edge.to.as_str(), edge.line)).collect();
    assert_eq!(upward, [("cellar/shelf.rs", "roof.rs", 1)]);
    assert!(!report.is_clean());

    let excepted = "floors = [[\"roof\"], [\"cellar\"]]\nupward_today = [\"cellar/shelf.rs -> roof.rs\", \"a -> b\"]";
    let report = house(&files, excepted);
    assert!(report.is_clean());
    assert_eq!((report.exceptions, report.notes.len()), (1, 1), "{:?}", report.notes);

    let report = house(&files, "floors = [[\"roof\", \"cellar/shelf\"], [\"cellar\"]]");
    assert!(report.is_clean(), "the longest prefix decides: {:?}", report.upward);

    let report = house(&files, "floors = [[\"*\"], [\"cellar\"]]");
    assert_eq!(report.upward.len(), 1, "the roof is among the others");
}

#[test]
fn a_file_without_a_floor_and_a_floor_without_a_file_fail() {
    let report = house(&[("lib.rs", "mod a; mod b;"), ("a.rs", ""), ("b.rs", "")], "floors = [[\"a\"], [\"c\"]]");
    let faults = ["b.rs is on no floor of layers.toml", "layers.toml names c, and no file is there"];
    assert_eq!(report.faults, faults);
}

#[test]
fn names_lead_through_re_exports_globs_and_modules_to_their_file() {
    let files = [
        ("lib.rs", "mod face; mod user; mod maker; mod other; mod third;"),
        ("face.rs", "pub use crate::maker::*; pub use super::other::Other as Renamed; pub use std::fmt::Debug;"),
        ("maker.rs", "pub struct Made; pub enum Kind { One }"),
        ("other.rs", "pub struct Other;"),
        ("third.rs", "pub fn third() {} pub mod inner { pub const C: u8 = 1; }"),
        ("user.rs", "use crate::face::{self, Made, Debug}; fn f() -> face::Renamed { crate::third::inner::C }"),
    ];
    let found = edges(&house(&files, ""));
    assert_eq!(found, ["face.rs -> other.rs", "user.rs -> maker.rs", "user.rs -> other.rs", "user.rs -> third.rs"]);
}

#[test]
fn paths_inside_macros_count_and_macros_themselves() {
    let files = [
        ("lib.rs", "#[macro_use] mod m; mod a; mod b;"),
        ("m.rs", "macro_rules! twice { ($x:expr) => { $crate::b::g($x) } }"),
        ("a.rs", "fn f() { println!(\"{}\", crate::b::g(1)); }"),
        ("b.rs", "pub fn g(_: u8) -> u8 { twice!(1) }"),
    ];
    assert_eq!(edges(&house(&files, "")), ["a.rs -> b.rs", "b.rs -> m.rs", "m.rs -> b.rs"]);
}

#[test]
fn code_for_tests_does_not_count() {
    let files = [
        ("lib.rs", "mod a; mod b; #[cfg(test)] mod tests;"),
        ("a.rs", "#[cfg(test)] use crate::b::B; #[cfg(test)] mod tests { use crate::b::B; } pub struct A;"),
        ("b.rs", "use crate::a::A; pub struct B; impl B { #[cfg(test)] fn f(_: crate::A) {} }"),
    ];
    assert_eq!(edges(&house(&files, "")), ["b.rs -> a.rs"]);
}

#[test]
fn a_forbidden_dependency_fails_through_another_crate_too() {
    let root = tempfile::tempdir().expect("a temporary directory");
    crate_at(
        root.path(),
        "house",
        "holdfast-shed = \"1\"\nserde = \"1\"\n",
        &[("lib.rs", "use std::net::{self, IpAddr};")],
    );
    crate_at(root.path(), "shed", "rusqlite = \"1\"\n", &[("lib.rs", "")]);
    let report = checked(root.path(), "never = [\"rusqlite\", \"tokio\", \"std::net\"]\nknows = [\"barn\"]");
    assert_eq!(
        report.faults,
        [
            "lib.rs:1 names std::net; layers.toml forbids std::net here",
            "lib.rs:1 names std::net::IpAddr; layers.toml forbids std::net here",
            "depends on shed; layers.toml allows barn",
            "depends on rusqlite (house -> shed -> rusqlite); layers.toml forbids it",
        ]
    );
    assert!(checked(root.path(), "never = [\"tokio\"]\nknows = [\"shed\"]").is_clean());
}

#[test]
fn circles_are_found_with_ways_out_and_in() {
    let edges = [(0, 1), (1, 2), (2, 1), (2, 3), (3, 4), (4, 5), (5, 3), (6, 0)];
    assert_eq!(graph::circles(7, edges.into_iter()), [vec![3, 4, 5], vec![1, 2]]);
    assert!(graph::circles(3, [(0, 1), (1, 2), (0, 2)].into_iter()).is_empty());
}
