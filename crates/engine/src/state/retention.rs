//! What the trail must keep for others: registered standbys that are behind, base copies under way, the archive.
//!
//! A standby is registered under a name with the LSN that it has. It is noted in the file `standbys` of the data
//! directory, so that a restart does not forget it:
//!
//! ```toml
//! format = 1          # refused when newer
//! [[standby]]
//! name = "b"
//! lsn = 69632         # it has everything below, or more
//! ```
//!
//! The file is replaced as a whole ([`holdfast_seams::replace`]) when a standby is added or removed or has advanced by a
//! segment: an older LSN only keeps more.
//!
//! Where the trail is archived, what is not in the archive yet is kept, too. Its position is noted in the file `archived`,
//! so that no start recycles what the archive lacks, whether it is configured with an archive or not:
//!
//! ```toml
//! format = 1          # refused when newer
//! lsn = 69632         # the archive has everything below that the trail ever recycled
//! last = "5f2c...hfa" # the object that was archived last, if any: it identifies the archive
//! ```
//!
//! A feed, which is a logical replication slot of a database, is noted in the file `feeds` in the same way, with `[[feed]]`. The slot
//! itself is a row in its database; this file is only what the checkpoints ask before any database is open.
//!
//! A standby that is further behind than `standby_keep_bytes_max` is given up: it is no longer listed, the trail goes
//! its way, and the standby is asked to take a new base copy when it comes back.

use crate::state::error::OpenError;
use holdfast_seams::{Disk, read_whole, replace};
use holdfast_types::Lsn;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

const FORMAT: u32 = 1;
/// Longest file that is read.
const BYTES_MAX: u64 = 1 << 20;
/// Registered standbys.
pub const STANDBYS_MAX: usize = 100;

/// A registered standby.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct Slot {
    pub name: String,
    /// It has everything below.
    #[serde(with = "lsn")]
    pub lsn: Lsn,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Listed {
    format: u32,
    #[serde(default, rename = "standby")]
    standbys: Vec<Slot>,
}

/// The file `feeds`.
#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Feeds {
    format: u32,
    #[serde(default, rename = "feed")]
    feeds: Vec<Slot>,
}

/// The file `archived`.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Archived {
    format: u32,
    #[serde(with = "lsn")]
    lsn: Lsn,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<String>,
}

mod lsn {
    use holdfast_types::Lsn;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(lsn: &Lsn, s: S) -> Result<S::Ok, S::Error> {
        lsn.0.serialize(s)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Lsn, D::Error> {
        u64::deserialize(d).map(Lsn)
    }
}

/// See the module. The lock is held while the trail's floor is moved, so that no standby holds what is just being let go.
#[derive(Default)]
pub struct Retention(Mutex<Retained>);

#[derive(Default)]
pub struct Retained {
    /// By name: the LSN it has, and the LSN in the file.
    standbys: BTreeMap<String, (Lsn, Lsn)>,
    /// The same of feeds.
    feeds: BTreeMap<String, (Lsn, Lsn)>,
    /// Base copies under way.
    copies: BTreeMap<u64, Lsn>,
    copies_begun: u64,
    /// Everything below is archived; `None`: there is no archive.
    archived: Option<Lsn>,
    /// What the file records of it.
    verified: Lsn,
    last_archived: Option<String>,
}

fn path(dir: &Path) -> PathBuf {
    dir.join("standbys")
}

fn feeds_path(dir: &Path) -> PathBuf {
    dir.join("feeds")
}

fn archived_path(dir: &Path) -> PathBuf {
    dir.join("archived")
}

impl Retention {
    /// Reads the file of a data directory, if there is one.
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Retention, OpenError> {
        let listed: Option<Listed> = read_toml(disk, &path(dir), |listed: &Listed| listed.format)?;
        let standbys = listed.map(|listed| listed.standbys).unwrap_or_default();
        let standbys = standbys.into_iter().map(|slot| (slot.name, (slot.lsn, slot.lsn))).collect();
        let feeds: Option<Feeds> = read_toml(disk, &feeds_path(dir), |feeds: &Feeds| feeds.format)?;
        let feeds = feeds.map(|feeds| feeds.feeds).unwrap_or_default();
        let feeds = feeds.into_iter().map(|slot| (slot.name, (slot.lsn, slot.lsn))).collect();
        let archived: Option<Archived> = read_toml(disk, &archived_path(dir), |archived: &Archived| archived.format)?;
        let last_archived = archived.as_ref().and_then(|archived| archived.last.clone());
        let archived = archived.map(|archived| archived.lsn);
        let verified = archived.unwrap_or_default();
        Ok(Retention(Mutex::new(Retained {
            standbys,
            feeds,
            archived,
            verified,
            last_archived,
            ..Retained::default()
        })))
    }

    /// The last object that a data directory's trail was archived in.
    pub fn last_archived(disk: &dyn Disk, dir: &Path) -> Result<Option<String>, OpenError> {
        Retention::read(disk, dir).map(|floor| floor.lock().last_archived.take())
    }

    pub fn lock(&self) -> parking_lot::MutexGuard<'_, Retained> {
        self.0.lock()
    }
}

/// One of the files of this module, if it exists.
fn read_toml<T: DeserializeOwned>(
    disk: &dyn Disk,
    path: &Path,
    format: impl Fn(&T) -> u32,
) -> Result<Option<T>, OpenError> {
    let io = |source| OpenError::Io { what: "read", path: path.display().to_string(), source };
    let Some(bytes) = read_whole(disk, path, BYTES_MAX).map_err(io)? else { return Ok(None) };
    let refuse = |message: String| OpenError::Local { path: path.display().to_string(), message };
    let read: T = toml::from_str(&String::from_utf8_lossy(&bytes)).map_err(|e| refuse(e.to_string()))?;
    match format(&read) {
        found if found > FORMAT => Err(refuse(format!("format {found} is newer than this program knows ({FORMAT})"))),
        _ => Ok(Some(read)),
    }
}

impl Retained {
    /// Registers a standby that begins at `lsn`, which may precede its earlier position, for example because it lost
    /// its disk.
    pub fn register(&mut self, disk: &dyn Disk, dir: &Path, name: &str, lsn: Lsn) -> io::Result<()> {
        let before = self.standbys.get(name).copied();
        if before == Some((lsn, lsn)) {
            return Ok(());
        }
        if before.is_none() && self.standbys.len() >= STANDBYS_MAX {
            return Err(io::Error::other(format!("{STANDBYS_MAX} standbys are registered; that is the limit")));
        }
        self.standbys.insert(name.to_owned(), (lsn, lsn));
        self.write(disk, dir).inspect_err(|_| {
            // The file is unchanged; what it lacks is held while this process runs.
            _ = before.map(|(_, written)| self.standbys.insert(name.to_owned(), (lsn, written)));
        })
    }

    /// Records how far a standby has come, and registers one that is not registered. `step_bytes`: how far it may
    /// advance before the file is written.
    pub fn hold(&mut self, disk: &dyn Disk, dir: &Path, name: &str, lsn: Lsn, step_bytes: u64) -> io::Result<()> {
        let full = self.standbys.len() >= STANDBYS_MAX;
        match self.standbys.get_mut(name) {
            Some((has, written)) => {
                *has = lsn.max(*has);
                if has.0 - written.0 < step_bytes {
                    return Ok(());
                }
                *written = *has;
            }
            None if full => {
                return Err(io::Error::other(format!("{STANDBYS_MAX} standbys are registered; that is the limit")));
            }
            None => _ = self.standbys.insert(name.to_owned(), (lsn, lsn)),
        }
        self.write(disk, dir)
    }

    /// Unregisters a standby. Returns false if there is none of that name.
    pub fn release(&mut self, disk: &dyn Disk, dir: &Path, name: &str) -> io::Result<bool> {
        if self.standbys.remove(name).is_none() {
            return Ok(false);
        }
        self.write(disk, dir).map(|()| true)
    }

    /// Unregisters the standbys that are more than `keep_bytes_max` behind `end`; returns their names, or none if that
    /// cannot be written.
    pub fn give_up(&mut self, disk: &dyn Disk, dir: &Path, end: Lsn, keep_bytes_max: u64) -> io::Result<Vec<String>> {
        let too_far = |lsn: Lsn| end.0.saturating_sub(lsn.0) > keep_bytes_max;
        let all = self.standbys.clone();
        self.standbys.retain(|_, (has, _)| !too_far(*has));
        if self.standbys.len() == all.len() {
            return Ok(Vec::new());
        }
        match self.write(disk, dir) {
            Ok(()) => Ok(all.into_keys().filter(|name| !self.standbys.contains_key(name)).collect()),
            Err(e) => {
                self.standbys = all;
                Err(e)
            }
        }
    }

    pub fn slots(&self) -> Vec<Slot> {
        self.standbys.iter().map(|(name, (lsn, _))| Slot { name: name.clone(), lsn: *lsn }).collect()
    }

    /// Keeps everything from `lsn` on for a feed; a position that is known is moved forward only. `step_bytes`: how far it may
    /// advance before the file is written.
    pub fn hold_feed(&mut self, disk: &dyn Disk, dir: &Path, name: &str, lsn: Lsn, step_bytes: u64) -> io::Result<()> {
        match self.feeds.get_mut(name) {
            Some((has, written)) => {
                *has = lsn.max(*has);
                if has.0 - written.0 < step_bytes {
                    return Ok(());
                }
                *written = *has;
            }
            None => _ = self.feeds.insert(name.to_owned(), (lsn, lsn)),
        }
        self.write_feeds(disk, dir)
    }

    /// Nothing is kept for a feed any more. Returns false if there is none of that name.
    pub fn release_feed(&mut self, disk: &dyn Disk, dir: &Path, name: &str) -> io::Result<bool> {
        if self.feeds.remove(name).is_none() {
            return Ok(false);
        }
        self.write_feeds(disk, dir).map(|()| true)
    }

    /// Forgets the feeds that are more than `keep_bytes_max` behind `end`; returns their names.
    pub fn give_up_feeds(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        end: Lsn,
        keep_bytes_max: u64,
    ) -> io::Result<Vec<String>> {
        let too_far = |(_, (has, _)): &(&String, &(Lsn, Lsn))| end.0.saturating_sub(has.0) > keep_bytes_max;
        let names: Vec<String> = self.feeds.iter().filter(too_far).map(|(name, _)| name.clone()).collect();
        if !names.is_empty() {
            self.feeds.retain(|name, _| !names.contains(name));
            self.write_feeds(disk, dir)?;
        }
        Ok(names)
    }

    /// The feeds, with the positions from which on the trail is kept for them.
    pub fn feeds(&self) -> Vec<Slot> {
        self.feeds.iter().map(|(name, (lsn, _))| Slot { name: name.clone(), lsn: *lsn }).collect()
    }

    fn write_feeds(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let feed = |(name, (_, written)): (&String, &(Lsn, Lsn))| Slot { name: name.clone(), lsn: *written };
        let listed = Feeds { format: FORMAT, feeds: self.feeds.iter().map(feed).collect() };
        Ok(replace(disk, &feeds_path(dir), toml::to_string(&listed).map_err(io::Error::other)?.as_bytes())?)
    }

    /// The lowest position that must stay.
    pub fn lowest(&self) -> Option<Lsn> {
        let held = self.standbys.values().chain(self.feeds.values()).map(|(has, _)| *has);
        held.chain(self.copies.values().copied()).chain(self.archived).min()
    }

    /// Everything below is archived; `None`: nothing is kept for an archive.
    pub fn archived(&self) -> Option<Lsn> {
        self.archived
    }

    /// Begins to archive the trail, which reaches from `first` to `end`. All of it is kept until it has been found in
    /// the archive again: the trail may have been cut back, and another one written since, below what was archived
    /// then.
    pub fn begin_archive(&mut self, disk: &dyn Disk, dir: &Path, (first, end): (Lsn, Lsn)) -> io::Result<()> {
        let was = self.archived.replace(first).filter(|archived| *archived <= end);
        if was.is_none() {
            self.last_archived = None;
            self.write_archived(disk, dir, first)?;
        }
        self.verified = was.unwrap_or(first);
        Ok(())
    }

    /// Everything below was in the archive, read back and compared, when the file `archived` was last written.
    pub fn verified(&self) -> Lsn {
        self.verified
    }

    /// The object that was archived last, if there is one.
    pub fn last_object(&self) -> Option<&str> {
        self.last_archived.as_deref()
    }

    /// Records that the archive has everything below `lsn`, the last of it in `object`. An earlier record is not
    /// withdrawn.
    pub fn set_archived(&mut self, disk: &dyn Disk, dir: &Path, lsn: Lsn, object: &str) -> io::Result<()> {
        if lsn > self.verified {
            self.last_archived = Some(object.to_owned());
            self.write_archived(disk, dir, lsn)?;
            self.verified = lsn;
        }
        self.archived = self.archived.max(Some(lsn));
        Ok(())
    }

    fn write_archived(&self, disk: &dyn Disk, dir: &Path, lsn: Lsn) -> io::Result<()> {
        let last = self.last_archived.clone();
        let said = toml::to_string(&Archived { format: FORMAT, lsn, last }).map_err(io::Error::other)?;
        Ok(replace(disk, &archived_path(dir), said.as_bytes())?)
    }

    /// There is no archive from now on: nothing is kept for it. Returns how far it was.
    pub fn forget_archive(&mut self, disk: &dyn Disk, dir: &Path) -> io::Result<Option<Lsn>> {
        if self.archived.is_some() {
            disk.remove(&archived_path(dir))?;
            disk.sync_dir(dir)?;
        }
        self.last_archived = None;
        Ok(self.archived.take())
    }

    /// Keeps everything from `lsn` on for a base copy; returns its number.
    pub fn begin_copy(&mut self, lsn: Lsn) -> u64 {
        self.copies_begun += 1;
        self.copies.insert(self.copies_begun, lsn);
        self.copies_begun
    }

    pub fn end_copy(&mut self, number: u64) {
        self.copies.remove(&number);
    }

    fn write(&self, disk: &dyn Disk, dir: &Path) -> io::Result<()> {
        let slot = |(name, (_, written)): (&String, &(Lsn, Lsn))| Slot { name: name.clone(), lsn: *written };
        let listed = Listed { format: FORMAT, standbys: self.standbys.iter().map(slot).collect() };
        Ok(replace(disk, &path(dir), toml::to_string(&listed).map_err(io::Error::other)?.as_bytes())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_seams::RealDisk;
    use holdfast_seams::testing::FaultDisk;

    fn held(disk: &dyn Disk) -> Option<Lsn> {
        Retention::read(disk, Path::new("/data")).unwrap().lock().lowest()
    }

    #[test]
    fn a_standby_that_begins_anew_is_kept_what_it_lacks() {
        let (disk, dir) = (FaultDisk::new(1), Path::new("/data"));
        let floor = Retention::read(&disk, dir).unwrap();
        let mut floor = floor.lock();
        floor.register(&disk, dir, "b", Lsn(50_000)).unwrap();
        floor.hold(&disk, dir, "b", Lsn(80_000), 1000).unwrap();
        floor.hold(&disk, dir, "b", Lsn(70_000), 1000).unwrap();
        assert_eq!((floor.lowest(), held(&disk)), (Some(Lsn(80_000)), Some(Lsn(80_000))), "acks do not go back");
        floor.register(&disk, dir, "b", Lsn(60_000)).unwrap();
        assert_eq!((floor.lowest(), held(&disk)), (Some(Lsn(60_000)), Some(Lsn(60_000))), "its disk was lost");
        disk.fail_sync(1);
        floor.register(&disk, dir, "b", Lsn(40_000)).unwrap_err();
        assert_eq!((floor.lowest(), held(&disk)), (Some(Lsn(40_000)), Some(Lsn(60_000))));
        floor.register(&disk, dir, "b", Lsn(40_000)).unwrap();
        assert_eq!(held(&disk), Some(Lsn(40_000)), "tried again");
    }

    #[test]
    fn nobody_is_given_up_whose_end_is_not_written() {
        let (disk, dir) = (FaultDisk::new(1), Path::new("/data"));
        let floor = Retention::read(&disk, dir).unwrap();
        let mut floor = floor.lock();
        floor.register(&disk, dir, "b", Lsn(50_000)).unwrap();
        disk.fail_sync(1);
        floor.give_up(&disk, dir, Lsn(90_000), 10_000).unwrap_err();
        assert_eq!(floor.lowest(), Some(Lsn(50_000)));
        assert_eq!(floor.give_up(&disk, dir, Lsn(90_000), 10_000).unwrap(), ["b"], "reported when it is true");
        assert_eq!((floor.lowest(), held(&disk)), (None, None));
    }

    #[test]
    fn standbys_are_listed_and_hold_the_floor_until_they_are_too_far_behind() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::default();
        let floor = Retention::read(&disk, dir.path()).unwrap();
        floor.lock().hold(&disk, dir.path(), "b", Lsn(69632), 1000).unwrap();
        let text = std::fs::read_to_string(path(dir.path())).unwrap();
        assert_eq!(text, "format = 1\n\n[[standby]]\nname = \"b\"\nlsn = 69632\n");
        floor.lock().hold(&disk, dir.path(), "b", Lsn(69700), 1000).unwrap();
        floor.lock().hold(&disk, dir.path(), "c", Lsn(80000), 1000).unwrap();
        assert_eq!(floor.lock().lowest(), Some(Lsn(69700)));
        let again = Retention::read(&disk, dir.path()).unwrap();
        assert_eq!(again.lock().lowest(), Some(Lsn(69632)), "the file may be behind, never ahead");
        assert_eq!(again.lock().give_up(&disk, dir.path(), Lsn(80000), 10_000).unwrap(), ["b"]);
        assert_eq!(
            Retention::read(&disk, dir.path()).unwrap().lock().slots(),
            [Slot { name: "c".into(), lsn: Lsn(80000) }]
        );
        again.lock().register(&disk, dir.path(), "c", Lsn(70_000)).unwrap();
        again.lock().hold(&disk, dir.path(), "c", Lsn(60_000), 0).unwrap();
        assert_eq!(again.lock().lowest(), Some(Lsn(70_000)), "it begins anew in front, acks go forward only");
        let copy = again.lock().begin_copy(Lsn(5));
        assert_eq!(again.lock().lowest(), Some(Lsn(5)));
        again.lock().end_copy(copy);
        assert!(again.lock().release(&disk, dir.path(), "c").unwrap());
        assert_eq!(again.lock().lowest(), None);
    }

    #[test]
    fn feeds_hold_the_floor_over_restarts_and_up_to_a_bound() {
        let (disk, dir) = (FaultDisk::new(1), Path::new("/data"));
        let floor = Retention::read(&disk, dir).unwrap();
        let mut floor = floor.lock();
        floor.hold_feed(&disk, dir, "shop/people", Lsn(50_000), 1000).unwrap();
        floor.hold_feed(&disk, dir, "shop/people", Lsn(50_500), 1000).unwrap();
        assert_eq!((floor.lowest(), held(&disk)), (Some(Lsn(50_500)), Some(Lsn(50_000))), "the file may be behind");
        floor.hold_feed(&disk, dir, "shop/people", Lsn(40_000), 1000).unwrap();
        floor.hold_feed(&disk, dir, "shop/skill", Lsn(80_000), 1000).unwrap();
        assert_eq!(floor.lowest(), Some(Lsn(50_500)), "never back");
        assert!(floor.slots().is_empty(), "they are no standbys");
        assert_eq!(floor.give_up_feeds(&disk, dir, Lsn(90_000), 20_000).unwrap(), ["shop/people"]);
        assert_eq!((floor.lowest(), held(&disk)), (Some(Lsn(80_000)), Some(Lsn(80_000))));
        assert!(floor.release_feed(&disk, dir, "shop/skill").unwrap());
        assert!(!floor.release_feed(&disk, dir, "shop/skill").unwrap());
        assert_eq!((floor.lowest(), held(&disk)), (None, None));
    }

    #[test]
    fn what_is_not_archived_is_kept_by_whoever_opens_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::default();
        let read = || Retention::read(&disk, dir.path()).unwrap();
        let begin = |floor: &Retention, first, end| {
            floor.lock().begin_archive(&disk, dir.path(), (Lsn(first), Lsn(end))).unwrap();
            let held = floor.lock();
            (held.archived().unwrap().0, held.verified().0)
        };
        assert_eq!(read().lock().archived(), None);
        let floor = read();
        assert_eq!(begin(&floor, 4096, 8192), (4096, 4096));
        floor.lock().set_archived(&disk, dir.path(), Lsn(69632), "t/x.hfa").unwrap();
        let text = std::fs::read_to_string(archived_path(dir.path())).unwrap();
        assert_eq!(text, "format = 1\nlsn = 69632\nlast = \"t/x.hfa\"\n");
        assert_eq!(Retention::last_archived(&disk, dir.path()).unwrap().as_deref(), Some("t/x.hfa"));
        // A start without an archive keeps the rest for it.
        assert_eq!(read().lock().lowest(), Some(Lsn(69632)));
        let again = read();
        assert_eq!(begin(&again, 4096, 80000), (4096, 69632), "looked for again, but known");
        assert_eq!(again.lock().last_object(), Some("t/x.hfa"));
        again.lock().set_archived(&disk, dir.path(), Lsn(8192), "t/w.hfa").unwrap();
        assert_eq!(again.lock().archived(), Some(Lsn(8192)));
        assert_eq!(again.lock().verified(), Lsn(69632));
        again.lock().set_archived(&disk, dir.path(), Lsn(69632), "t/x.hfa").unwrap();
        let cut = read();
        assert_eq!(begin(&cut, 4096, 50000), (4096, 4096), "the trail was cut back: nothing is known");
        assert_eq!((read().lock().archived(), read().lock().last_object()), (Some(Lsn(4096)), None));
        again.lock().set_archived(&disk, dir.path(), Lsn(69632), "t/x.hfa").unwrap();
        assert_eq!(again.lock().forget_archive(&disk, dir.path()).unwrap(), Some(Lsn(69632)));
        assert_eq!((again.lock().lowest(), read().lock().lowest()), (None, None));
        assert_eq!(read().lock().forget_archive(&disk, dir.path()).unwrap(), None);
    }
}
