//! `/proc/self/mountinfo` (proc_pid_mountinfo(5)): which mount a directory lies in, and how it is mounted.
//!
//! A line: `36 35 98:0 /root /mount/point rw,noatime master:1 - ext3 /dev/sda1 rw,errors=continue`: ids, device number,
//! the part of the file system, the place, options of the mount, optional fields, `-`, type, source, options of the file
//! system. Spaces in names are written `\040`.

use crate::root::{Root, is_below};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mount {
    /// `major:minor`; a major of 0 means no device of its own (tmpfs, NFS, btrfs, overlay).
    pub device: String,
    pub point: String,
    pub file_system: String,
    pub source: String,
    /// Of the mount and of the file system, in this order.
    pub options: Vec<String>,
}

impl Mount {
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
    }

    /// The value of `name=value`.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.options.iter().find_map(|o| o.strip_prefix(name)?.strip_prefix('='))
    }
}

/// The mount that a path without links lies in: the last of those with the longest place, as later mounts cover earlier.
pub fn mount_of(root: &Root, path: &str) -> Option<Mount> {
    let text = root.read("/proc/self/mountinfo")?;
    let around = text.lines().filter_map(parse).filter(|mount| is_below(path, &mount.point));
    around.max_by_key(|mount| mount.point.trim_end_matches('/').len())
}

fn parse(line: &str) -> Option<Mount> {
    let (left, right) = line.split_once(" - ")?;
    let left: Vec<&str> = left.split(' ').collect();
    let right: Vec<&str> = right.split(' ').collect();
    let options = [*left.get(5)?, right.get(2).copied().unwrap_or("")];
    let mut all: Vec<String> = Vec::new();
    for option in options.iter().flat_map(|o| o.split(',')).filter(|o| !o.is_empty()) {
        if !all.iter().any(|known| known == option) {
            all.push(unescaped(option));
        }
    }
    Some(Mount {
        device: (*left.get(2)?).to_owned(),
        point: unescaped(left.get(4)?),
        file_system: (*right.first()?).to_owned(),
        source: unescaped(right.get(1)?),
        options: all,
    })
}

/// `\040` and the like become the bytes they stand for.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let code = if *first == b'\\' { more.get(..3).and_then(|d| std::str::from_utf8(d).ok()) } else { None };
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[3..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_optional_fields_and_blanks() {
        let line = "36 35 8:1 /a /mnt/my\\040disk rw,noatime master:1 shared:2 - ext4 /dev/sda1 rw,data=ordered";
        let mount = parse(line).unwrap();
        assert_eq!((mount.device.as_str(), mount.point.as_str()), ("8:1", "/mnt/my disk"));
        assert_eq!(mount.options, ["rw", "noatime", "data=ordered"]);
        assert_eq!(mount.value("data"), Some("ordered"));
        assert!(parse("nonsense").is_none() && parse("1 2 3 - ").is_none());
    }
}
