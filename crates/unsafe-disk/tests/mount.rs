//! The disk through the kernel: what programs see, what a power cut leaves, and that every fault fires.

mod common;

use common::{Bed, aligned, lines};
use holdfast_unsafe_disk::{CONTROL, Names, Options, Power};
use std::fs::{self, File};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

const EIO: Option<i32> = Some(5);

#[test]
fn synced_bytes_survive_and_others_may_not() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..30 {
        let Some(bed) = Bed::new(|options| options.seed = seed) else { return };
        let mut file = File::create(bed.path("a")).unwrap();
        file.write_all(&[1; 10_240]).unwrap();
        file.sync_all().unwrap();
        file.write_all(&[2; 10_240]).unwrap();
        assert_eq!(fs::read(bed.path("a")).unwrap().len(), 20_480);
        bed.disk.disk().cut();
        assert_eq!(fs::read(bed.path("a")).unwrap_err().raw_os_error(), EIO);
        assert_eq!(file.write_all(&[3; 10]).unwrap_err().raw_os_error(), EIO);
        bed.disk.disk().restore().unwrap();
        let found = fs::read(bed.path("a")).unwrap();
        assert!(found[..10_240] == [1; 10_240]);
        assert_eq!(found, fs::read(bed.backing("a")).unwrap());
        if found.len() == 20_480 && found[10_240..] == [2; 10_240] {
            kept += 1
        } else {
            lost += 1
        }
        assert!(file.write_all(&[3; 10]).is_err(), "a handle from before the cut is dead");
    }
    assert!(kept > 0 && lost > 0, "{kept} kept, {lost} lost");
}

#[test]
fn a_write_through_is_durable_when_it_returns() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    for (name, flags) in
        [("dsync", libc_flags::DSYNC), ("sync", libc_flags::SYNC), ("direct", libc_flags::DIRECT_DSYNC)]
    {
        let file =
            File::options().write(true).create(true).truncate(false).custom_flags(flags).open(bed.path(name)).unwrap();
        let barriers = bed.disk.status().counters.barriers;
        let mut buffer = vec![0; 8192 + 4096];
        file.write_all_at(aligned(&mut buffer, 8192, 7), 0).unwrap();
        assert_eq!(fs::read(bed.backing(name)).unwrap(), [7; 8192], "{name}");
        assert_eq!(bed.disk.status().counters.barriers, barriers + 1, "{name}: one barrier a write");
    }
    assert_eq!(bed.disk.status().unsynced_bytes, 0);
}

#[test]
fn direct_files_read_what_they_wrote() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    let mut options = File::options();
    let file =
        options.read(true).write(true).create(true).truncate(true).custom_flags(libc_flags::DIRECT).open(bed.path("d"));
    let file = file.unwrap();
    let mut buffer = vec![0; 3 << 20];
    file.write_all_at(aligned(&mut buffer, 2 << 20, 9), 4096).unwrap();
    let mut back = vec![0; 3 << 20];
    let back = aligned(&mut back, 2 << 20, 0);
    let len = file.read_at(back, 4096).unwrap();
    assert!(len == 2 << 20 && back.iter().all(|byte| *byte == 9));
    assert_eq!(fs::metadata(bed.path("d")).unwrap().len(), 4096 + (2 << 20));
}

#[test]
fn names_survive_a_sync_of_their_directory_and_as_on_ext4_of_the_file() {
    for names in [Names::File, Names::Directory] {
        let mut found = 0;
        for seed in 0..20 {
            let Some(bed) = Bed::new(|options| (options.seed, options.names) = (seed, names)) else { return };
            fs::create_dir(bed.path("d")).unwrap();
            File::create(bed.path("d/a")).unwrap().sync_all().unwrap();
            fs::rename(bed.path("d/a"), bed.path("d/b")).unwrap();
            let of_directory = seed % 2 == 0;
            if of_directory {
                File::open(bed.path("d")).unwrap().sync_all().unwrap();
            }
            bed.disk.disk().restore().unwrap();
            let (a, b) = (bed.path("d/a").exists(), bed.path("d/b").exists());
            match (of_directory, names) {
                (true, _) => assert!(b && !a),
                (false, Names::File) => assert!(a != b, "the rename is whole or not there"),
                (false, Names::Directory) => assert!(!(a && b)),
            }
            found += u32::from(a || b);
        }
        assert_eq!(found == 20, names == Names::File, "{found} of 20 with {names:?}");
    }
}

#[test]
fn trees_behave_as_trees() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    fs::create_dir_all(bed.path("a/b/c")).unwrap();
    fs::write(bed.path("a/b/c/f"), "one").unwrap();
    fs::hard_link(bed.path("a/b/c/f"), bed.path("a/g")).unwrap();
    std::os::unix::fs::symlink("b/c", bed.path("a/s")).unwrap();
    fs::rename(bed.path("a/b"), bed.path("a/z")).unwrap();
    assert_eq!(fs::remove_dir(bed.path("a/z")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    assert_eq!(fs::create_dir(bed.path("a")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read_link(bed.path("a/s")).unwrap().to_str(), Some("b/c"));
    let mut open = File::open(bed.path("a/g")).unwrap();
    fs::remove_file(bed.path("a/g")).unwrap();
    fs::remove_file(bed.path("a/z/c/f")).unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "one", "an unlinked file lives until it is closed");
    for n in 0..300 {
        fs::write(bed.path(&format!("a/z/c/{n}")), [n as u8; 100]).unwrap();
    }
    assert_eq!(fs::read_dir(bed.path("a/z/c")).unwrap().count(), 300);
    bed.disk.disk().sync_all().unwrap();
    assert_eq!(fs::read(bed.backing("a/z/c/299")).unwrap(), [43; 100]);
    bed.disk.disk().restore().unwrap();
    assert_eq!(fs::read(bed.path("a/z/c/7")).unwrap(), [7; 100]);
    fs::remove_dir_all(bed.path("a")).unwrap();
    bed.disk.disk().sync_all().unwrap();
    assert!(!bed.backing("a").exists());
}

#[test]
fn a_failed_sync_is_lost_although_the_next_one_succeeds() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    let mut options = File::options();
    let file = options.read(true).write(true).create(true).truncate(true).open(bed.path("a")).unwrap();
    file.write_all_at(&[1; 4096], 0).unwrap();
    file.sync_all().unwrap();
    bed.control("fail sync a").unwrap();
    file.write_all_at(&[2; 4096], 0).unwrap();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), EIO);
    file.sync_all().unwrap();
    let mut buf = [0; 4096];
    file.read_exact_at(&mut buf, 0).unwrap();
    assert_eq!(buf[0], 2, "the page cache shows it");
    assert_eq!(fs::read(bed.backing("a")).unwrap()[0], 1, "the disk never got it");
    assert_eq!(bed.fired(), [("fail sync a times=1".to_owned(), 1)]);
}

#[test]
fn every_fault_fires_and_is_counted() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    let file = File::create(bed.path("a")).unwrap();
    let mut options = File::options();
    let direct =
        options.read(true).write(true).create(true).truncate(true).custom_flags(libc_flags::DIRECT).open(bed.path("d"));
    let direct = direct.unwrap();
    let mut buffer = vec![0; 16384];
    bed.control("fail write a\nfail name new error=enospc\nfail read d\nlie a\nflip d\nslow sync d us=1000").unwrap();
    assert_eq!(file.write_at(&[1; 10], 0).unwrap_err().raw_os_error(), EIO);
    assert_eq!(File::create(bed.path("new")).unwrap_err().kind(), ErrorKind::StorageFull);
    file.write_all_at(&[1; 10], 0).unwrap();
    file.sync_all().unwrap();
    assert!(!bed.backing("a").exists(), "a lie makes nothing durable");
    direct.write_all_at(aligned(&mut buffer, 4096, 0), 0).unwrap();
    direct.sync_all().unwrap();
    let stored = fs::read(bed.backing("d")).unwrap();
    assert_eq!(stored.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1, "one bit is wrong");
    assert_eq!(direct.read_at(aligned(&mut buffer, 4096, 0), 0).unwrap_err().raw_os_error(), EIO);
    bed.control("misdirect d").unwrap();
    direct.write_all_at(aligned(&mut buffer, 4096, 5), 8192).unwrap();
    direct.sync_all().unwrap();
    let stored = fs::read(bed.backing("d")).unwrap();
    assert!(stored[8192] == 0 && stored[8192..].contains(&5));
    assert!(bed.fired().iter().all(|(_, fired)| *fired > 0), "{:?}", bed.fired());
}

#[test]
fn a_full_disk_says_so() {
    let Some(bed) = Bed::new(|options| options.capacity_bytes = Some(8192)) else { return };
    let file = File::create(bed.path("a")).unwrap();
    file.write_all_at(&[1; 8192], 0).unwrap();
    assert_eq!(file.write_at(&[1; 1], 8192).unwrap_err().kind(), ErrorKind::StorageFull);
    file.write_all_at(&[2; 100], 100).unwrap();
    assert_eq!(bed.disk.status().counters.disk_full, 1);
    fs::remove_file(bed.path("a")).unwrap();
    drop(file);
    // The kernel reports the last close to the file system after close(2) has returned; only then is the room free.
    let mut written = Err(ErrorKind::StorageFull.into());
    for _ in 0..10_000 {
        bed.disk.disk().sync_all().unwrap();
        written = fs::write(bed.path("b"), [1; 8192]);
        if !matches!(&written, Err(error) if error.kind() == ErrorKind::StorageFull) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    written.unwrap();
}

#[test]
fn the_power_fails_at_the_operation_it_was_told() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    bed.control("cut a* after=3").unwrap();
    fs::write(bed.path("other"), "x").unwrap();
    let file = File::create(bed.path("a")).unwrap();
    file.write_all_at(&[1; 10], 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(file.write_at(&[2; 10], 0).unwrap_err().raw_os_error(), EIO);
    assert_eq!(bed.disk.status().power, Power::Off);
    assert_eq!(fs::read_dir(bed.disk.mountpoint()).unwrap_err().raw_os_error(), EIO);
    bed.control("restore").unwrap();
    let found = fs::read(bed.path("a")).unwrap();
    assert!(found.len() == 10);
}

#[test]
fn the_control_file_answers_and_refuses() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    assert_eq!(lines(bed.disk.mountpoint()), Vec::<String>::new(), "listings leave it out");
    assert_eq!(bed.control("explode").unwrap_err().kind(), ErrorKind::InvalidInput);
    let status = fs::read_to_string(bed.path(CONTROL)).unwrap();
    assert!(status.contains("there is no command explode") && status.contains("\"power\": \"on\""), "{status}");
    fs::write(bed.path("x"), "x").unwrap();
    bed.control("sync").unwrap();
    assert_eq!(fs::read(bed.backing("x")).unwrap(), b"x");
    bed.control("cut").unwrap();
    assert!(fs::read_to_string(bed.path(CONTROL)).unwrap().contains("\"power\": \"off\""));
}

#[test]
fn without_a_cache_writes_are_durable_and_without_barriers_syncs_are_not() {
    let Some(bed) = Bed::new(|options| options.cache = false) else { return };
    fs::write(bed.path("a"), [1; 100]).unwrap();
    assert_eq!(fs::read(bed.backing("a")).unwrap(), [1; 100]);
    let Some(bed) = Bed::new(|options| options.barrier = false) else { return };
    let mut file = File::create(bed.path("a")).unwrap();
    file.write_all(&[1; 100]).unwrap();
    file.sync_all().unwrap();
    assert!(!bed.backing("a").exists());
    assert!(bed.disk.status().counters.lies > 0);
}

#[test]
fn a_clean_unmount_makes_everything_durable() {
    let Some(bed) = Bed::new(|_| {}) else { return };
    fs::write(bed.path("a"), "kept").unwrap();
    let (backing, mountpoint) = bed.unmount();
    assert_eq!(fs::read(backing.path().join("a")).unwrap(), b"kept");
    assert!(holdfast_unsafe_disk::UnsafeDisk::mount(&mountpoint, Options::new(mountpoint.clone())).is_err());
}

/// The flags as Linux numbers them.
mod libc_flags {
    pub const DSYNC: i32 = 0o10_000;
    pub const SYNC: i32 = 0o4_010_000;
    pub const DIRECT: i32 = 0o40_000;
    pub const DIRECT_DSYNC: i32 = DIRECT | DSYNC;
}
