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
