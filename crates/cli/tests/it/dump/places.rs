//! Several servers, one archive, one place for dumps; and the rules by which dumps are forgotten.

use super::bed::{Bed, SMALL, fill, sum};
use crate::node::{Node, holdfast, run, succeeds};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_with_one_archive_and_one_place_never_mix() {
    let bed = Bed::start();
    let mut other = Node::new(&bed.scratch, "b");
    other.configure(&format!("{SMALL}archive = \"{}\"", bed.archive.display()));
    other.start();
    let (one, two) = (bed.node.connect().await, other.connect().await);
    fill(&one, 2).await;
    fill(&two, 3).await;
    let (first, second) = (bed.dump(), bed.dump_of(&other.at()));
    fill(&one, 3).await;
    fill(&two, 4).await;
    let expected = (sum(&bed.node).await, sum(&other).await);
    bed.until_archived(&one).await;
    bed.until_archived(&two).await;
    let error = bed.restore_fails("restored", &[]);
    assert!(error.contains("dumps of 2 trails"), "{error}");
    for (name, dump, expected) in [("one", &first, &expected.0), ("two", &second, &expected.1)] {
        let dump = dump["name"].as_str().unwrap();
        let line = error.lines().find(|line| line.contains(dump)).unwrap_or_else(|| panic!("{error}"));
        assert!(line.contains(": server ") && line.contains("databases holdfast, postgres"), "{line}");
        // What the line begins with is the choice.
        let choice: Vec<&str> = line.trim().split(':').next().unwrap().split(' ').collect();
        let (restored, mut node) = bed.restore(name, &choice);
        assert_eq!(restored["dump"], dump);
        node.start();
        assert_eq!(sum(&node).await, *expected);
        // Neither the last of the one nor of the other is forgotten.
    }
    succeeds(&["dump", "forget", "--from", bed.place(), "--keep-last", "1"]);
    let listed = succeeds(&["dump", "list", "--from", bed.place()]);
    assert!([&first, &second].iter().all(|dump| listed.contains(dump["name"].as_str().unwrap())), "{listed}");
    assert!(bed.verify().0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn places_and_rules_that_are_not_given_are_refused() {
    let bed = Bed::start();
    run(&bed.node.connect().await, "create table t(k int)").await;
    let fails = |arguments: &[&str]| {
        let output = holdfast(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let at = bed.node.at();
    let nowhere = bed.path("nowhere").display().to_string();
    assert!(fails(&["dump", "create", "--at", &at, "--to", &nowhere]).contains("the directory does not exist"));
    assert!(!bed.path("nowhere").exists());
    assert!(fails(&["dump", "create", "--at", &at, "--to", "ftp://x/y"]).contains("ftp:// is not known"));
    assert!(fails(&["dump", "create", "--at", "127.0.0.1:1", "--to", bed.place()]).contains("127.0.0.1:1"));
    assert!(fails(&["dump", "forget", "--from", bed.place()]).contains("--keep-last"));
    assert!(fails(&["restore", "--from", bed.place(), "--data", &nowhere]).contains("has no dump"));
    let archive = bed.archive.to_str().unwrap();
    let link = bed.path("link");
    std::os::unix::fs::symlink(archive, &link).unwrap();
    for to in [archive, link.to_str().unwrap()] {
        let said = fails(&["dump", "create", "--at", &at, "--to", to]);
        assert!(said.contains("is the server's archive") && said.contains("Name another directory"), "{said}");
    }
    assert!(!bed.archive.join("chunks").exists() && !bed.archive.join("dumps").exists());
    let two = ["restore", "--from", bed.place(), "--data", &nowhere, "--to-lsn", "1", "--to-time", "2026-01-01 00:00"];
    assert_eq!(holdfast(&two).status.code(), Some(2));
    let no_lsn = holdfast(&["restore", "--from", bed.place(), "--data", &nowhere, "--to-lsn", "0/x"]);
    let said = String::from_utf8_lossy(&no_lsn.stderr);
    assert!(no_lsn.status.code() == Some(2) && said.contains("0/34001000"), "{said}");
    // Only the mark of the killed attempt, if any: nothing was stored.
    assert_eq!(succeeds(&["dump", "list", "--from", bed.place(), "--json"]).trim(), "[]");
    let (first, second) = (bed.dump(), bed.dump());
    let keep = ["dump", "forget", "--from", bed.place(), "--keep-daily", "7"];
    let shown = succeeds(&[&keep[..], &["--dry-run"]].concat());
    assert!(shown.contains(&format!("would be removed: {}", first["name"].as_str().unwrap())), "{shown}");
    assert!(succeeds(&keep).contains("1 dumps stay, 1 removed"));
    assert!(succeeds(&["dump", "list", "--from", bed.place()]).contains(second["name"].as_str().unwrap()));
}
