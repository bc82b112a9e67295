//! A trail that the same process closes and opens again: its end is known, not searched. The development build compares both.

use super::real_disk::{append_all, open, options, records};
use holdfast_trail::TrailOptions;

#[test]
fn it_ends_where_it_was_closed_wherever_that_is() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(&dir.path().join("trail"));
    let (mut trail, found) = open(options.clone()).unwrap();
    let mut all = Vec::new();
    // A segment holds 63 such boxcars, so some of the closes are at a segment's very end and beginning.
    for count in [0, 1, 2, 60, 1, 1, 1, 1, 200, 3] {
        all.extend(append_all(&trail, count, 3000));
        let end = trail.durable();
        assert_eq!(trail.closed(), None, "it is open");
        trail.close().unwrap();
        let closed = trail.closed();
        assert!(closed.is_some() && trail.durable() >= end);
        let (again, recovered) = open(TrailOptions { closed, ..options.clone() }).unwrap();
        assert_eq!((recovered.end, recovered.cut), (trail.durable(), None));
        trail = again;
        assert_eq!(records(&trail, found.first).concat(), all);
    }
    trail.close().unwrap();
    let (trail, _) = open(options).unwrap();
    assert_eq!(records(&trail, found.first).concat(), all, "a search finds the same");
}

#[test]
fn what_another_open_has_appended_is_not_overlooked() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(&dir.path().join("trail"));
    let (trail, found) = open(options.clone()).unwrap();
    let mut all = append_all(&trail, 5, 100);
    trail.close().unwrap();
    let old = trail.closed();
    let (trail, _) = open(options.clone()).unwrap();
    all.extend(append_all(&trail, 5, 100));
    trail.close().unwrap();
    let (trail, recovered) = open(TrailOptions { closed: old, ..options }).unwrap();
    assert_eq!(recovered.end, trail.durable());
    assert_eq!(records(&trail, found.first).concat(), all);
}
