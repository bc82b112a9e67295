//! Whether a directory is on a file system of /etc/fstab that is not mounted.
//!
//! Below an empty mount point a start would make an empty server on the wrong disk. `noauto` counts as well: a disk that
//! is mounted by hand, such as an encrypted one, is the one that is forgotten.
//!
//! Failure: where /etc/fstab or /proc/self/mountinfo cannot be read, as in a container, nothing is known and nothing is
//! refused.

use std::path::{Path, PathBuf};

/// The mount point above `dir` that /etc/fstab lists and that is not mounted.
pub fn mount_point_above(dir: &Path) -> Option<PathBuf> {
    let fstab = std::fs::read_to_string("/etc/fstab").ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    unmounted(&resolved(dir)?, &fstab, &mounts)
}

/// The path without links, as far as it exists.
fn resolved(dir: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(dir).ok()?;
    let there = absolute.ancestors().find_map(|above| above.canonicalize().ok().map(|found| (above, found)));
    let (above, found) = there?;
    absolute.strip_prefix(above).ok().map(|rest| found.join(rest))
}

fn unmounted(dir: &Path, fstab: &str, mounts: &str) -> Option<PathBuf> {
    let mounted: Vec<PathBuf> = mounts.lines().filter_map(|line| field(line, 4)).collect();
    let lines = fstab.lines().filter(|line| !line.trim_start().starts_with('#'));
    let points =
        lines.filter_map(|line| field(line, 1)).filter(|point| point.parent().is_some() && dir.starts_with(point));
    let lowest = points.max_by_key(|point| point.components().count())?;
    (!mounted.contains(&lowest)).then_some(lowest)
}

/// A path in a line of fstab or mountinfo; spaces in it are written `\040`.
fn field(line: &str, place: usize) -> Option<PathBuf> {
    let text = line.split_whitespace().nth(place)?;
    let text =
        [("\\040", " "), ("\\011", "\t"), ("\\134", "\\")].iter().fold(text.to_owned(), |t, (f, to)| t.replace(f, to));
    text.starts_with('/').then(|| PathBuf::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_listed_and_not_mounted_counts() {
        let fstab = "# /dev/sdz /srv ext4\nUUID=1 / ext4 defaults 0 1\nUUID=2 /mnt/my\\040disk ext4 noauto 0 2\n\
                     UUID=3 /mnt/my\\040disk/fast xfs\nUUID=4 none swap sw 0 0\n";
        let root = "22 1 254:0 / / rw - ext4 /dev/vda rw\n";
        let both = format!("{root}23 22 254:1 / /mnt/my\\040disk rw - ext4 /dev/vdb rw\n");
        let at = |dir: &str, mounts: &str| unmounted(Path::new(dir), fstab, mounts).map(|p| p.display().to_string());
        assert_eq!(at("/mnt/my disk/a", root).as_deref(), Some("/mnt/my disk"));
        assert_eq!(at("/mnt/my disk", root).as_deref(), Some("/mnt/my disk"), "the mount point itself");
        assert_eq!(at("/mnt/my disk/a", &both), None);
        assert_eq!(at("/mnt/my disk/fast/a", &both).as_deref(), Some("/mnt/my disk/fast"));
        for elsewhere in ["/mnt/my disk2/a", "/home/a", "/srv/a"] {
            assert_eq!(at(elsewhere, root), None, "{elsewhere}");
        }
    }
}
