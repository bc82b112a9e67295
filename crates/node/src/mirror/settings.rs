//! The mirror has the settings of the main directory, so that a promoted one serves as that did; but for the mirror
//! itself, which it would be its own.

use super::files::replace_text;
use crate::config::{Config, FILE_NAME};
use std::io;
use std::path::Path;

/// Copies holdfast.toml, where it differs.
pub fn copy_settings(main: &Path, mirror: &Path) -> io::Result<()> {
    let text = match std::fs::read_to_string(main.join(FILE_NAME)) {
        Ok(text) => without_mirror(&text)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    if std::fs::read_to_string(mirror.join(FILE_NAME)).is_ok_and(|there| there == text) {
        return Ok(());
    }
    replace_text(mirror, FILE_NAME, &text)
}

/// The same settings with the line that names the mirror commented out.
fn without_mirror(text: &str) -> io::Result<String> {
    let names_it = |line: &str| {
        let key = line.split_once('=').map(|(key, _)| key.trim().trim_matches(['"', '\'']));
        key == Some("mirror")
    };
    let lines = text.lines().map(|line| if names_it(line) { format!("#{line}\n") } else { format!("{line}\n") });
    let text: String = lines.collect();
    let config = Config::parse(&text).map_err(io::Error::other)?;
    if config.has_mirror() {
        return Err(io::Error::other("the line that names the mirror was not found"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_but_the_mirror_is_kept() {
        let text = "# mine\nworkers = 3\n mirror = \"/b\"\nmirror_away = \"go_on\"\n";
        let there = without_mirror(text).unwrap();
        assert_eq!(there, "# mine\nworkers = 3\n# mirror = \"/b\"\nmirror_away = \"go_on\"\n");
        assert!(without_mirror("nonsense = 1").is_err());
    }
}
