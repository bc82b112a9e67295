//! The mirror's copy of `holdfast.toml`: a promoted mirror serves with the settings of the main directory. Only the setting
//! that names the mirror is left out: the mirror would be its own.

use crate::records::replace_text;
use holdfast_replication::settings::{FILE_NAME, SettingsFile};
use std::io;
use std::path::Path;

/// Copies the main directory's settings to the mirror where they differ.
pub fn copy_settings(settings: &dyn SettingsFile, main: &Path, mirror: &Path) -> io::Result<()> {
    let text = match std::fs::read_to_string(main.join(FILE_NAME)) {
        Ok(text) => settings.without_mirror(&text)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    if std::fs::read_to_string(mirror.join(FILE_NAME)).is_ok_and(|there| there == text) {
        return Ok(());
    }
    replace_text(mirror, FILE_NAME, &text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_engine::Options;
    use holdfast_standby::LinkOptions;

    struct File;

    impl SettingsFile for File {
        fn create(&self, _: &Path, _: &str) -> io::Result<()> {
            Ok(())
        }

        fn link_options(&self, _: &Path) -> LinkOptions {
            LinkOptions::default()
        }

        fn engine_options(&self, _: &Path) -> io::Result<Options> {
            Ok(Options::default())
        }

        fn without_mirror(&self, text: &str) -> io::Result<String> {
            match text.strip_suffix("mirror\n") {
                Some(rest) => Ok(rest.to_owned()),
                None => Err(io::Error::other("it names no mirror")),
            }
        }
    }

    #[test]
    fn the_copy_lacks_the_mirror_and_follows_changes() {
        let (main, mirror) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let copy = || copy_settings(&File, main.path(), mirror.path());
        copy().unwrap();
        assert!(!mirror.path().join(FILE_NAME).exists(), "there is nothing to copy");
        std::fs::write(main.path().join(FILE_NAME), "workers = 1\nmirror\n").unwrap();
        copy().unwrap();
        let there = || std::fs::read_to_string(mirror.path().join(FILE_NAME)).unwrap();
        assert_eq!(there(), "workers = 1\n");
        std::fs::write(main.path().join(FILE_NAME), "workers = 2\nmirror\n").unwrap();
        copy().unwrap();
        assert_eq!(there(), "workers = 2\n");
        std::fs::write(main.path().join(FILE_NAME), "nonsense").unwrap();
        assert!(copy().is_err(), "a mirror that names itself as its mirror would not start");
        assert_eq!(there(), "workers = 2\n");
    }
}
