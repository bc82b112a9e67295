//! One bit flipped in each kind of file: the server refuses or says so at the read, `holdfast check` finds it, and both
//! name the file, the offset and what to do.

use crate::server::{Running, fails_to_start, one, run};
use holdfast_seams::{Create, Disk, OpenHow, RealDisk};
use holdfast_store::wal_file::WalWriter;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use tempfile::TempDir;

const PAGE: usize = 4096;
const LISTEN: &str = "127.0.0.1:0";

/// A stopped directory with 2,000 rows in many pages.
async fn stopped() -> TempDir {
    let server = Running::start();
    let client = server.connect().await;
    run(&client, "create table t (id int primary key, x text)").await;
    run(&client, "insert into t select i, repeat('x', 200) from generate_series(1, 2000) i").await;
    let (status, dir) = server.stop();
    assert!(status.success());
    dir
}

fn copy_of(dir: &Path) -> TempDir {
    let to = TempDir::new().unwrap();
    assert!(Command::new("cp").arg("-a").arg(dir.join(".")).arg(to.path()).status().unwrap().success());
    to
}

fn volume(dir: &Path) -> PathBuf {
    dir.join("volumes/000001-holdfast.db")
}

fn wal(dir: &Path) -> PathBuf {
    dir.join("volumes/000001-holdfast.db-wal")
}

/// Flips a bit and leaves the file's time as it was, as rot does.
fn flip(path: &Path, offset: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let modified = file.metadata().unwrap().modified().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x40], offset).unwrap();
    file.set_modified(modified).unwrap();
}

fn check(dir: &Path) -> (ExitStatus, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast")).args(["check", "--data"]).arg(dir).output().unwrap();
    (output.status, String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap())
}

/// Exit code 1, and every word.
fn names(what: &str, (status, text): (ExitStatus, String), words: &[&str]) {
    assert_eq!(status.code(), Some(1), "{what}: {text}");
    for word in words {
        assert!(text.contains(word), "{what} does not say {word:?}: {text}");
    }
}

#[tokio::test]
async fn a_bit_in_the_middle_of_the_trail() {
    let dir = stopped().await;
    let segment = dir.path().join("trail/00000001-00000001.segment");
    flip(&segment, 2 * 4096 + 40);
    let words = [segment.to_str().unwrap(), "at byte 8192", "Restore this file from a copy"];
    names("check", check(dir.path()), &words);
    names("serve", fails_to_start(dir.path(), LISTEN), &words);
}

#[tokio::test]
async fn a_bit_in_a_page() {
    let dir = stopped().await;
    let pages = std::fs::metadata(volume(dir.path())).unwrap().len() / PAGE as u64;
    let offset = (pages / 2) * PAGE as u64;
    flip(&volume(dir.path()), offset + 300);
    let place = format!("offset {offset}");
    let file = volume(dir.path()).display().to_string();
    names("check", check(dir.path()), &[&file, &place, "restore it from a backup"]);

    // Nothing is read at a start that was not changed; the read that meets it says so, and the others go on.
    let server = Running::start_in(copy_of(dir.path()));
    let client = server.connect().await;
    let error = client.simple_query("select sum(length(x)) from t").await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "XX001", "{error:?}");
    let text = format!("{} {}", error.message(), error.hint().unwrap_or_default());
    for word in ["000001-holdfast.db", place.as_str(), "restore it from a backup"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert_eq!(one(&client, "select 1").await, "1");

    // Changed and with a new time: looked at from end to end before anybody is served.
    let file = std::fs::File::options().write(true).open(volume(dir.path())).unwrap();
    file.set_modified(std::time::SystemTime::now()).unwrap();
    names("serve", fails_to_start(dir.path(), LISTEN), &["000001-holdfast.db", &place, "put back the file"]);
}

/// What a power cut leaves while a checkpoint is being copied: half of its pages are in the file, all are in the `-wal`.
async fn half_copied() -> TempDir {
    let dir = stopped().await;
    let old = std::fs::read(volume(dir.path())).unwrap();
    let server = Running::start_in(dir);
    run(&server.connect().await, "update t set x = repeat('y', 200)").await;
    let (status, dir) = server.stop();
    assert!(status.success());
    let new = std::fs::read(volume(dir.path())).unwrap();
    let number_of = |page: &[u8]| u64::from_le_bytes(page[PAGE - 8..].try_into().unwrap());
    let number = new.chunks_exact(PAGE).map(number_of).max().unwrap();
    let fresh: Vec<usize> = (0..new.len() / PAGE).filter(|i| number_of(&new[i * PAGE..][..PAGE]) == number).collect();
    let mut half = new.clone();
    for i in fresh.iter().skip(fresh.len() / 2).filter(|i| (**i + 1) * PAGE <= old.len()) {
        half[i * PAGE..][..PAGE].copy_from_slice(&old[i * PAGE..][..PAGE]);
    }
    assert!(half != new && half != old && fresh.len() > 20);
    std::fs::write(volume(dir.path()), half).unwrap();
    let how = OpenHow { create: Create::IfMissing, write: true, ..OpenHow::default() };
    let file = RealDisk::default().open(&wal(dir.path()), &how).unwrap();
    let mut writer = WalWriter::new(&*file, 1, number, fresh.len() as u32, (new.len() / PAGE) as u32);
    for i in &fresh {
        writer.frame(*i as u32 + 1, new[i * PAGE..][..PAGE].try_into().unwrap()).unwrap();
    }
    dir
}

async fn starts_with_the_update(dir: TempDir) {
    let server = Running::start_in(dir);
    let client = server.connect().await;
    assert_eq!(one(&client, "select count(*) from t where x = repeat('y', 200)").await, "2000");
}

#[tokio::test]
async fn a_bit_in_a_checkpoint_file() {
    let dir = half_copied().await;
    let undamaged = copy_of(dir.path());
    assert!(check(undamaged.path()).0.success());
    starts_with_the_update(undamaged).await;

    let frame = 32 + 7 * (24 + PAGE as u64);
    flip(&wal(dir.path()), frame + 1000);
    let before = std::fs::read(volume(dir.path())).unwrap();
    let (file, place) = (wal(dir.path()).display().to_string(), format!("at byte {frame} is damaged"));
    let words = [file.as_str(), place.as_str(), "Put back a copy of the -wal", "restore the database"];
    names("check", check(dir.path()), &words);
    names("serve", fails_to_start(dir.path(), LISTEN), &words);
    assert!(std::fs::read(volume(dir.path())).unwrap() == before, "nothing was changed");
    flip(&wal(dir.path()), frame + 1000);
    starts_with_the_update(dir).await;
}

/// The header can be told from the frames, so that its rot costs nothing.
#[tokio::test]
async fn a_bit_in_a_checkpoint_files_header() {
    let dir = half_copied().await;
    flip(&wal(dir.path()), 13);
    let (status, text) = check(dir.path());
    assert!(status.success() && text.contains("-wal at byte 0: the header is damaged"), "{text}");
    starts_with_the_update(dir).await;
}
