//! What the settings in a dump say of the server's archive.
//!
//! Failure: settings that are not TOML are an error; of the archive's own settings only those that are missing count as empty.

use crate::manifest::Head;
use crate::restore::RestoreError;
use holdfast_archive::ArchiveLocation;
use std::collections::BTreeMap;

/// `archive`, `archive_encrypt_to` and `archive_identity` in holdfast.toml.
#[derive(Default, PartialEq, Eq, Debug)]
pub struct ConfiguredArchive {
    /// Empty: there is none.
    pub place: String,
    pub is_encrypted: bool,
}

impl ConfiguredArchive {
    pub fn of(head: &Head) -> Result<ConfiguredArchive, RestoreError> {
        ConfiguredArchive::in_files(&head.files)
    }

    /// In the settings of a server, by name of the file.
    pub fn in_files(files: &BTreeMap<String, String>) -> Result<ConfiguredArchive, RestoreError> {
        let Some(text) = files.get("holdfast.toml") else { return Ok(ConfiguredArchive::default()) };
        let table: toml::Table = toml::from_str(text).map_err(|e| RestoreError::Settings(e.to_string()))?;
        let text = |name| table.get(name).and_then(toml::Value::as_str).unwrap_or_default();
        let is_encrypted = ["archive_encrypt_to", "archive_identity"].into_iter().any(|name| !text(name).is_empty());
        Ok(ConfiguredArchive { place: text("archive").to_owned(), is_encrypted })
    }

    /// Whether the archive is in this place. One that cannot be read as a place is refused by the server itself.
    pub fn is_in(&self, place: &str) -> bool {
        let parse = |text: &str| ArchiveLocation::parse(text).ok().flatten();
        parse(&self.place).zip(parse(place)).is_some_and(|(archive, place)| archive.is_same_place(&place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encrypted_archive_is_one_with_recipients_or_an_identity() {
        let read = |text: &str| {
            let files = [("holdfast.toml".to_owned(), text.to_owned())].into();
            ConfiguredArchive::in_files(&files)
        };
        let found = |place: &str, is_encrypted| ConfiguredArchive { place: place.to_owned(), is_encrypted };
        assert_eq!(read("").unwrap(), found("", false));
        assert_eq!(read("archive = '/a'\narchive_identity = ''").unwrap(), found("/a", false));
        assert_eq!(read("archive = '/a'\narchive_identity = '/i'").unwrap(), found("/a", true));
        assert_eq!(read("archive = '/a'\narchive_encrypt_to = 'age1'").unwrap(), found("/a", true));
        assert!(read("archive = ").is_err());
    }
}
