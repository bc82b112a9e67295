//! Replaces both files of rules as one step: after a power cut both are the old ones or both are the new ones.
//!
//! | step | what is durable after it |
//! |---|---|
//! | 1 | `pg_hba.conf.taken` and `pg_ident.conf.taken`: the new files |
//! | 2 | `rules_being_taken`: their checksum, 16 hexadecimal digits |
//! | 3 | `pg_hba.conf`, `pg_ident.conf` |
//! | 4 | `shared_rules`: the same checksum, because the new rules are those in the trail |
//! | 5 | `rules_being_taken` is removed, and then the two files of step 1 |
//!
//! A start, a reload and the next taking first look for `rules_being_taken`. Where it is, steps 3 to 5 are done again;
//! without it, what is left of step 1 is removed. Otherwise a start would take the mixture for an edit of the operator's, and
//! a master would write it to the trail for every node.
//!
//! Failure: files of step 1 that do not have the noted checksum refuse the start, and the error says which file to remove.

use super::files::{HBA_FILE, IDENT_FILE, RuleTexts, RulesError, SHARED_FILE, checksum, text, write};
use holdfast_seams::Disk;
use std::path::Path;

/// The checksum of the files that are being put in place.
pub const TAKING_FILE: &str = "rules_being_taken";

/// The new files, until they are in place.
pub const TAKEN_FILES: [(&str, &str); 2] = [(HBA_FILE, "pg_hba.conf.taken"), (IDENT_FILE, "pg_ident.conf.taken")];

/// Replaces the files. Durable when it returns.
pub fn take(disk: &dyn Disk, dir: &Path, texts: &RuleTexts) -> Result<(), RulesError> {
    complete(disk, dir)?;
    for (name, taken) in TAKEN_FILES {
        let content = texts.iter().find(|(of, _)| of == name).map(|(_, content)| content.as_str());
        write(disk, &dir.join(taken), content.unwrap_or_default())?;
    }
    write(disk, &dir.join(TAKING_FILE), &format!("{:016x}\n", checksum(texts)))?;
    put_in_place(disk, dir, texts)
}

/// Completes what a crash or a failed write has interrupted.
pub fn complete(disk: &dyn Disk, dir: &Path) -> Result<(), RulesError> {
    let marker = dir.join(TAKING_FILE);
    if !exists(disk, &marker)? {
        return remove(disk, dir, &TAKEN_FILES.map(|(_, taken)| taken));
    }
    let noted = text(disk, &marker)?;
    let mut texts = RuleTexts::new();
    for (name, taken) in TAKEN_FILES {
        texts.push((name.to_owned(), text(disk, &dir.join(taken))?));
    }
    if u64::from_str_radix(noted.trim_end(), 16) != Ok(checksum(&texts)) {
        return Err(RulesError::Taking { path: marker });
    }
    tracing::warn!("the rules of access were being replaced by those in the trail; that is completed now");
    put_in_place(disk, dir, &texts)
}

fn put_in_place(disk: &dyn Disk, dir: &Path, texts: &RuleTexts) -> Result<(), RulesError> {
    texts.iter().try_for_each(|(name, content)| write(disk, &dir.join(name), content))?;
    write(disk, &dir.join(SHARED_FILE), &format!("{:016x}\n", checksum(texts)))?;
    remove(disk, dir, &[TAKING_FILE])?;
    remove(disk, dir, &TAKEN_FILES.map(|(_, taken)| taken))
}

/// Removes those of the files that exist, durably.
fn remove(disk: &dyn Disk, dir: &Path, names: &[&str]) -> Result<(), RulesError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| RulesError::Io { what: "remove", path, source }
    };
    let mut removed = false;
    for path in names.iter().map(|name| dir.join(name)) {
        if exists(disk, &path)? {
            disk.remove(&path).map_err(failed(&path))?;
            removed = true;
        }
    }
    if removed { disk.sync_dir(dir).map_err(failed(dir)) } else { Ok(()) }
}

fn exists(disk: &dyn Disk, path: &Path) -> Result<bool, RulesError> {
    let found = disk.metadata(path).map_err(|source| RulesError::Io { what: "read", path: path.to_owned(), source })?;
    Ok(found.is_some())
}

#[cfg(test)]
mod tests {
    use super::super::RuleFiles;
    use super::*;
    use holdfast_seams::testing::FaultDisk;
    use std::sync::Arc;

    const DIR: &str = "/data";

    fn texts(map: &str) -> RuleTexts {
        let hba = format!("local all all peer map={map}\n");
        vec![(HBA_FILE.into(), hba), (IDENT_FILE.into(), format!("{map} root holdfast\n"))]
    }

    fn put(disk: &FaultDisk, texts: &RuleTexts) {
        disk.create_dir(Path::new(DIR)).unwrap();
        put_in_place(disk, Path::new(DIR), texts).unwrap();
    }

    /// After a power cut at any operation the next start has the old rules or the new ones, and never takes them for an edit,
    /// which a master would write to the trail.
    #[test]
    fn a_power_cut_leaves_the_old_rules_or_the_new_ones() {
        let (old, new) = (texts("old"), texts("new"));
        let mut found = [0, 0];
        for seed in 0..20 {
            for operation in 0..60 {
                let disk = Arc::new(FaultDisk::new(seed));
                put(&disk, &old);
                let files = RuleFiles::open_on(disk.clone(), Path::new(DIR)).unwrap();
                disk.cut_power_after(operation);
                let taken = files.take(&new).is_ok();
                disk.do_not_cut();
                if disk.power_is_off() {
                    disk.restore_power();
                }
                let at = format!("seed {seed}, operation {operation}");
                let files = RuleFiles::open_on(disk.clone(), Path::new(DIR)).unwrap_or_else(|e| panic!("{at}: {e}"));
                let own = files.in_force();
                assert!(own == old || own == new, "{at}: {own:?}");
                assert!(!taken || own == new, "{at}: it was durable");
                assert_eq!(files.noted(), Some(checksum(&own)), "{at}: it would count as edited");
                found[usize::from(own == new)] += 1;
                let left = disk.list(Path::new(DIR)).unwrap();
                assert!(!left.iter().any(|name| name.ends_with(".taken") || name == TAKING_FILE), "{at}: {left:?}");
            }
        }
        assert!(found.iter().all(|times| *times > 100), "{found:?}");
    }

    /// What the steps prevent: two files that are replaced one after the other can become a mixture. So the test above can fail.
    #[test]
    fn without_the_steps_a_power_cut_leaves_a_mixture() {
        let (old, new) = (texts("old"), texts("new"));
        let mixtures = (0..20).filter(|operation| {
            let disk = Arc::new(FaultDisk::new(1));
            put(&disk, &old);
            disk.cut_power_after(*operation);
            let written = new.iter().try_for_each(|(name, content)| write(&*disk, &Path::new(DIR).join(name), content));
            disk.do_not_cut();
            if disk.power_is_off() {
                disk.restore_power();
            }
            let own = RuleFiles::open_on(disk, Path::new(DIR)).unwrap().in_force();
            written.is_err() && own != old && own != new
        });
        assert!(mixtures.count() > 0);
    }

    /// A write between the two files fails and the server lives on: a reload does not read the mixture.
    #[test]
    fn a_reload_after_a_failed_write_completes_the_taking() {
        let mut mixtures = 0;
        for nth in 1..9 {
            let disk = Arc::new(FaultDisk::new(1));
            put(&disk, &texts("old"));
            let files = RuleFiles::open_on(disk.clone(), Path::new(DIR)).unwrap();
            disk.fail_write(nth, rustix::io::Errno::IO);
            let taken = files.take(&texts("new"));
            disk.heal();
            mixtures += usize::from(taken.is_err());
            files.reload().unwrap();
            let own = files.in_force();
            assert!(own == texts("old") || own == texts("new"), "write {nth}: {own:?}");
            assert_eq!(files.noted(), Some(checksum(&own)), "write {nth}");
        }
        assert!(mixtures > 3, "{mixtures}");
    }

    #[test]
    fn a_marker_that_does_not_fit_refuses_the_start() {
        let disk = Arc::new(FaultDisk::new(1));
        put(&disk, &texts("old"));
        for (_, taken) in TAKEN_FILES {
            write(&*disk, &Path::new(DIR).join(taken), "").unwrap();
        }
        write(&*disk, &Path::new(DIR).join(TAKING_FILE), "0000000000000001\n").unwrap();
        let error = RuleFiles::open_on(disk.clone(), Path::new(DIR)).err().unwrap().to_string();
        assert!(error.contains(TAKING_FILE) && error.contains("remove it"), "{error}");
    }
}
