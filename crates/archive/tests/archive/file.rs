//! A directory: put once, read back, never overwritten.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{ID, open, options, put_one, store, trail_up_to};
use bytes::Bytes;
use holdfast_archive::{
    ArchiveError, Codec, FileStore, Holdings, Listed, ObjectName, Pending, Put, Store, check_only_server, put, verify,
};
use holdfast_seams::testing::FaultDisk;
use holdfast_seams::{Create, Disk, OpenHow, RealDisk};
use holdfast_types::Epoch;
use rustix::io::Errno;

#[tokio::test]
async fn finished_segments_are_archived_and_the_last_one_is_not() {
    let disk = FaultDisk::new(1);
    let (trail, store) = (trail_up_to(&disk, "/trail", 4), store(&disk));
    for number in 1..4 {
        let kept = put_one(&store, &trail, number).await;
        assert_eq!((kept.name.segment, kept.was_there, kept.manifest.end), (number, false, trail.start_of(number + 1)));
    }
    assert_eq!(put(&store, &trail, 4, Codec::Zstd).await.unwrap(), None);
    let holdings = Holdings::of(&store, ID).await.unwrap();
    assert_eq!((holdings.first_segment(), holdings.last_segment(), holdings.gaps()), (Some(1), Some(3), vec![]));
    // A second time, as after a restart that came before this was noted.
    assert!(put_one(&store, &trail, 2).await.was_there);
}

/// Counts the objects that a store lists.
struct Counting {
    inner: FileStore,
    listed: AtomicUsize,
}

impl Counting {
    async fn count(&self, listing: Pending<'_, Vec<Listed>>) -> Result<Vec<Listed>, ArchiveError> {
        let listed = listing.await?;
        self.listed.fetch_add(listed.len(), Ordering::Relaxed);
        Ok(listed)
    }
}

impl Store for Counting {
    fn place(&self) -> &str {
        self.inner.place()
    }
    fn put_new<'a>(&'a self, name: &'a str, object: Bytes) -> Pending<'a, Put> {
        self.inner.put_new(name, object)
    }
    fn get<'a>(&'a self, name: &'a str, bytes_max: u64) -> Pending<'a, Option<Bytes>> {
        self.inner.get(name, bytes_max)
    }
    fn get_head<'a>(&'a self, name: &'a str, bytes: u64) -> Pending<'a, Option<Bytes>> {
        self.inner.get_head(name, bytes)
    }
    fn remove<'a>(&'a self, name: &'a str) -> Pending<'a, ()> {
        self.inner.remove(name)
    }
    fn list<'a>(&'a self, directory: &'a str) -> Pending<'a, Vec<Listed>> {
        Box::pin(self.count(self.inner.list(directory)))
    }
    fn list_from<'a>(&'a self, directory: &'a str, from: &'a str) -> Pending<'a, Vec<Listed>> {
        Box::pin(self.count(self.inner.list_from(directory, from)))
    }
}

#[tokio::test]
async fn another_server_of_the_trail_is_found_without_a_list_of_the_whole_archive() {
    let disk = FaultDisk::new(1);
    let trail = trail_up_to(&disk, "/trail", 12);
    let store = Counting { inner: store(&disk), listed: AtomicUsize::new(0) };
    for number in 1..12 {
        check_only_server(&store, &trail, number).await.unwrap();
        put_one(&store, &trail, number).await;
    }
    assert_eq!(store.listed.load(Ordering::Relaxed), 0, "nothing is there from the next segment on");
    // Its own object, put before a restart.
    check_only_server(&store, &trail, 11).await.unwrap();
    assert_eq!(store.listed.load(Ordering::Relaxed), 1);
    let epoch = trail.epoch().0;
    // Of this epoch: the segment that is put next, a later one. Of a later epoch: also an earlier segment.
    for (epoch, segment) in [(epoch, 12), (epoch, 40), (epoch + 1, 3), (u32::MAX, 1)] {
        let other = ObjectName { trail_id: ID, epoch: Epoch(epoch), segment, last_checksum: 7 }.to_string();
        store.put_new(&other, Bytes::from_static(b"of another server")).await.unwrap();
        let error = check_only_server(&store, &trail, 12).await.unwrap_err();
        assert!(matches!(&error, ArchiveError::OtherServer { name, .. } if *name == other), "{error}");
        store.remove(&other).await.unwrap();
    }
    check_only_server(&store, &trail, 12).await.unwrap();
}

#[tokio::test]
async fn a_segment_of_several_epochs_has_the_last_ones_name() {
    let disk = FaultDisk::new(1);
    drop(trail_up_to(&disk, "/trail", 1));
    let trail = open(&disk, options("/trail")).unwrap();
    crate::support::fill_up_to(&trail, 2, 2);
    let kept = put_one(&store(&disk), &trail, 1).await;
    assert_eq!((kept.manifest.first_epoch.0, kept.name.epoch.0), (1, 2));
}

#[tokio::test]
async fn what_is_there_is_never_overwritten() {
    let (ours, theirs) = (FaultDisk::new(1), FaultDisk::new(2));
    let trail = trail_up_to(&ours, "/trail", 2);
    // Another node of the same trail and epoch, which wrote something else.
    let other = open(&theirs, options("/trail")).unwrap();
    crate::support::fill_up_to(&other, 2, 9);
    let store = store(&ours);
    let first = put_one(&store, &trail, 1).await;
    let path = Path::new("/archive").join(first.name.to_string());
    let before = ours.contents(&path).unwrap();
    let second = put_one(&store, &other, 1).await;
    assert_eq!((second.name.epoch, second.was_there), (first.name.epoch, false));
    assert_ne!(second.name, first.name, "they lie side by side");
    assert_eq!(ours.contents(&path).unwrap(), before);
    // One that was rotten when it was found is no archived segment either, and is left as it is.
    ours.overwrite(&path, 300, &[0xff; 8]);
    let error = put(&store, &trail, 1, Codec::Zstd).await.unwrap_err();
    assert!(matches!(&error, ArchiveError::Damaged { .. }) && error.needs_operator(), "{error}");
    assert!(error.to_string().contains(&first.name.to_string()), "{error}");
}

/// Its first put was killed behind the rename, the second one says that it is there: then it stays there.
#[tokio::test]
async fn what_is_said_to_be_there_outlives_a_power_cut() {
    for seed in 0..40 {
        let disk = FaultDisk::new(seed);
        let dir = Path::new("/archive/d");
        disk.create_dir(dir).unwrap();
        let new = OpenHow { create: Create::IfMissing, write: true, ..OpenHow::default() };
        let file = disk.open(&dir.join("x.b.new"), &new).unwrap();
        file.write_at(&[std::io::IoSlice::new(b"whole")], 0).unwrap();
        file.sync_all().unwrap();
        disk.rename_new(&dir.join("x.b.new"), &dir.join("x")).unwrap();
        assert_eq!(store(&disk).put_new("d/x", Bytes::from_static(b"whole")).await.unwrap(), Put::Exists);
        disk.cut_power();
        disk.restore_power();
        assert_eq!(disk.contents(&dir.join("x")).as_deref(), Some(&b"whole"[..]), "seed {seed}");
    }
}

#[tokio::test]
async fn a_directory_that_is_not_mounted_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("mnt");
    let store = FileStore::new(Arc::new(RealDisk::new()), &root, "a");
    let error = store.put_new("x/y", Bytes::from_static(b"z")).await.unwrap_err().to_string();
    assert!(error.contains("the archive directory does not exist") && !root.exists(), "{error}");
    assert!(store.list("").await.is_err());
    std::fs::create_dir(&root).unwrap();
    assert_eq!(store.put_new("x/y", Bytes::from_static(b"z")).await.unwrap(), Put::Done);
    assert_eq!(store.put_new("x/y", Bytes::from_static(b"other")).await.unwrap(), Put::Exists);
    assert_eq!(store.get("x/y", 10).await.unwrap().unwrap(), b"z"[..]);
    assert_eq!(std::fs::read_dir(root.join("x")).unwrap().count(), 1, "nothing is left over");
    assert_eq!(store.get("x/z", 10).await.unwrap(), None);
}

#[tokio::test]
async fn a_long_object_is_read_whole_and_one_that_is_too_long_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = FileStore::new(Arc::new(RealDisk::new()), dir.path(), "a");
    let bytes: Bytes = (0..3_000_001u32).map(|i| (i / 7) as u8).collect::<Vec<_>>().into();
    store.put_new("d/long", bytes.clone()).await.unwrap();
    assert!(store.get("d/long", 3_000_001).await.unwrap().unwrap() == bytes);
    assert!(store.get_head("d/long", 5000).await.unwrap().unwrap() == bytes[..5000]);
    assert!(store.get_head("d/long", 9_000_000).await.unwrap().unwrap() == bytes);
    let error = store.get("d/long", 3_000_000).await.unwrap_err().to_string();
    assert!(error.contains("d/long") && error.contains("3000001"), "{error}");
}

#[tokio::test]
async fn two_nodes_at_once_put_one_object() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(RealDisk::new());
    for round in 0..50 {
        let name = format!("d/{round}");
        let stores = ["a", "b"].map(|node| FileStore::new(disk.clone(), dir.path(), node));
        let (a, b) = tokio::join!(
            stores[0].put_new(&name, Bytes::from(vec![b'a'; 5000])),
            stores[1].put_new(&name, Bytes::from(vec![b'b'; 5000]))
        );
        let (a, b) = (a.unwrap(), b.unwrap());
        assert!([(Put::Done, Put::Exists), (Put::Exists, Put::Done)].contains(&(a, b)), "{a:?} {b:?}");
        let won = if a == Put::Done { b'a' } else { b'b' };
        assert!(stores[0].get(&name, 5000).await.unwrap().unwrap().iter().all(|byte| *byte == won));
    }
}

#[tokio::test]
async fn a_full_disk_is_told_and_leaves_nothing() {
    let (disk, archive) = (FaultDisk::new(1), FaultDisk::new(2));
    let trail = trail_up_to(&disk, "/trail", 2);
    let store = store(&archive);
    archive.fail_write(1, Errno::NOSPC);
    let error = put(&store, &trail, 1, Codec::Raw).await.unwrap_err();
    assert!(error.to_string().contains("cannot put") && !error.needs_operator(), "{error}");
    assert_eq!(archive.fired().failed_writes, 1);
    assert!(store.list(&ID.to_string()).await.unwrap().is_empty());
    assert!(!put_one(&store, &trail, 1).await.was_there, "there is room again");
}

#[tokio::test]
async fn others_files_are_not_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let trail = trail_up_to(&FaultDisk::new(1), "/trail", 2);
    let store = FileStore::new(Arc::new(RealDisk::new()), dir.path(), "a");
    let kept = put_one(&store, &trail, 1).await;
    for name in ["notes/readme", &format!("{ID}/x"), &format!("{}.b.new", kept.name)] {
        store.put_new(name, Bytes::from_static(b"?")).await.unwrap();
    }
    let all = Holdings::of_all(&store).await.unwrap();
    assert_eq!(all.len(), 1);
    let names: Vec<ObjectName> = all[&ID.to_string()].1.objects().map(|holding| holding.name).collect();
    assert_eq!(names, [kept.name]);
}

/// Opening a pipe that nobody writes into waits for ever.
#[tokio::test]
async fn what_is_no_regular_file_is_told_and_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let trail = trail_up_to(&FaultDisk::new(1), "/trail", 4);
    let store = FileStore::new(Arc::new(RealDisk::new()), dir.path(), "a");
    let mut names = Vec::new();
    for number in 1..4 {
        names.push(put_one(&store, &trail, number).await.name.to_string());
    }
    let [pipe, directory] = [0, 1].map(|index| dir.path().join(&names[index]));
    [&pipe, &directory].into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    std::fs::create_dir(&directory).unwrap();
    // Where it waits nevertheless, the test says so and lets it go on: the runtime could not end otherwise.
    let looked = async {
        let holdings = Holdings::of(&store, ID).await.unwrap();
        let report = verify(&store, &holdings, || {}).await.unwrap();
        let head = store.get_head(&names[0], 100).await;
        (report, head, put(&store, &trail, 1, Codec::Zstd).await)
    };
    let Ok((report, head, again)) = tokio::time::timeout(Duration::from_secs(20), looked).await else {
        drop(std::fs::OpenOptions::new().write(true).open(&pipe));
        panic!("it waits for a pipe");
    };
    let reported: Vec<&str> = report.problems.iter().map(|problem| problem.object.as_str()).collect();
    assert_eq!(reported, [&names[0], &names[1]], "{report:?}");
    assert!(report.problems.iter().all(|problem| problem.what.contains("not a regular file")), "{report:?}");
    for error in [head.unwrap_err(), again.unwrap_err()] {
        assert!(error.needs_operator() && error.to_string().contains(&names[0]), "{error}");
    }
    // Nor what stands under the name of an object on its way.
    let made = std::process::Command::new("mkfifo").arg(dir.path().join("x.a.new")).status().unwrap();
    assert!(made.success());
    let error = store.put_new("x", Bytes::from_static(b"?")).await.unwrap_err().to_string();
    assert!(error.contains("x.a.new") && error.contains("not a regular file"), "{error}");
}
