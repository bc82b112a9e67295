//! Which file system, and does it keep what was synced?
//!
//! | file system | verdict |
//! |---|---|
//! | ext4, xfs, btrfs, f2fs, ext3, jfs, bcachefs | good: a journal or copy on write, syncs and flushes |
//! | zfs | cannot know: `sync=disabled` is not visible in the mount |
//! | tmpfs, ramfs | bad: memory |
//! | overlay | warn: the directory goes with the container |
//! | nfs, cifs, 9p, virtiofs, ceph, ...; fuse | warn: another machine or program syncs; `soft` NFS is bad |
//! | others | warn: not tested |
//!
//! Mounted for reading only, or without replay of the journal, is bad. `data=journal` has no direct I/O and is a warning.

use super::Case;
use crate::look::Mount;
use crate::report::Finding;
use crate::report::Verdict::{Bad, CannotKnow, Good, Warn};

const NAME: &str = "file system";
const SOUND: &[&str] = &["ext4", "xfs", "btrfs", "f2fs", "ext3", "jfs", "bcachefs"];
const NETWORK: &[&str] =
    &["nfs", "nfs4", "cifs", "smb3", "9p", "virtiofs", "ceph", "afs", "lustre", "glusterfs", "ocfs2", "gfs2", "beegfs"];

pub fn check(case: &Case) -> Finding {
    let Some(mount) = &case.survey.mount else {
        return Finding::new(
            NAME,
            CannotKnow,
            "not found in /proc/self/mountinfo",
            "Without it nothing below is known.",
        );
    };
    let found = format!("{} on {} ({})", mount.file_system, mount.point, mount.options.join(","));
    let kind = mount.file_system.as_str();
    if mount.has("ro") {
        return Finding::new(NAME, Bad, found, "It is mounted for reading only.")
            .with_advice("Look into the kernel log why; a file system with an error is often remounted so.");
    }
    match kind {
        "tmpfs" | "ramfs" => Finding::new(NAME, Bad, found, "It lives in memory: a restart of the machine loses all.")
            .with_advice("Give the server a data directory on a disk."),
        "overlay" => Finding::new(
            NAME,
            Warn,
            found,
            "An overlay is a container's own file system: the data goes when the container is removed, and the disk \
             below cannot be seen from here.",
        )
        .with_advice("Put the data directory on a volume or a bind mount, and run the doctor there again."),
        "zfs" => Finding::new(NAME, CannotKnow, found, "With sync=disabled ZFS acknowledges a sync without doing it.")
            .with_advice("`zfs get sync` on the dataset must say standard or always."),
        _ if kind == "fuse" || kind == "fuseblk" || kind.starts_with("fuse.") => Finding::new(
            NAME,
            Warn,
            found,
            "A program answers the syncs, and the doctor cannot know what it does with them.",
        )
        .with_advice("Use a file system of the kernel, or prove this one with --power-test."),
        _ if NETWORK.contains(&kind) => network(mount, found),
        _ if SOUND.contains(&kind) => local(mount, found),
        _ => Finding::new(NAME, Warn, found, "Nobody has tried the server on it; it may have no journal.")
            .with_advice("Use ext4 or xfs."),
    }
}

fn network(mount: &Mount, found: String) -> Finding {
    if mount.has("soft") || mount.has("softerr") {
        return Finding::new(NAME, Bad, found, "A soft NFS mount gives up on a write after a time-out.")
            .with_advice("Mount it hard, or better, use a local disk.");
    }
    Finding::new(
        NAME,
        Warn,
        found,
        "Another machine answers the syncs. An export with async acknowledges what it holds in memory, and a lock can be \
         lost with the connection.",
    )
    .with_advice("Use a local disk; if it must be this one, the export needs sync, and --power-test on the file server.")
}

fn local(mount: &Mount, found: String) -> Finding {
    if mount.has("norecovery") || mount.has("noload") {
        return Finding::new(
            NAME,
            Bad,
            found,
            "The journal is not replayed at mount: a crash leaves a broken file system.",
        )
        .with_advice("Mount it without norecovery (noload).");
    }
    if mount.value("data") == Some("journal") {
        return Finding::new(NAME, Warn, found, "data=journal writes everything twice and has no direct I/O.")
            .with_advice("Mount it with data=ordered; the trail is a journal already.");
    }
    Finding::new(NAME, Good, found, "It has a journal or copies on write, and hands a sync on to the disk.")
}
