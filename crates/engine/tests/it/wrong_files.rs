//! Files that do not belong to the trail beside them: each a refusal that says why (the table in `recovery`).

use crate::support::client::step;
use holdfast_engine::{Collect, Engine, Options, Submission};
use holdfast_types::schema::Dialect;
use std::path::{Path, PathBuf};

const ONE: &str = "volumes/000001-one.db";
const TWO: &str = "volumes/000002-two.db";

fn open(dir: &Path) -> Engine {
    let initial_databases = ["one", "two"].map(|n| (n.to_owned(), Dialect::Sqlite)).to_vec();
    Engine::open(dir, Options { initial_databases, ..Options::default() }).unwrap()
}

/// Changes both databases and stops cleanly.
fn change(dir: &Path) {
    let e = open(dir);
    for name in ["one", "two"] {
        let db = e.database(name).unwrap();
        for sql in ["create table if not exists t(x)", "insert into t values(1)"] {
            let steps = vec![step(&db, sql).unwrap()];
            db.submit(Submission::new(steps, Box::new(Collect::new()))).unwrap().wait().unwrap().result.unwrap();
        }
    }
    e.close().unwrap();
}

fn copy(from: PathBuf, to: PathBuf) {
    assert!(std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
}

/// A file that is not as it was left keeps the directory from being opened: nobody may think that all is well.
fn refusal(dir: &Path) -> String {
    let initial_databases = vec![];
    Engine::open(dir, Options { initial_databases, ..Options::default() }).err().expect("refused").to_string()
}

/// RULE 6: idle volumes pin no trail, so an older file cannot be brought up to date; the checkpoint record tells.
#[test]
fn an_older_file() {
    let dir = tempfile::tempdir().unwrap();
    change(dir.path());
    let kept = dir.path().join("kept");
    copy(dir.path().join(ONE), kept.clone());
    change(dir.path());
    copy(kept, dir.path().join(ONE));
    let refused = refusal(dir.path());
    assert!(refused.contains("an older file was put in its place"), "{refused}");
}

/// RULE 14: the position is in the file, and the trail must reach as far.
#[test]
fn a_file_of_a_later_trail() {
    let dir = tempfile::tempdir().unwrap();
    change(dir.path());
    let earlier = tempfile::tempdir().unwrap();
    copy(dir.path().join("."), earlier.path().to_owned());
    change(dir.path());
    copy(dir.path().join(ONE), earlier.path().join(ONE));
    let refused = refusal(earlier.path());
    assert!(refused.contains("the trail only at"), "{refused}");
}

/// RULE 14: a volume's id is in the checksum of each of its pages.
#[test]
fn the_file_of_another_database() {
    let dir = tempfile::tempdir().unwrap();
    change(dir.path());
    copy(dir.path().join(TWO), dir.path().join(ONE));
    let refused = refusal(dir.path());
    assert!(refused.contains("page 1") && refused.contains("checksum"), "{refused}");
}

/// RULE 13: a change while nobody served the file.
#[test]
fn a_file_somebody_else_wrote_to() {
    let dir = tempfile::tempdir().unwrap();
    change(dir.path());
    let path = dir.path().join(ONE);
    let flags = holdfast_store::sqlite::OpenFlags { write: true, create: false };
    let mut conn = holdfast_store::sqlite::Conn::open(path.to_str().unwrap(), flags, None).unwrap();
    conn.exec("insert into t values(2)").unwrap();
    drop(conn);
    let refused = refusal(dir.path());
    assert!(refused.contains("changed by another program"), "{refused}");
}
